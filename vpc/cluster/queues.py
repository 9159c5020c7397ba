"""Dask workers as jobs of Slurm, PBS, SGE or LSF, by dask-jobqueue: asked for, watched, and asked for again when lost."""

import inspect
import logging
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask_jobqueue as jobqueue
import yaml
from dask_jobqueue.core import Job, JobQueueCluster
from distributed import Client, Status
from distributed.security import Security

from wormsim import check

from ..connectome import nearest
from .places import ClusterError
from .workers import DASK, TIMEOUT, Workers, log

__all__ = ["Queue", "job_script", "settings"]

LOOK, SELDOM = 5.0, 60.0  # s between two looks at the queue, at first and in the end
FAILURES = 3  # times in a row that jobs end before a worker comes of them
LINES = 8  # of a job's log in messages
MEMORY = 2 * 10**9  # bytes for each worker
OURS = {"jobs": 1, "threads": 1, "timeout": TIMEOUT, "folder": "vpc-cluster"}


# What workers.DASK says for workers, as a job's environment: glibc may keep 1 GB that is freed, and take 32 MB from it.
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": 2**30,
    "MALLOC_MMAP_THRESHOLD_": 2**25,
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
}
# Options of dask-jobqueue that are not taken, and what to use.
INSTEAD = {
    "processes": "threads",
    "env_extra": "job_script_prologue",
    "extra": "worker_extra_args",
    "job_extra": "job_extra_directives",
    "header_skip": "job_directives_skip",
}


class System(NamedTuple):
    """What differs between queues."""

    cluster: Any  # a class of dask-jobqueue
    listing: tuple[str, ...]  # a command that names the jobs that wait or run
    once: str  # a directive: jobs that fail are not run again by the system, for they are replaced here


SYSTEMS = {
    "slurm": System(
        jobqueue.SLURMCluster,
        ("squeue", "--noheader", "--states=PD,CF,R,S", "--format=%A %T %r", f"--user={os.getuid()}"),
        "--no-requeue",
    ),
    "pbs": System(jobqueue.PBSCluster, ("qstat",), "-r n"),
    "sge": System(jobqueue.SGECluster, ("qstat",), "-r no"),
    "lsf": System(jobqueue.LSFCluster, ("bjobs",), "-rn"),
}


