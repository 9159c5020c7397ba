"""A real Slurm of a few nodes on this machine, in a folder of its own: Debian's slurmd can be started once for each node."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

PARTS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
DefMemPerCPU=1000
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN
"""


def missing():
    """What of Slurm is not on this machine, or why it cannot be started."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    lacking = [name for name in PARTS if shutil.which(name, path=path) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install Debian's packages slurm-wlm, slurmctld, slurmd, slurm-client and munge"
    return None if os.geteuid() == 0 else "a Slurm of one's own can only be started by root"


@contextlib.contextmanager
def running(folder, nodes=3):
    """Start Slurm with nodes n1, n2, ... of 2 cores each, and set SLURM_CONF; stop it in the end."""
    first = _free_ports(nodes + 1)
    lines = "\n".join(
        f"NodeName=n{k} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={first + k} CPUs=2 RealMemory=8000 State=UNKNOWN"
        for k in range(1, nodes + 1)
    )
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=_host(), control=first, folder=folder, nodes=lines))
    _start_munge()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(conf)
    daemons = [subprocess.Popen(["/usr/sbin/slurmctld", "-D", "-i", "-f", conf], stderr=subprocess.DEVNULL)]
    daemons += [
        subprocess.Popen(["/usr/sbin/slurmd", "-D", "-N", f"n{k}", "-f", conf], stderr=subprocess.DEVNULL)
        for k in range(1, nodes + 1)
    ]
    try:
        _until(lambda: command("sinfo", "--noheader", "--partition=debug", "--format=%D %t").strip() == f"{nodes} idle", folder)
        yield
    finally:
        _stop(daemons)
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def _stop(daemons):
    """End jobs first: a slurmd that is told to stop while one of its jobs is ending may wait for it for minutes."""
    command("scancel", "--user=root")
    with contextlib.suppress(TimeoutError):
        _until(lambda: not command("squeue", "--noheader"), seconds=15)
    for daemon in daemons:
        daemon.terminate()
    for daemon in daemons:
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def command(*words):
    """What a command of Slurm prints."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout


def _host():
    return socket.gethostname().split(".")[0]


def _free_ports(count):
    """The first of some ports in a row that nobody uses."""
    for first in range(17000, 30000, 50):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


def _start_munge():
    """The daemon that Slurm's parts know each other by; it may run already."""
    if subprocess.run(["munge", "-n"], capture_output=True).returncode == 0:
        return
    for place in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        subprocess.run(["install", "-d", "-o", "munge", "-g", "munge", "-m", "0755", place], check=True)
    subprocess.run(["runuser", "-u", "munge", "--", "/usr/sbin/munged"], check=True, capture_output=True)
    _until(lambda: subprocess.run(["munge", "-n"], capture_output=True).returncode == 0)


def _until(true, folder=None, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            logs = "\n".join(file.read_text()[-2000:] for file in folder.glob("*.log")) if folder else ""
            raise TimeoutError(f"Slurm is not ready\n{logs}")
        time.sleep(0.1)
