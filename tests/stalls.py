"""Measure how long test servers block their event loops, in this process and from logs."""

from __future__ import annotations

import re
from pathlib import Path

from digits.web.loop_watch import LoopWatch

# Measured in CPU time, so that load on the machine does not fail a test.
HANG_SECONDS = 5.0
_LOGGED = re.compile(
    r"event loop blocked for [0-9.]+ s \((?P<seconds>[0-9.]+) s of CPU time\) by (?P<label>.*)"
)


class Stalls:
    """The longest CPU time for each label; ``watch`` measures this process."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.watch = LoopWatch(self.note)

    def note(self, label: str, seconds: float, cpu_seconds: float) -> None:
        self.seconds[label] = max(cpu_seconds, self.seconds.get(label, 0.0))

    def merge(self, seconds: dict[str, float]) -> None:
        """Add the measurements of another test process."""
        for label, cpu_seconds in seconds.items():
            self.note(label, 0.0, cpu_seconds)

    def read_logs(self, folder: Path) -> None:
        """Add the log entries below ``folder`` of servers that ran as separate programs."""
        for log in folder.rglob("*.log*"):
            if log.is_file():
                for found in _LOGGED.finditer(log.read_text(errors="replace")):
                    self.note(found["label"], 0.0, float(found["seconds"]))

    def summary(self) -> str:
        label, seconds = max(self.seconds.items(), key=lambda item: item[1], default=("nothing", 0.0))
        return f"longest block of the event loop: {seconds:.2f} s of CPU time by {label}"

    def hangs(self) -> dict[str, float]:
        return {label: seconds for label, seconds in self.seconds.items() if seconds > HANG_SECONDS}


STALLS = Stalls()
