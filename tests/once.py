"""Create a folder once for all processes of a test run."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def run_folder(factory: pytest.TempPathFactory, worker: str) -> Path:
    """Return the folder shared by all processes of this run; ``worker`` is this process's name, or ``master``."""
    folder = factory.getbasetemp()
    return folder if worker == "master" else folder.parent


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return ``folder``, filled by ``make`` unless a process of this run has done so."""
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not folder.exists():
                unfinished = folder.with_name(f"{folder.name}.unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(folder)
        finally:
            # Closing the file does not unlock it while a forked child has it open.
            fcntl.flock(lock, fcntl.LOCK_UN)
    return folder
