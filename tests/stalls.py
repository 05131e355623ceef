"""How long the servers of the tests held their event loops: measured in this process, and read from logs."""

from __future__ import annotations

import re
import time
from pathlib import Path

from digits.loop_watch import LoopWatch

HANG_SECONDS = 5.0
_LOGGED = re.compile(r"event loop held for (?P<seconds>[0-9.]+) s by (?P<label>.*)")


class Stalls:
    """The longest time for each label. ``watch`` measures this process.

    Here it is CPU time: a blocking wait, which other greenlets of a server would not notice, blocks
    all of a test, because the standard library is not patched in tests.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.watch = LoopWatch(self.note, clock=time.thread_time)

    def note(self, label: str, seconds: float) -> None:
        self.seconds[label] = max(seconds, self.seconds.get(label, 0.0))

    def read_logs(self, folder: Path) -> None:
        """Add what the servers that ran as programs logged below ``folder``."""
        for log in folder.rglob("*.log*"):
            if log.is_file():
                for found in _LOGGED.finditer(log.read_text(errors="replace")):
                    self.note(found["label"], float(found["seconds"]))

    def summary(self) -> str:
        label, seconds = max(self.seconds.items(), key=lambda item: item[1], default=("nothing", 0.0))
        return f"longest hold of an event loop: {seconds:.2f} s by {label}"

    def hangs(self) -> dict[str, float]:
        return {label: seconds for label, seconds in self.seconds.items() if seconds > HANG_SECONDS}


STALLS = Stalls()
