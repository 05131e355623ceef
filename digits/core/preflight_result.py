"""What the one step before a training has shown, kept in the folder of the training."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, TypedDict

from digits.core.files import UnreadableFile, read_bytes, read_json, write_bytes, write_json
from digits.core.schema import JsonObject

RESULT_FILE = "preflight.json"
PICTURE_FILE = "batch.png"


class Kept(TypedDict):
    """The outcome of a preflight: its ``result`` as JSON, and its warnings."""

    result: JsonObject
    warnings: list[str]


def save(folder: Path, result: dict[str, Any], warnings: list[str]) -> None:
    """Write what the step in ``folder`` has shown; ``result`` is JSON already."""
    write_json(folder / RESULT_FILE, {"result": result, "warnings": warnings})


def keep(folder: Path, job_folder: Path) -> None:
    """Copy what the step in ``folder`` has shown to the training that it was taken for."""
    for name in (RESULT_FILE, PICTURE_FILE):
        with contextlib.suppress(UnreadableFile):
            write_bytes(job_folder / name, read_bytes(folder / name, below=folder))


def kept(job_folder: Path) -> Kept | None:
    """The ``result`` and ``warnings`` of the step before this training; None if there was none."""
    try:
        return read_json(job_folder / RESULT_FILE, Kept)
    except UnreadableFile:
        return None


def lines(result: dict[str, Any]) -> list[str]:
    """What the step has shown, for a terminal."""
    said = [str(result["verdict"])]
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
    if "layers" in result:
        said.append(_ROW.format("layer", "shape", "min", "mean", "max", "std", "zeros"))
        said += map(_layer, result["layers"])
    return said


_ROW = "{:<32} {:<20} {:>10} {:>10} {:>10} {:>10} {:>6}"


def _layer(row: dict[str, Any]) -> str:
    numbers = (f"{row[name]:.4g}" for name in ("min", "mean", "max", "std"))
    return _ROW.format(row["name"], "×".join(map(str, row["shape"])), *numbers, f"{row['zero_fraction']:.0%}")
