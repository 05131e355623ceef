"""The result of a preflight as text, and the name of the picture of its first batch, as of each training's."""

from __future__ import annotations

from typing import Any

PICTURE_FILE = "batch.png"


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
