"""The result of a preflight, stored in the folder of the training it checked."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, TypedDict

from digits.core.files import UnreadableFile, read_bytes, read_json, write_bytes, write_json
from digits.core.schema import JsonObject

RESULT_FILE = "preflight.json"
PICTURE_FILE = "batch.png"


class SavedResult(TypedDict):
    """The outcome of a preflight: its ``result`` as JSON, and its warnings."""

    result: JsonObject
    warnings: list[str]


def save(folder: Path, result: dict[str, Any], warnings: list[str]) -> None:
    """Save the result and the warnings of the preflight in ``folder``; ``result`` must be JSON."""
    write_json(folder / RESULT_FILE, {"result": result, "warnings": warnings})


def copy_to_job(folder: Path, job_folder: Path) -> None:
    """Copy the result of the preflight in ``folder`` to the training's ``job_folder``."""
    for name in (RESULT_FILE, PICTURE_FILE):
        with contextlib.suppress(UnreadableFile):
            write_bytes(job_folder / name, read_bytes(folder / name, below=folder))


def load(job_folder: Path) -> SavedResult | None:
    """Return the result of the preflight of this training; None if there is none."""
    try:
        return read_json(job_folder / RESULT_FILE, SavedResult)
    except UnreadableFile:
        return None


def format_lines(result: dict[str, Any]) -> list[str]:
    """Format a ``result`` for a terminal, as lines of text."""
    said = [f"{result['verdict']} {result.get('advice', '')}".strip()]
    if "seconds_per_epoch" in result:
        said += [
            f"time per step      {result['seconds_per_step']:.3g} s",
            f"time per epoch     {result['seconds_per_epoch']:.3g} s",
            f"estimated total    {result['seconds_total']:.3g} s",
        ]
    gpu = result["gpu_memory_bytes"]
    memory = result["memory_bytes"] if gpu is None else gpu
    said.append(f"{'memory' if gpu is None else 'GPU memory':19}{memory / 1e6:.0f} MB")
    said.append(f"parameters         {result['parameters']:,}")
    return said
