"""The same searches on a real Slurm whose jobs, workers and nodes are lost on the way; and `vpc cluster check` there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import slurm
from twins import slow

import vpc
from vpc.cluster import ClusterError, connect, queues
from vpc.cluster.check import check
from vpc.learn.experiments import worm_twin
from vpc.learn.targets import Sweep

HERE = Path(__file__).parent
PLAN = {"steps": 30, "samples": 6, "draws": 3, "checks": 1, "progress": False}


@pytest.fixture(scope="module", autouse=True)
def nodes(tmp_path_factory):
    """A Slurm of three nodes, a system part: missing in CI is a failure, elsewhere a skip."""
    if lacking := slurm.missing():
        absent = pytest.fail if os.environ.get("VPC_SYSTEM_PARTS") == "required" else pytest.skip
        absent(lacking)
    with slurm.running(tmp_path_factory.mktemp("slurm"), nodes=3):
        yield


@pytest.fixture(scope="module")
def wanted():
    """What the search finds on one core."""
    return vpc.learn.pmvo(slow(), **PLAN, cluster=connect("serial")).dataset


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Of the test's Slurm. Its jobs have this process's environment, and find the tests' targets and compiled kernels."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    found = {"queue": "debug", "interface": "lo", "walltime": "00:10:00", "timeout": 60, "folder": tmp_path / "shared"}
    return found | {"job_script_prologue": ["unset WORMSIM_CACHE"]}


def jobs():
    """Numbers of the jobs that run."""
    return slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()


def worker_of(job):
    """The process in which a job's tasks run."""
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "multiprocessing.spawn" in " ".join(words) and process.environ().get("SLURM_JOB_ID") == job:
            return process.pid
    raise AssertionError(f"job {job} has no worker")


@pytest.mark.waits
def test_the_same_fit_although_workers_are_lost(options, wanted, monkeypatch, tmp_path):
    """Undisturbed; then with a job cancelled, a worker killed and a node down. Times are printed: tests do not measure them."""
    monkeypatch.setenv("VPC_TEST_SLEEP", "0.25")  # for the workers
    times, lines = {}, tmp_path / "fit.jsonl"

    def disturb():
        def after(step):
            while not lines.exists() or len(lines.read_text().splitlines()) < step:
                time.sleep(0.02)

        after(5)
        slurm.command("scancel", jobs()[0])
        after(12)
        os.kill(worker_of(jobs()[0]), signal.SIGKILL)
        after(20)
        node = slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]
        slurm.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        down.append(node)

    down = []
    with connect("slurm", jobs=3, **options) as cluster:
        monkeypatch.delenv("VPC_TEST_SLEEP")
        while len(cluster.present()) < 3:
            time.sleep(0.1)
        cluster.map(abs, range(30))
        for how in ("undisturbed", "disturbed"):
            if how == "disturbed":
                troubles = threading.Thread(target=disturb)
                troubles.start()
            begin = time.perf_counter()
            fit = vpc.learn.pmvo(slow(), **PLAN, cluster=cluster, checkpoint=lines if how == "disturbed" else None)
            times[how] = time.perf_counter() - begin
            assert fit.dataset.identical(wanted)
        troubles.join()
    print(f"undisturbed {times['undisturbed']:.1f} s, disturbed {times['disturbed']:.1f} s, a task 0.25 s")
    slurm.command("scontrol", "update", f"NodeName={down[0]}", "State=RESUME")


@pytest.mark.waits
def test_everything_is_lost_for_a_while(options):
    """All jobs are cancelled in mid-run: they are asked for again, and nothing is missing."""

    def item(k):
        time.sleep(0.2)
        return k**2

    with connect("slurm", jobs=2, **options) as cluster:
        cluster.map(item, range(2))
        threading.Timer(1.0, lambda: slurm.command("scancel", *jobs())).start()
        assert cluster.map(item, range(20)) == [k**2 for k in range(20)]
        end = time.monotonic() + 60
        while len(cluster.present()) < 2:  # both come back, one perhaps after the other
            cluster.map(item, range(4))
            assert time.monotonic() < end


