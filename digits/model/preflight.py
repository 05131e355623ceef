"""What the one step before a training has shown, kept in the folder of the training."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from digits.files import UnreadableFile, read_json, write_json

RESULT_FILE = "preflight.json"
PICTURE_FILE = "batch.png"


def save(folder: Path, result: dict[str, Any], warnings: list[str]) -> None:
    """Write what the step in ``folder`` has shown; ``result`` is JSON already."""
    write_json(folder / RESULT_FILE, {"result": result, "warnings": warnings})


def keep(folder: Path, job_folder: Path) -> None:
    """Copy what the step in ``folder`` has shown to the training that it was taken for."""
    for name in (RESULT_FILE, PICTURE_FILE):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / name, job_folder / name)


def kept(job_folder: Path) -> dict[str, Any] | None:
    """The ``result`` and ``warnings`` of the step before this training; None if there was none."""
    try:
        found = read_json(job_folder / RESULT_FILE)
        return found if isinstance(found["result"], dict) else None
    except (UnreadableFile, KeyError, TypeError):
        return None
