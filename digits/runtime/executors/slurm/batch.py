"""The program of a Slurm job: it runs one task on the job's nodes, and queues it again after an interruption.

A standalone program that requires only the standard library. `SlurmExecutor` submits a script that starts it on the
first node:

    python -I -S batch.py FOLDER TOKEN WORKERS PROGRAM ARGUMENT…

It starts one supervisor per node with ``srun`` (see `digits.runtime.supervisor`), waits for all of them, and combines
their records: ``exit.json`` is written only when the run is over. A run that is interrupted, by a preemption, its time
limit or the loss of a node, is queued again instead, and continues from its resume point, unless the user has asked it
to stop or `MAX_FRUITLESS` attempts in a row made no progress.

A job whose token is not that of the folder has been replaced by a newer one, and does nothing. So does one whose run is
over: after a crash, Slurm's controller may start a job that has already ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

SUBMISSION_FILE = "slurm.json"
ATTEMPT_FILE = "slurm_attempt.json"
# Contains the number of the run that the user has asked to stop.
STOP_FILE = "stop"
# What Slurm and its commands print, for users.
LOG_FILE = "slurm.log"
EXIT_FILE = "exit.json"
RUN_VARIABLE = "DIGITS_RUN"
# The same as in `digits.core.task`.
RESTARTED_VARIABLE = "DIGITS_RESTARTED"
WORKERS_VARIABLE = "DIGITS_WORKERS"
# Exit code of a process whose task another process is working on, such as one on a node that Slurm considers lost.
EXIT_BUSY = 75
# Attempts in a row that may end without a new resume point.
MAX_FRUITLESS = 5
# Slurm has this long to end a job that is queued again, or to answer that request.
REQUEUE_SECONDS = 600.0
RETRY_SECONDS = 2.0

Record = dict[str, Any]

SUPERVISOR = os.path.abspath(f"{__file__}/../../../supervisor.py")
# Numbers the node, and becomes the supervisor.
_ON_NODE = 'export DIGITS_NODE="$SLURM_PROCID"; exec "$@"'


class Job:
    """One attempt of the run in ``folder`` to execute ``program`` on ``workers`` nodes."""

    def __init__(self, folder: str, token: str, workers: int, program: list[str]) -> None:
        self._folder = folder
        self._token = token
        self._workers = workers
        self._program = program
        self._id = os.environ["SLURM_JOB_ID"]
        self._run = int(os.environ[RUN_VARIABLE])
        self._began = time.monotonic()
        self._fruitless = 0
        self._points: list[str] = []

    def main(self) -> int:
        """Run the task; return the exit code of the job."""
        if self._read(SUBMISSION_FILE).get("token") != self._token or self._is_over():
            return 0
        if self._is_to_stop():
            return self._end(stopped=True)
        before = self._read(ATTEMPT_FILE)
        is_restarted = before.get("run") == self._run
        if is_restarted:
            self._fruitless, self._points = before["fruitless"], before["points"]
            os.environ[RESTARTED_VARIABLE] = "1"
            if before["phase"] == "running":  # and could not record its end, as when its node was lost
                self._count_attempt()
        if self._fruitless >= MAX_FRUITLESS:
            return self._give_up()
        self._points = self._resume_points()
        self._save("running")
        for name in os.listdir(self._folder):
            if name.startswith("exit."):
                os.unlink(os.path.join(self._folder, name))
        self._run_step()
        return self._conclude(is_restarted)

    def _run_step(self) -> None:
        count = str(self._workers)
        step = ["srun", "--kill-on-bad-exit=1", "--export=ALL", "--input=none", "--mpi=none"]
        step += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):  # which srun does not inherit
            step.append(f"--cpus-per-task={cpus}")
        if self._workers > 1:
            os.environ[WORKERS_VARIABLE] = count
        supervisor = [sys.executable, "-I", "-S", SUPERVISOR, self._folder, "--"]
        code = subprocess.call([*step, "/bin/sh", "-c", _ON_NODE, "sh", *supervisor, *self._program])
        say(f"srun ended with code {code}")

    def _conclude(self, is_restarted: bool) -> int:
        """Record the end of the run, or queue it again."""
        found = [self._read(f"exit.{node}.json") for node in range(self._workers)]
        records = [
            {**record, "rank": node if self._workers > 1 else None}
            for node, record in enumerate(found)
            if record.get("run") == self._run
        ]
        failed = [record for record in records if record["code"] != 0]
        if len(records) == self._workers and not failed:
            return self._end(records[0])
        by_itself = [record for record in failed if not record["stopped"]]
        first = min(by_itself or failed, key=lambda record: float(record["at"]), default=None)
        if self._is_to_stop():
            return self._end(first, stopped=True)
        was_lost = len(records) < self._workers or (
            is_restarted and all(r["code"] == EXIT_BUSY for r in by_itself)
        )
        if first and by_itself and not was_lost:
            return self._end(first)
        self._count_attempt()
        return self._give_up() if self._fruitless >= MAX_FRUITLESS else self._requeue(first)

    def _requeue(self, record: Record | None) -> int:
        self._save("interrupted")
        deadline = time.monotonic() + REQUEUE_SECONDS
        while True:
            state = scontrol("show", "job", self._id, "-o")[1].partition("JobState=")[2].split(" ")[0]
            if state == "CANCELLED":
                message = "The job was canceled in Slurm, not here."
                return self._end(record, stopped=True, failure=failure(message, "Resume it to run it again."))
            if state in ("PENDING", "REQUEUED"):
                break  # Slurm queues it again by itself
            code, text = scontrol("requeue", self._id)
            if code == 0:
                say("queued again after an interruption")
                break
            if time.monotonic() > deadline or not ("contact" in text or "timed out" in text):
                message = "The task was interrupted, and Slurm refused to queue it again."
                return self._end(
                    record, failure=failure(message, f"{text.strip()}\nResume it to run it again.")
                )
            time.sleep(RETRY_SECONDS)
        time.sleep(REQUEUE_SECONDS)  # until Slurm ends this program
        return 1

    def _give_up(self) -> int:
        message = f"The task was interrupted {MAX_FRUITLESS} times in a row before it could make progress."
        hint = (
            f"The end of {LOG_FILE} in its folder may show why. Request a longer time limit, or a partition without "
            "preemption, then resume it."
        )
        return self._end(failure=failure(message, hint))

    def _count_attempt(self) -> None:
        self._fruitless = self._fruitless + 1 if self._resume_points() == self._points else 0

    def _resume_points(self) -> list[str]:
        names = os.listdir(os.path.dirname(self._folder))
        return sorted(name for name in names if name.endswith(".resume.json"))

    def _end(self, record: Record | None = None, **changes: Any) -> int:
        """Write ``exit.json``, which ends the run; return the exit code of the job."""
        unknown = {"code": None, "signal": None, "seconds": time.monotonic() - self._began}
        body = {**unknown, **(record or {}), "at": time.time(), "run": self._run, **changes}
        self._write(EXIT_FILE, body)
        return 0 if body["code"] == 0 or body.get("stopped") else 1

    def _is_over(self) -> bool:
        return bool(self._read(EXIT_FILE).get("run") == self._run)

    def _is_to_stop(self) -> bool:
        try:
            with open(os.path.join(self._folder, STOP_FILE)) as file:
                return file.read() == str(self._run)
        except OSError:
            return False

    def _save(self, phase: str) -> None:
        body = {"run": self._run, "token": self._token, "phase": phase}
        self._write(ATTEMPT_FILE, {**body, "fruitless": self._fruitless, "points": self._points})

    def _read(self, name: str) -> Record:
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                body = json.load(file)
        except (OSError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    def _write(self, name: str, body: Record) -> None:
        temporary = os.path.join(self._folder, f"{name}.{self._id}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(self._folder, name))


def failure(message: str, hint: str) -> dict[str, str]:
    return {"message": message, "hint": hint}


def scontrol(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of ``scontrol``."""
    done = subprocess.run(["scontrol", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def say(text: str) -> None:
    """Print a line to the log of the job."""
    with contextlib.suppress(OSError):  # a full disk
        sys.stdout.write(f"digits: {text}\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run the job that the arguments describe; return its exit code."""
    # Slurm signals the supervisors as well, which stop the task; this program records how it ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    folder, token, workers, *program = arguments
    return Job(folder, token, int(workers), program).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