@pytest.mark.waits
def test_the_process_is_killed_and_resumed(options, wanted, monkeypatch, tmp_path):
    """SIGKILL for the process that holds the scheduler; what it had done is in the checkpoint."""
    monkeypatch.setenv("VPC_TEST_SLEEP", "0.1")
    lines = tmp_path / "fit.jsonl"
    known = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    script = f"""
import vpc
from twins import slow
with vpc.cluster.connect("slurm", jobs=2, **{known!r}) as cluster:
    vpc.learn.pmvo(slow(), **{PLAN!r}, cluster=cluster, checkpoint={str(lines)!r})
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    while not lines.exists() or len(lines.read_text().splitlines()) < 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    slurm.command("scancel", *jobs())  # else they would wait a minute for their scheduler
    monkeypatch.delenv("VPC_TEST_SLEEP")
    assert 5 <= len(lines.read_text().splitlines()) < 25
    with connect("slurm", jobs=1, **options) as cluster:
        assert vpc.learn.pmvo(slow(), **PLAN, cluster=cluster, checkpoint=lines).dataset.identical(wanted)


def test_a_worm_on_slurm(options):
    """Evidence of a worm, with compiled kernels, as on this core."""
    target = worm_twin(seconds=0.5, particles=32).target
    items = [Sweep((9.0, 10.3), seed) for seed in range(2)]
    with connect("slurm", **options) as cluster:
        assert cluster.map(target, items) == [target(item) for item in items]


def test_check_passes(options):
    command = [sys.executable, "-m", "vpc.cli", "cluster", "check", "--kind", "slurm", "--jobs", "2", "--json"]
    for name in ("queue", "interface", "walltime", "timeout", "folder"):
        command += [f"--{name}", str(options[name])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["good"], found
    looked_at = ["connect", "workers", "versions", "threads", "storage", "results", "overhead"]
    assert [finding["what"] for finding in found["findings"]] == looked_at


def only_fault(**options):
    """The one thing that `vpc cluster check` finds wrong."""
    (fault,) = [finding for finding in check("slurm", **options) if not finding.good]
    return fault


def test_check_names_a_queue_that_gives_no_worker(options):
    fault = only_fault(**options | {"queue": "closed", "timeout": 5})
    assert fault.what == "workers" and "no worker for 5 s: slurm has" in fault.told and "PENDING" in fault.told


def test_check_names_a_job_that_cannot_start(options, monkeypatch):
    monkeypatch.setattr(queues, "LOOK", 1.0)
    fault = only_fault(**options, python="/nowhere/python")
    assert (
        fault.what == "workers" and "3 times jobs ended before a worker came" in fault.told and "/nowhere/python" in fault.told
    )


def test_check_names_another_version(options, tmp_path, monkeypatch):
    for package in ("vpc", "wormsim"):
        shutil.copytree(HERE.parents[1] / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "vpc" / "noise.py").write_text("# another one\n")
    monkeypatch.chdir(tmp_path)  # where jobs start, and look for modules first
    fault = only_fault(**options)
    assert fault.what == "versions" and "is refused, for its results could differ: it has sources of vpc" in fault.told


def test_check_names_slow_storage(options, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os, time\nos.fsync = lambda file: time.sleep(0.2)\n")
    prologue = [f"export PYTHONPATH={tmp_path}"]
    fault = only_fault(**options | {"job_script_prologue": prologue})
    assert fault.what == "storage" and "storage is slow: a small file takes 20" in fault.told


def test_check_names_oversubscribed_threads(options):
    fault = only_fault(**options, cores=4, job_cpu=1, memory="4GB")
    assert fault.what == "threads" and "threads are oversubscribed: 4 worker(s) of 1 thread(s) on 1 core(s)" in fault.told


def test_jobs_that_slurm_refuses(options):
    with pytest.raises(ClusterError, match=r"slurm refused a job: .*[Ii]nvalid partition.*ask the site's support which queue"):
        connect("slurm", **options | {"queue": "nowhere"})
