"""One map on one core, on all cores, on workers of a scheduler: the same numbers, whatever is lost on the way."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask_jobqueue
import numpy as np
import pytest
from twins import slow

import vpc
from vpc.cli import main
from vpc.cluster import ClusterError, connect, scaling
from vpc.cluster.queues import job_script, settings

ROOT = Path(__file__).parents[2]
SITES = sorted((ROOT / "docs" / "sites").glob("*.yaml"))
PLAN = {"steps": 3, "samples": 4, "draws": 3, "checks": 1, "progress": False}


def vpc_command(capsys, *words):
    """Exit code, standard output and error of `vpc`."""
    code = main(list(words))
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def local():
    with connect("local", workers=2) as cluster:
        yield cluster


@contextlib.contextmanager
def scheduler(folder, path=None, workers=1):
    """The address and the process of a Dask scheduler with workers that look for modules in a path first."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path or [Path(__file__).parent]))}
    start = [sys.executable, "-m", "dask"]
    card = folder / "scheduler.json"
    common = {"env": environment, "stderr": subprocess.DEVNULL, "cwd": folder}
    with contextlib.ExitStack() as stack:

        def begin(*words):
            process = subprocess.Popen([*start, *words, "--scheduler-file", card], **common)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        main = begin("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        for _ in range(workers):
            begin("worker", "--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", "127.0.0.1")
        while not card.exists():
            assert main.poll() is None
            time.sleep(0.05)
        yield json.loads(card.read_text())["address"], main


def test_results_come_in_order(local):
    shift = 10
    for cluster in (connect("serial"), connect("threads", workers=2), local):
        assert cluster.map(lambda item: item**2 + shift, range(20)) == [k**2 + shift for k in range(20)]
        assert cluster.map(abs, []) == []
    assert local.dashboard.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("kind", ["serial", "threads", "local"])
def test_errors_come_as_they_are(kind, local):
    cluster = local if kind == "local" else connect(kind)
    with pytest.raises(ValueError, match="invalid literal"):
        cluster.map(int, ["1", "two"])
    with pytest.raises(ValueError, match="late must be a share from 0 to below 1"):
        cluster.map(int, ["1"], late=1.0)
    assert cluster.map(int, ["1", "2"]) == [1, 2]


def test_what_is_late_is_given_up(local):
    def item(seconds):
        time.sleep(seconds)
        return seconds

    assert local.map(item, [0.1, 10.0, 0.1, 0.1, 0.1, 0.1], late=0.2) == [0.1, None, 0.1, 0.1, 0.1, 0.1]
    before = {pid for pid in local.client.run(os.getpid).values()}
    assert len(before) == 2
    found = local.map(lambda k: (k, os.getpid()), range(6))
    assert [k for k, _ in found] == list(range(6)) and len({pid for _, pid in found}) == 1, "none waits for the slow worker"
    assert connect("serial").map(item, [0.0, 0.1], late=0.5) == [0.0, 0.1], "only where workers differ"


class Hurried(vpc.cluster.Cluster):
    """Gives up every fourth sample of a step."""

    def map(self, function, items, progress=False, late=0.0):
        found = super().map(function, items)
        return [None if late and k % 4 == 1 else result for k, result in enumerate(found)]


def test_a_search_does_without_late_samples(tmp_path):
    target, plan = slow(), PLAN | {"steps": 8, "samples": 8, "late": 0.25, "cluster": Hurried()}
    fit = vpc.learn.pmvo(target, **plan, checkpoint=tmp_path / "fit.jsonl")
    assert fit.failures == {"given up as late": 16} and np.isfinite(fit.trace).all()
    again = vpc.learn.pmvo(target, **plan | {"cluster": connect("serial")}, checkpoint=tmp_path / "fit.jsonl")
    assert again.dataset.identical(fit.dataset), "what was late is part of the checkpoint"
    moved = fit.trace["value"].diff("step").any("parameter")
    assert moved.all(), "the other samples make it move"


def test_a_worker_is_killed(local, tmp_path):
    def item(k):
        time.sleep(0.2)
        (tmp_path / f"{k}-{time.time_ns()}").touch()
        return k, os.getpid()

    (victim,) = {pid for _, pid in local.map(item, [0])}
    before = len(local.present())

    def item_or_end(k):
        if k == 5 and os.getpid() == victim:
            os.kill(victim, signal.SIGKILL)
        return item(k)[0]

    (only,) = tmp_path.iterdir()
    only.unlink()
    assert local.map(item_or_end, range(12)) == list(range(12))
    assert len(list(tmp_path.iterdir())) <= 13, "what had come was not done again, but perhaps for the last that it did"
    end = time.monotonic() + 60
    while len(local.present()) < before and time.monotonic() < end:
        time.sleep(0.1)
    assert len(local.present()) == before, "another takes its place"


def test_kernels_are_compiled_once(tmp_path, monkeypatch):
    """Two processes that start together, with an empty cache: one compiles, the other finds what it made."""

    def misses(seed):
        from vpc.autoregressive import Autoregressive, _run, random_weights

        Autoregressive(random_weights(0)).simulate(seed)
        time.sleep(1.0)  # so that both processes have one
        return os.getpid(), sum(_run.stats.cache_misses.values())

    monkeypatch.setenv("WORMSIM_CACHE", str(tmp_path))
    with connect("local", workers=2) as cluster:
        found = dict(cluster.map(misses, range(4)))
    assert sorted(found.values()) == [0, 1]
    assert len(list(tmp_path.iterdir())) == 1, "one folder for this kind of processor"


@pytest.mark.waits
def test_a_scheduler_that_runs_already_and_dies(tmp_path, monkeypatch):
    target, plan, lines = slow(), PLAN | {"steps": 20}, tmp_path / "fit.jsonl"
    wanted = vpc.learn.pmvo(target, **plan, cluster=connect("serial"))

    def kill_in_the_fifth_step(process):
        while not lines.exists() or len(lines.read_text().splitlines()) < 6:
            time.sleep(0.02)
        process.kill()

    monkeypatch.setenv("VPC_TEST_SLEEP", "0.1")  # for the workers
    with scheduler(tmp_path, workers=2) as (address, process):
        monkeypatch.delenv("VPC_TEST_SLEEP")
        with connect(address, timeout=30) as cluster:
            assert vpc.learn.pmvo(target, **plan, cluster=cluster).dataset.identical(wanted.dataset)
            threading.Thread(target=kill_in_the_fifth_step, args=[process]).start()
            with pytest.raises(ClusterError, match=r"scheduler is lost(?s:.*)checkpoint .*fit.jsonl to go on"):
                vpc.learn.pmvo(target, **plan, cluster=cluster, checkpoint=lines)
    assert 6 <= len(lines.read_text().splitlines()) < 15
    assert vpc.learn.pmvo(target, **plan, cluster=connect("serial"), checkpoint=lines).dataset.identical(wanted.dataset)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127.0.0.1"):
        connect(address, timeout=1)


@pytest.mark.waits
def test_no_worker_is_left(tmp_path):
    with scheduler(tmp_path, workers=0) as (address, _), connect(address, timeout=1.0) as cluster:
        with pytest.raises(ClusterError, match=r"no worker for 1 s: see whether the scheduler at tcp://.* has workers"):
            cluster.map(abs, [1])
        with pytest.raises(ClusterError, match=r"no worker(?s:.*)nothing was kept"):
            vpc.learn.pmvo(slow(), **PLAN, cluster=cluster)


@pytest.mark.waits
def test_another_version_is_refused(tmp_path):
    """A worker whose vpc differs by one line, and one that has none."""
    for package in ("vpc", "wormsim"):
        shutil.copytree(ROOT / package, tmp_path / "other" / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other" / "vpc" / "noise.py").open("a") as file:
        file.write("# another line\n")
    with (
        scheduler(tmp_path, [tmp_path / "other"]) as (address, _),
        connect(address, timeout=60) as cluster,
        pytest.raises(ClusterError, match=r"worker .* is refused, .* it has sources of vpc \w+ \(here \w+\); give it the same"),
    ):
        cluster.map(abs, [1])


def test_bad_kinds_and_options(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="kind must be serial, .*, got 'slrum'; did you mean 'slurm'"):
        connect("slrum")
    with pytest.raises(ValueError, match="worker is not an option of 'threads': did you mean 'workers'"):
        connect("threads", worker=2)
    with pytest.raises(ValueError, match="workers is not an option of 'serial': it has none"):
        connect("serial", workers=2)
    with pytest.raises(ValueError, match="workers must be a whole number"):
        connect("threads", workers=0)
    with pytest.raises(ValueError, match="core is not an option of 'slurm'; did you mean 'cores'"):
        connect("slurm", core=2)
    with pytest.raises(ValueError, match="cores of a job must be at least threads of a worker, got 2 and 4"):
        connect("pbs", cores=2, threads=4)
    with pytest.raises(ValueError, match="processes is not an option of 'slurm'; did you mean 'threads'"):
        connect("slurm", processes=2)
    with pytest.raises(ValueError, match="sge gives 4 cores only in a parallel environment: .*-pe smp 4"):
        connect("sge", cores=4)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="slurm needs the command sbatch, which is not here: .* ask the site's support"):
        connect("slurm")


def test_bad_folders_and_files(tmp_path, monkeypatch):
    for name in ("sbatch", "scancel", "squeue"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ClusterError, match="folder .*sbatch/shared cannot be written: .* all nodes share; ask the site's support"
    ):
        connect("slurm", folder=tmp_path / "sbatch" / "shared")
    with pytest.raises(ValueError, match="folder must have no spaces in its path"):
        connect("slurm", folder=tmp_path / "my folder")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ClusterError, match="folder .*open must be yours, and not writable by all"):
        connect("slurm", folder=tmp_path / "open")
    site = tmp_path / "site.yaml"
    with pytest.raises(FileNotFoundError):
        connect("slurm", config=site)
    site.write_text("jobqueue: [")
    with pytest.raises(ValueError, match="config .*site.yaml is not YAML"):
        connect("slurm", config=site)
    site.write_text("jobqueue: {pbs: {cores: 2}}")
    with pytest.raises(ValueError, match="config .*site.yaml must have a section jobqueue: with slurm: in it"):
        connect("slurm", config=site)
    site.write_text("jobqueue: {slurm: {coars: 2}}")
    with pytest.raises(ValueError, match="coars is not an option of 'slurm'; did you mean 'cores'"):
        connect("slurm", config=site)


