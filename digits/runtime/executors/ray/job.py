"""The program of a Ray job (see `digits.runtime.executors.node_job`).

    python -P -m digits.runtime.executors.ray.job FOLDER TOKEN WORKERS PROGRAM ARGUMENT…

With one worker, it runs a supervisor beside itself; with several, `gang` starts one on a node for each. It stops them
itself when the user asks for it, because Ray would kill them after three seconds, and when the time limit is over, of
which Ray knows nothing. After an interruption, it ends, and the server submits it again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any, Protocol

from digits.runtime.executors.node_job import NODE_VARIABLE, NodeJob, Record, failure, say
from digits.runtime.supervisor import OWNER_VARIABLE, owner_id

SUBMISSION_FILE = "ray.json"
# What Ray and this program print, for users.
LOG_FILE = "ray.log"
POLL_SECONDS = 0.5
# Ignores SIGTERM until the supervisor handles it.
SHIELD = ["/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]


class Ranks(Protocol):
    """The supervisors of a run."""

    has_failed: bool

    def have_ended(self, seconds: float) -> bool:
        """Wait for their end for at most ``seconds``; return whether all have ended."""

    def stop(self) -> None:
        """Ask all supervisors to stop their ranks."""


class OwnRank:
    """The supervisor of a run with one worker, on this node."""

    has_failed = False

    def __init__(self, command: list[str]) -> None:
        variables = {**os.environ, NODE_VARIABLE: "0", OWNER_VARIABLE: owner_id(os.getpid())}
        # In a session of its own, it survives the end of this program, and then stops the task.
        self._process = subprocess.Popen(
            [*SHIELD, *command], env=variables, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def have_ended(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        self._process.terminate()


class Job(NodeJob):
    """One attempt of a run as a Ray job."""

    title = "Ray"
    submission_file = SUBMISSION_FILE
    log_file = LOG_FILE
    advice = "Request a longer time limit"

    def __init__(self, folder: str, token: str, workers: int, program: list[str]) -> None:
        super().__init__(folder, token, workers, program)
        self._is_canceled = False
        signal.signal(signal.SIGTERM, self._cancel)

    def _cancel(self, *_: object) -> None:
        self._is_canceled = True

    def _run_supervisors(self, command: list[str]) -> None:
        if self._workers == 1:
            self._save("running")
            self._watch(OwnRank(command))
            return
        try:
            from digits.runtime.executors.ray.gang import Gang
        except ImportError as error:
            hint = f"Install Ray, in the version of the cluster, for {sys.executable}."
            raise SystemExit(
                self._end(failure=failure(f"Several workers need the package of Ray: {error}.", hint))
            ) from error

        self._save("waiting")
        resources: dict[str, Any] = self._read(SUBMISSION_FILE)["resources"]
        with Gang(self._workers, resources) as gang:
            while not gang.has_nodes(POLL_SECONDS):
                if self._is_to_stop() or self._is_canceled:
                    return
            self._save("running")
            gang.start([*SHIELD, *command])
            self._watch(gang)

    def _watch(self, ranks: Ranks) -> None:
        limit = self._read(SUBMISSION_FILE).get("seconds")
        deadline = time.monotonic() + limit if limit else float("inf")
        is_stopping = False
        while not ranks.have_ended(POLL_SECONDS):
            is_late = time.monotonic() > deadline
            if not is_stopping and (ranks.has_failed or is_late or self._is_canceled or self._is_to_stop()):
                is_stopping = True
                say("the time limit is over" if is_late else "stopping")
                ranks.stop()

    def _start_again(self, record: Record | None) -> int:
        if self._is_canceled:
            return self._end_canceled(record)
        self._save("interrupted")
        say("interrupted")
        return 1


def main(arguments: list[str]) -> int:
    """Run the job that the arguments describe; return its exit code."""
    folder, token, workers, *program = arguments
    return Job(folder, token, int(workers), program).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
