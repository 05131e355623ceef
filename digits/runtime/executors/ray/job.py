"""The program of a Ray job (see `digits.runtime.executors.node_job`).

    python -P -m digits.runtime.executors.ray.job FOLDER TOKEN WORKERS SECONDS RESOURCES PROGRAM ARGUMENT…

With one worker, it runs a supervisor beside itself; with several, `gang` starts one on a node for each, with the
``RESOURCES`` in JSON. It stops them itself when the user asks for it, because Ray would kill them after three seconds,
and after ``SECONDS``, unless that is 0: Ray has no time limit. After an interruption, the server submits it again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from digits.runtime.executors.node_job import NODE_VARIABLE, NodeJob, Record, failure, say
from digits.runtime.executors.ray.rank import Rank

if TYPE_CHECKING:
    from digits.runtime.executors.ray.gang import Gang

POLL_SECONDS = 0.5


class Job(NodeJob):
    """One attempt of a run as a Ray job."""

    title = "Ray"
    advice = "Request a longer time limit"

    def __init__(
        self, folder: str, token: str, workers: str, seconds: str, resources: str, *program: str
    ) -> None:
        super().__init__(folder, token, workers, *program)
        self._seconds = float(seconds) or float("inf")
        self._resources: dict[str, float] = json.loads(resources)
        self._is_canceled = False
        signal.signal(signal.SIGTERM, self._cancel)

    def _cancel(self, *_: object) -> None:
        self._is_canceled = True

    def _run_supervisors(self, command: list[str]) -> None:
        if self._workers == 1:
            self._save("running")
            self._watch(Rank(command, {**os.environ, NODE_VARIABLE: "0"}))
            return
        try:
            from digits.runtime.executors.ray.gang import Gang
        except ImportError as error:
            message = f"Several workers need the package of Ray: {error}."
            hint = f"Install Ray, in the version of the cluster, for {sys.executable}."
            raise SystemExit(self._end(failure=failure(message, hint))) from error

        self._save("waiting")
        with Gang(self._workers, self._resources) as gang:
            while not gang.has_nodes(POLL_SECONDS):
                if self._is_to_stop() or self._is_canceled:
                    return
            self._save("running")
            gang.start(command)
            self._watch(gang)

    def _watch(self, ranks: Rank | Gang) -> None:
        deadline = time.monotonic() + self._seconds
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


if __name__ == "__main__":
    sys.exit(Job(*sys.argv[1:]).main())