DIRECTIVES = {
    "slurm": [
        "#SBATCH -p long",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem=8G",
        "#SBATCH -t 02:00:00",
        "#SBATCH --no-requeue",
    ],
    "pbs": ["#PBS -q long", "#PBS -l select=1:ncpus=8:mem=7630MB", "#PBS -l walltime=02:00:00", "#PBS -r n"],
    "sge": ["#$ -q long", "#$ -pe smp 8", "#$ -l h_rt=02:00:00", "#$ -r no"],
    "lsf": ["#BSUB -q long", "#BSUB -n 8", "#BSUB -M 8000000", "#BSUB -W 02:00", "#BSUB -rn"],
}


@pytest.mark.parametrize("kind", DIRECTIVES)
def test_job_scripts(kind):
    """By their text alone for PBS, SGE and LSF, of which there is none to try."""
    options = {"cores": 8, "threads": 2, "memory": "8GB", "walltime": "02:00:00", "queue": "long", "folder": "here"}
    if kind == "sge":
        options["job_extra_directives"] = ["-pe smp 8"]
    if kind == "lsf":
        options |= {"lsf_units": "kb"}
    lines = job_script(kind, **options).splitlines()
    assert not [line for line in DIRECTIVES[kind] if line not in lines]
    assert "export NUMBA_NUM_THREADS=2" in lines and any(line.endswith("here/kernels") for line in lines)
    assert "--nworkers 4" in lines[-1] and lines[-1].endswith("--nthreads 1 --no-dashboard")


