"""Run tasks as processes of this machine, each under a supervisor that outlives the server.

The two sides share only the task's folder: see `digits.runtime.supervisor`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from digits.core.machine.environment import TASK_VARIABLES, for_program, inherited
from digits.core.task import WORKERS_VARIABLE, Handle
from digits.runtime import supervisor, task_output
from digits.runtime.executors import processes
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, Placement
from digits.runtime.executors.exit_record import last_change, read_exit
from digits.runtime.executors.fork_server import FORK_SECONDS, ForkServer
from digits.runtime.executors.processes import Supervisor

log = logging.getLogger(__name__)

# -P: import installed modules only, not those in the current folder.
WORKER_PROGRAM = (sys.executable, "-P", "-m", "digits.worker")


class LocalExecutor:
    """Runs tasks as processes of this machine.

    With ``standby``, a fork server keeps TensorFlow imported, so that tasks start
    immediately; while it is unavailable, they start in a fresh interpreter.
    ``program`` is the command of a worker; the task's folder is added to it.
    ``environment`` contains the environment variables of tasks, by default those that `child_environment`
    selects from the ones of this process and those named by ``pass_env``. A fork server that does not start
    a task within ``fork_seconds`` is replaced. The ``ledger`` contains the GPUs of this machine; the default one has no
    GPUs and no limits.

    A gang is a supervisor with one process for each rank, in fresh interpreters. The GPUs are divided among them.
    """

    poll_seconds = 0.01
    stop_seconds = 10.0

    def __init__(
        self,
        ledger: Ledger | None = None,
        *,
        standby: bool = True,
        log_file: Path | None = None,
        program: Sequence[str] = WORKER_PROGRAM,
        pass_env: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        fork_seconds: float = FORK_SECONDS,
    ) -> None:
        self.ledger: Ledger = ledger or DeviceLedger({})
        self._program = tuple(program)
        self._environment = environment or child_environment(os.environ, pass_env)
        self._fork_server = ForkServer(log_file, self._environment, fork_seconds) if standby else None
        self._children: set[int] = set()

    @property
    def fork_server_pid(self) -> int | None:
        """The process id of the fork server while it is running."""
        return self._fork_server.pid if self._fork_server else None

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        for path in folder.glob(f"{supervisor.EXIT_FILE}*"):
            path.unlink(missing_ok=True)
        # Reserve it before the process starts, so that a full disk is reported now rather than at the end.
        os.close(supervisor.reserve_exit(str(folder)))
        environment = {
            **self._environment,
            **devices_environment(placement.devices),
            processes.TASK_VARIABLE: str(folder),
            supervisor.RUN_VARIABLE: str(run),
            supervisor.OWNER_VARIABLE: supervisor.owner_id(os.getpid()) if owned else "",
        }
        workers = placement.request.compute.workers
        if workers > 1:
            environment[WORKERS_VARIABLE] = str(workers)
        pid = self._fork_server.fork(folder, environment) if self._fork_server and workers == 1 else None
        if pid is None:
            pid = self._start_fresh(folder, environment)
        return Supervisor.of_process(pid, run).handle

    def find(self, folder: Path, run: int) -> Handle | None:
        pid = processes.supervisor_of(folder)
        # Only the supervisor's record identifies a run that has ended.
        if pid is None and not read_exit(folder, run):
            return None
        return Supervisor.of_process(pid or 0, run).handle

    def is_alive(self, handle: Handle) -> bool:
        return Supervisor.of_handle(handle).is_alive

    def poll(self, folder: Path, handle: Handle | None) -> Exit | None:
        self._reap()
        known = Supervisor.of_handle(handle)
        try:
            # A task can forge its exit record, so do not read it while any of its processes runs.
            if known.is_alive or not self._clear(folder, [known]):
                return None
            return read_exit(folder, known.run) or Exit(lost=True, at=last_change(folder))
        except OSError as error:
            log.warning("could not determine whether the task in %s is running: %s", folder, error)
            return None

    def stop(self, handle: Handle) -> None:
        known = Supervisor.of_handle(handle)
        if known.is_alive:
            for number in (signal.SIGTERM, signal.SIGCONT):  # the task may have stopped its supervisor
                with contextlib.suppress(OSError):
                    os.kill(known.pid, number)

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        return self._clear(folder, map(Supervisor.of_handle, handles))

    def _clear(self, folder: Path, supervisors: Iterable[Supervisor]) -> bool:
        left = list(processes.processes_in(folder, supervisors))
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._reap()
        return not left

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        return task_output.read(folder, after, limit)

    def warm_up(self) -> None:
        """Start the fork server now, in the background."""
        if self._fork_server:
            self._fork_server.start()

    def is_warm(self) -> bool:
        """Return whether the fork server is running and ready."""
        return bool(self._fork_server and self._fork_server.is_ready)

    def close(self) -> None:
        """Stop the fork server. Tasks keep running."""
        if self._fork_server:
            self._fork_server.close()

    def _start_fresh(self, folder: Path, environment: Mapping[str, str]) -> int:
        program = [
            sys.executable,
            "-I",
            "-S",
            supervisor.__file__,
            str(folder),
            "--",
            *self._program,
            str(folder),
        ]
        to_null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        # Not subprocess.Popen: this process is to outlive the object that started it.
        # Block SIGTERM until the supervisor can handle it, so that an early stop does not kill it.
        child = os.posix_spawn(
            program[0],
            program,
            dict(environment),
            file_actions=to_null,
            setsid=True,
            setsigmask=[signal.SIGTERM],
        )
        self._children.add(child)
        try:
            processes.wait_until_identifiable(child)
        except OSError:
            os.kill(child, signal.SIGKILL)  # nothing else could find it
            raise
        return child

    def _reap(self) -> None:
        for child in list(self._children):
            try:
                gone = os.waitpid(child, os.WNOHANG)[0] == child
            except ChildProcessError:
                gone = True  # gevent has already reaped it
            if gone:
                self._children.discard(child)


def child_environment(environment: Mapping[str, str], pass_env: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment variables that a task inherits: no token, password or key of the server.

    ``pass_env`` lists variables to keep in addition to `digits.core.machine.environment.TASK_VARIABLES`.
    """
    kept = inherited(environment, (*TASK_VARIABLES, *pass_env))
    return {
        **for_program(kept),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONNOUSERSITE": "1",
        "TF_CPP_MIN_LOG_LEVEL": kept.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def devices_environment(devices: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that restrict a task to ``devices``: ``cpu``, or GPU indexes."""
    # An empty value hides GPUs from a task that runs on the CPU.
    gpus = ",".join(device for device in devices if device != "cpu")
    # The driver numbers GPUs by bus; by default, CUDA puts the fastest first.
    return {"CUDA_VISIBLE_DEVICES": gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
