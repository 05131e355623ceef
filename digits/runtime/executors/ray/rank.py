"""Start and watch the supervisor of one worker, beside the program of a Ray job or in an actor on another node."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping

from digits.runtime.supervisor import OWNER_VARIABLE, owner_id

# Ignores SIGTERM until the supervisor handles it.
SHIELD = ["/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]


class Rank:
    """The supervisor of one worker. In a session of its own, it survives its owner, and then stops the task."""

    has_failed = False

    def __init__(self, command: list[str], variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [*SHIELD, *command],
            env={**variables, OWNER_VARIABLE: owner_id(os.getpid())},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self, seconds: float | None = None) -> int:
        return self._process.wait(seconds)

    def have_ended(self, seconds: float) -> bool:
        """Wait for the end for at most ``seconds``; return whether it has come."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(seconds)
        return self._process.returncode is not None

    def stop(self) -> None:
        self._process.terminate()