@pytest.mark.parametrize("kind", DIRECTIVES)
def test_files_of_dask_jobqueue_are_understood(kind):
    """Its own defaults, in which most is null, and what has another name."""
    own = Path(dask_jobqueue.__file__).parent / "jobqueue.yaml"
    _, theirs = settings(kind, own, account="me")
    assert theirs["death_timeout"] == 60 and theirs["project" if kind in ("sge", "lsf") else "account"] == "me"


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.stem)
def test_example_sites(site):
    kind = site.stem
    ours, theirs = settings(kind, site)
    assert ours["jobs"] > 1 and theirs["cores"] > 1 and theirs["walltime"]
    script = job_script(kind, site)
    assert theirs["queue"] in script and all(line in script for line in theirs["job_script_prologue"])
    assert settings(kind, site, cores=theirs["cores"] * 2)[1]["cores"] == theirs["cores"] * 2, "what is given comes first"


def test_there_is_an_example_for_three_kinds_of_sites():
    assert [site.stem for site in SITES] == ["pbs", "sge", "slurm"]


def test_commands(capsys):
    code, out, _ = vpc_command(capsys, "cluster", "script", "--kind", "slurm", "--cores", "4", "--queue", "long")
    assert code == 0 and "#SBATCH -p long" in out
    code, _, err = vpc_command(capsys, "cluster", "script", "--kind", "local")
    assert code == 2 and "--kind of a script must be one of slurm, pbs, sge, lsf" in err
    code, out, _ = vpc_command(capsys, "cluster", "check", "--kind", "serial", "--json")
    found = json.loads(out)
    assert (
        code == 0 and found["good"] and [finding["what"] for finding in found["findings"]] == ["connect", "results", "overhead"]
    )
    code, _, err = vpc_command(capsys, "learn", "--workers", "2")
    assert code == 2 and "--workers is of a cluster: say which with --cluster" in err