class Queue(Workers):
    """Workers that are jobs of a queue.

    Parameters
    ----------
    kind
        "slurm", "pbs", "sge" or "lsf".
    config
        A YAML file with a section jobqueue: slurm: (or pbs: ...), as dask-jobqueue has it. What it lacks is taken from Dask's
        own configuration, and what is given here comes before both.
    jobs
        How many.
    threads
        Cores of each worker. A job has as many workers as its `cores` allow.
    timeout
        Seconds without any worker after which `map` gives up: no less than the queue makes you wait.
    folder
        For logs, keys and compiled kernels. All nodes must see it.
    options
        Of dask-jobqueue: `cores`, `memory` (by default 2 GB for each worker), `queue`, `account`, `walltime`, `interface`,
        `python`, `job_script_prologue`, `job_extra_directives` and others.
    """

    def __init__(self, kind: str, config: str | Path | None = None, **options: Any):
        self._kind, system = kind, SYSTEMS[kind]
        ours, theirs = settings(kind, config, **options)
        self._listing = system.listing
        for command in (system.cluster.job_cls.submit_command, system.cluster.job_cls.cancel_command, system.listing[0]):
            if shutil.which(str(command).split()[0]) is None:
                raise ClusterError(
                    f"{kind} needs the command {command}, which is not here: log in to a node that can submit jobs, or load a "
                    "module; ask the site's support which"
                )
        super().__init__(ours["threads"], ours["timeout"])
        self._jobs = check.whole("jobs", ours["jobs"])
        self.wanted = self._jobs * theirs["processes"]
        self.folder, self._logs = _shared_folder(ours["folder"]), Path(theirs["log_directory"])
        self._failures, self._count, self._refused = 0, 0, ""
        self._due, self._wait = time.monotonic() + LOOK, LOOK
        self._came: set[str] = set()  # jobs of which a worker has come
        security = Security.temporary()
        with dask.config.set(DASK):
            try:
                self._cluster = system.cluster(**theirs, security=security, protocol="tls://", silence_logs=logging.CRITICAL)
            except (TypeError, ValueError, OSError, RuntimeError) as error:
                raise ValueError(f"{kind} cannot be used with these options: {error}") from None
        try:
            self._ask()
            self._join(Client(self._cluster, security=security))
        except BaseException:
            self._stop()
            raise

    def _ask(self, gone: tuple[str, ...] = ()) -> None:
        """Submit jobs until there are as many as wanted, in place of those that are gone."""

        async def submit() -> None:
            for name in gone:
                self._cluster.worker_spec.pop(name, None)
                if job := self._cluster.workers.pop(name, None):
                    await job.close()  # in case that it is not
                    job.status = Status.closed
            while len(self._cluster.worker_spec) < self._jobs:
                self._cluster.worker_spec.update(self._cluster.new_worker_spec())
            await self._cluster._correct_state()

        try:
            self._cluster.sync(submit)
        except (RuntimeError, ValueError, OSError) as error:
            told = str(error).partition("stderr:")[2].strip() or str(error)
            raise ClusterError(
                f"{self._kind} refused a job: {' '.join(told.split())}. See `vpc cluster script --kind {self._kind}`, and "
                "ask the site's support which queue, account, memory and walltime you may use"
            ) from None

    def _mend(self, present: dict[str, Any]) -> None:
        """Ask again for jobs that are neither waiting nor running."""
        names = [str(worker["name"]) for worker in present.values()]
        jobs, now = dict(self._cluster.workers), time.monotonic()
        self._came |= {job for job in jobs for name in names if name == str(job) or name.startswith(f"{job}-")}
        if len(present) < self._count:
            self._due, self._wait = now, LOOK
        self._count = len(present)
        if len(present) >= self.wanted or now < self._due:
            return
        self._due, self._wait = now + self._wait, min(2 * self._wait, SELDOM)
        listed = self._listed()
        if listed is None:
            return
        gone = [name for name, job in jobs.items() if not job.job_id or not re.search(_first(job.job_id), listed)]
        gone += set(self._cluster.worker_spec) - set(jobs)  # those that Dask has given up
        if not gone:
            return
        self._failures = 0 if self._came & set(gone) else self._failures + 1
        if self._failures >= FAILURES and not present:
            raise ClusterError(f"{self._failures} times jobs ended before a worker came of them: {self.situation()}")
        if self._failures < FAILURES:
            self._wait = LOOK
        log.warning("%d of %d jobs are gone, and are asked for again", len(gone), self._jobs)
        try:
            self._ask(tuple(gone))
            self._refused = ""
        except ClusterError as error:  # perhaps not for long
            self._refused = f"{error}; "
            log.warning("%s", error)

    def _listed(self) -> str | None:
        """What the queue says of jobs; None if it does not answer."""
        try:
            answer = subprocess.run(self._listing, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if answer.returncode == 0 or "No unfinished job" in answer.stderr:  # this is LSF's
            return answer.stdout
        return None

    def situation(self) -> str:
        """What the queue says of our jobs, and the end of the last job's log."""
        ids = [str(job.job_id) for job in dict(self._cluster.workers).values() if job.job_id]
        listed = (self._listed() or "").splitlines()
        states = [line.strip() for line in listed if any(re.search(_first(job), line) for job in ids)]
        if states:
            return f"{self._refused}{self._kind} has {'; '.join(states)}. If they only wait, give a longer timeout"
        told = f"{self._refused}{self._kind} has none of the jobs {', '.join(ids)}"
        logs = [file for file in self._logs.glob("*") if any(re.search(rf"(?<!\d){job}(?!\d)", file.name) for job in ids)]
        if not logs:
            return f"{told}; they left no log in {self._logs}: can nodes see and write that folder? Ask the site's support"
        last = max(logs, key=lambda file: (file.stat().st_size > 0, file.stat().st_mtime))
        lines = last.read_text(errors="replace").strip().splitlines()[-LINES:]
        return f"{told}; {last} ends with:\n  " + "\n  ".join(lines)

    def close(self) -> None:
        """Cancel the jobs."""
        try:
            super().close()
        finally:
            self._stop()

    def _stop(self) -> None:
        for job in self._cluster.workers.values():
            job.status = Status.closing  # Dask wants to see that, and dask-jobqueue does not say it
        self._cluster.close()


def settings(kind: str, config: str | Path | None = None, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is ours and what is dask-jobqueue's of some options, of a YAML file, and of Dask's configuration, in this order."""
    system = SYSTEMS[kind]
    usual = _plain(dask.config.get(f"jobqueue.{kind}", {}))
    known = {*_takes(system.cluster.job_cls), *_takes(Job), *_takes(JobQueueCluster), *OURS}
    known -= {"scheduler", "name", "n_workers", "job_cls", "security", "protocol", "silence_logs", "loop", "asynchronous"}
    known -= set(INSTEAD)
    given = _section(kind, config) | options
    given = {name: value for name, value in given.items() if value is not None}  # null: as Dask's configuration has it
    if "account" in given and "account" not in known:
        given["project"] = given.pop("account")
    for name in given:
        if name not in known:
            better = INSTEAD.get(name) or nearest(name, sorted(known))
            raise ValueError(f"{name} is not an option of {kind!r}; did you mean {better!r}?")
    every = {**usual, **given}
    every = {name: value for name, value in every.items() if value is not None and name in known}
    ours = {name: every.pop(name, value) for name, value in OURS.items()}
    threads, cores = check.whole("threads", ours["threads"]), check.whole("cores", every.get("cores", 1))
    if cores < threads:
        raise ValueError(f"cores of a job must be at least threads of a worker, got {cores} and {threads}")
    if kind == "lsf" and str(every.get("walltime", "")).count(":") == 2:
        every["walltime"] = every["walltime"].rpartition(":")[0]  # it counts in minutes
    extra = every.get("job_extra_directives", [])
    if kind == "sge" and cores > 1 and not any(directive.startswith("-pe ") for directive in extra):
        raise ValueError(
            f"sge gives {cores} cores only in a parallel environment: add job_extra_directives=['-pe smp {cores}'], with the "
            "name that the site's support tells for smp"
        )
    processes, folder = cores // threads, Path(ours["folder"]).absolute()
    counts = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    variables = {**counts, **ENVIRONMENT, "WORMSIM_CACHE": folder / "kernels"}
    exports = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
    prologue = [*exports, *every.get("job_script_prologue", [])]
    theirs = every | {
        "cores": cores,
        "processes": processes,
        "memory": every.get("memory", f"{processes * MEMORY}B"),
        "log_directory": every.get("log_directory", str(folder)),
        "shared_temp_directory": every.get("shared_temp_directory", str(folder)),
        "worker_extra_args": [*every.get("worker_extra_args", []), "--nthreads", "1", "--no-dashboard"],
        "job_script_prologue": prologue,
        "job_extra_directives": [system.once, *extra],
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"} | every.get("scheduler_options", {}),
    }
    return ours, theirs


def job_script(kind: str, config: str | Path | None = None, **options: Any) -> str:
    """The job that a queue would be given."""
    _, theirs = settings(kind, config, **options)
    job = {name: value for name, value in theirs.items() if name in {*_takes(SYSTEMS[kind].cluster.job_cls), *_takes(Job)}}
    return SYSTEMS[kind].cluster.job_cls("tls://<address of the scheduler>", "worker", **job).job_script()


def _first(job: str) -> str:
    """A pattern that finds a job's number, or 123 of 123.server, at the beginning of a line."""
    return rf"(?m)^\s*{job}\b"


def _takes(thing: Any) -> set[str]:
    return {name for name, about in inspect.signature(thing.__init__).parameters.items() if about.kind != about.VAR_KEYWORD} - {
        "self"
    }


def _section(kind: str, config: str | Path | None) -> dict[str, Any]:
    """The part of a YAML file that is about a queue."""
    if config is None:
        return {}
    try:
        text = yaml.safe_load(Path(config).read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"config {config} is not YAML: {error}") from None
    section = text
    for name in ("jobqueue", kind):
        section = section.get(name) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping):
        raise ValueError(f"config {config} must have a section jobqueue: with {kind}: in it, as dask-jobqueue's files have")
    return _plain(section)


def _plain(section: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names in Python; those of a file have hyphens, and call a job's name just that."""
    return {"job_name" if name == "name" else str(name).replace("-", "_"): value for name, value in section.items()}


def _shared_folder(name: str | Path) -> Path:
    """A folder that can be written to, and not by everybody: workers trust what is in it."""
    folder = Path(name).absolute()
    if re.search(r"\s", str(folder)):
        raise ValueError(f"folder must have no spaces in its path, which job scripts do not bear, got {str(folder)!r}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o002:
            raise ClusterError(f"folder {folder} must be yours, and not writable by all, for workers trust what is in it")
    except ClusterError:
        raise
    except OSError as error:
        raise ClusterError(
            f"folder {folder} cannot be written: {error.strerror}; give one that all nodes share; ask the site's support for it"
        ) from None
    return folder
