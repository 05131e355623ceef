"""A real Slurm cluster of two nodes on this machine, on loopback only, without systemd, started by a test."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import psutil
import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd")
PACKAGES = "slurmctld slurmd slurm-client munge"
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 State=UNKNOWN"
)
PATIENCE_SECONDS = 60.0

# slurmd must be able to resume a job at once: credentials of the previous attempt expire within a second.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={controller}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdTimeout=15
MessageTimeout=5
KillWait=2
MinJobAge=300
SlurmdParameters=config_overrides
{extra}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing_programs() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [name for name in (*PROGRAMS, "sbatch", "scontrol") if shutil.which(name, path=path) is None]


class SlurmCluster:
    """The cluster, with its files in ``folder``. As a context, it is stopped at the end, with all of its jobs.

    Its nodes are ``n1``, ``n2`` and so on; each may use one of the ``cores`` of this machine, in turn, or all of them
    by default. ``environment`` contains the variables of a program that uses it.
    """

    def __init__(self, folder: Path, nodes: int = 2, cores: Sequence[int] = ()) -> None:
        self.folder, self._cores = folder, cores
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.processes: dict[str, psutil.Process] = {}
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir(parents=True, mode=0o700)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self._lost_ids, self._first_id = False, 1
        self._ports = dict(zip(("controller", *self.nodes), _free_ports(nodes + 1), strict=True))
        self.configure()

    def configure(self, extra: str = "") -> None:
        """Write the configuration with ``extra`` lines, which the controller reads at its start."""
        host = socket.gethostname().partition(".")[0]
        nodes = [NODE.format(name=name, host=host, port=self._ports[name]) for name in self.nodes]
        text = CONFIGURATION.format(
            folder=self.folder,
            host=host,
            user=getpass.getuser(),
            controller=self._ports["controller"],
            extra=extra,
            nodes="\n".join(nodes),
        )
        (self.folder / "slurm.conf").write_text(text)

    def __enter__(self) -> Self:
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "log", "seed")]
        self._start(
            "munged",
            "munged",
            "--force",
            *files,
            f"--pid-file={self.folder}/munged.pid",
            f"--socket={munge}/socket",
        )
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self.wait(lambda: self.states() == ["idle"] * len(self.nodes))
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.heal()
            self.cancel_all()
        finally:
            daemons = list(self.processes.values())
            for process in daemons:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            psutil.wait_procs(daemons, timeout=PATIENCE_SECONDS)
            self.end_reports()
        left = [process for process in self.all_processes() if process.is_running()]
        assert not left, f"the cluster left processes behind: {left}"

    def end_reports(self) -> None:
        """End the monitors of steps, which report an end every 19 seconds to a controller that is gone."""
        monitors = [process for process in self.all_processes() if process.name() == "slurmstepd"]
        for process in monitors:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(monitors, timeout=PATIENCE_SECONDS)

    # Daemons

    def start_controller(self) -> None:
        self._start("controller", "slurmctld", "-f", self.environment["SLURM_CONF"])
        self.wait(lambda: self.run("scontrol", "ping", check=False).count("is UP"))

    def start_node(self, name: str) -> None:
        number = self.nodes.index(name)
        cores = {self._cores[number % len(self._cores)]} if self._cores else None
        self._start(name, "slurmd", "-f", self.environment["SLURM_CONF"], "-N", name, cores=cores)

    def restart_controller(self, extra: str = "") -> None:
        """Restart the controller with other settings."""
        self.kill("controller", signal.SIGTERM)
        self.configure(extra)
        self.start_controller()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon ``name``: a node, ``controller`` or ``munged``."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=PATIENCE_SECONDS)
        self._lost_ids |= name == "controller" and number is signal.SIGKILL

    def kill_node(self, name: str) -> None:
        """Kill a node with everything that runs on it."""
        on_node = [process for process in self.all_processes() if _node_of(process) == name]
        steps = []
        for process in on_node:
            with contextlib.suppress(psutil.NoSuchProcess):
                steps += [parent for parent in process.parents() if parent.name() == "slurmstepd"]
        self.kill(name)
        for process in [*steps, *on_node]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def heal(self) -> None:
        """Start what is not running, and put drained nodes back into service."""
        if not self.is_running("controller"):
            self.start_controller()
        for name in self.nodes:
            if not self.is_running(name):
                self.start_node(name)
        for name in self.nodes:
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)

    def skip_lost_ids(self) -> None:
        """Give jobs new ids after the controller was killed: it forgot the last ones, which nodes refuse for a while."""
        if self._lost_ids:
            self._first_id += 1000
            self.restart_controller(f"FirstJobId={self._first_id}")
            self._lost_ids = False

    def is_running(self, name: str) -> bool:
        return name in self.processes and self.processes[name].is_running()

    # Commands

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def states(self) -> list[str]:
        """Return the states of the nodes."""
        return self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()

    def jobs(self, *options: str) -> list[str]:
        """Return the states of all unfinished jobs."""
        return self.run("squeue", "-h", "-o", "%T", *options).split()

    def cancel_all(self) -> None:
        """Cancel all jobs and wait until they are gone."""

        def are_gone() -> bool:
            if ids := set(self.run("squeue", "-h", "-o", "%F").split()):
                self.run("scancel", "--signal=KILL", "--full", *ids, check=False)
                self.run("scancel", *ids, check=False)
            return not self.jobs()

        self.wait(are_gone)

    def wait(self, question: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not question():
            assert time.monotonic() < deadline, f"timed out; see {self.folder}\n{self.describe()}"
            time.sleep(0.05)

    def all_processes(self) -> Iterator[psutil.Process]:
        """Yield the processes that use this cluster: its daemons and steps, and those of jobs."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    yield psutil.Process(pid)

    def describe(self) -> str:
        """Return the queue, the nodes, and all processes with what they wait for, to find out why something hangs."""
        queue = ["squeue", "-t", "all", "-o", "%i %j %T %r %N %S %k"]
        parts = []
        for command in (queue, ["scontrol", "show", "job"], ["sinfo", "-N", "-l"]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                parts.append(self.run(*command, check=False))
        for process in self.all_processes():
            with contextlib.suppress(OSError, psutil.Error):
                words = " ".join(process.cmdline())[:300]
                stack = Path(f"/proc/{process.pid}/stack").read_text().replace("\n", " ")
                parts.append(f"{process.pid} of {process.ppid()}, {process.status()}: {words}\n    {stack}")
        return "\n".join(parts)

    def _start(self, name: str, program: str, *arguments: str, cores: set[int] | None = None) -> None:
        """Start a daemon on ``cores``, which detaches itself, and wait until it has written its process id."""
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        assert path is not None
        pid_file = self.folder / f"{name}.pid"
        pid_file.unlink(missing_ok=True)
        with open(self.folder / f"{name}.log", "ab") as log:
            subprocess.run(
                [*(["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []), path, *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE_SECONDS,
                check=True,
            )
        self.wait(lambda: pid_file.exists() and pid_file.read_text().strip())
        self.processes[name] = psutil.Process(int(pid_file.read_text()))


def _node_of(process: psutil.Process) -> str | None:
    """Return the node on which a program of a job runs; None for other processes."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("SLURMD_NODENAME")
    return None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def open_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start a cluster for tests; skip them, saying why, where Slurm is not installed."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): on Debian, apt-get install {PACKAGES}")
    with SlurmCluster(folder) as cluster:
        yield cluster