def test_learning_on_a_cluster_by_command(capsys):
    words = ["learn", "--model", "ar", "--method", "pmvo", "--steps", "1", "--samples", "2", "--particles", "20", "--json"]
    found = []
    for more in ([], ["--cluster", "threads", "--workers", "2"]):
        code, out, _ = vpc_command(capsys, *words, *more)
        assert code == 0
        found.append([{name: one[name] for name in ("seed", "best", "gap")} for one in json.loads(out)["restarts"]])
    assert found[0] == found[1]


def test_the_model_of_scaling():
    """Against what `vpc bench cluster` measured, which is stored; and its limits."""
    stored = json.loads((ROOT / "notebooks" / "results" / "scaling.json").read_text())
    costs = scaling.Costs(**stored["costs"])
    for row in stored["rows"]:
        assert scaling.seconds_of(row["tasks"], row["workers"], scaling.SLEEP, costs) == pytest.approx(row["seconds"], rel=0.1)
    assert stored["speedup"] >= 1.8 and stored["bytes_a_sweep"] <= 10_000
    many = next(row for row in stored["rows"] if row["workers"] == 2)
    assert (many["seconds"] - many["tasks"] / 2 * scaling.SLEEP) / many["tasks"] <= 5e-3
    free = scaling.Costs(0.0, 0.0, 0.0)
    assert scaling.efficiency(8, 4, 1.0, free) == 1.0 and scaling.efficiency(9, 4, 1.0, free) == 0.75


def test_searches_that_lose_their_workers_say_how_to_go_on(capsys, tmp_path):
    words = ["learn", "--model", "ar", "--restarts", "2", "--timeout", "1", "--checkpoint", str(tmp_path / "fit.jsonl")]
    with scheduler(tmp_path, workers=0) as (address, _):
        code, _, err = vpc_command(capsys, *words, "--cluster", address)
    assert code == 2 and "no worker for 1 s" in err and "run again with the same --checkpoint to go on" in err
