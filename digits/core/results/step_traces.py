"""Traces of training steps: files in Chrome's trace format in a job's folder, named as in DIGITS 6.

A trace lists the operations of one step: the threads of the CPU and the streams of the GPUs that ran them, and when.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_NAME = re.compile(r"timeline_([0-9]{1,18})\.json", re.ASCII)


def file_name(step: int) -> str:
    """Return the name of the file with the trace of ``step``, counted from 1."""
    return f"timeline_{step}.json"


def steps_in(job_folder: Path) -> list[int]:
    """Return the steps that have a trace, in order."""
    with contextlib.suppress(OSError), os.scandir(job_folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _NAME.fullmatch(entry.name)))
    return []
