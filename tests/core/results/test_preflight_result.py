"""Results of a preflight as text."""

from __future__ import annotations

from digits.core.results import preflight_result


def test_terminal_output() -> None:
    result = {
        "verdict": "The loss is finite.",
        "memory_bytes": 5e8,
        "gpu_memory_bytes": None,
        "parameters": 1234,
    }
    lines = preflight_result.format_lines(result)
    assert lines == ["The loss is finite.", "memory             500 MB", "parameters         1,234"]
    timed = {
        "seconds_per_step": 0.01,
        "seconds_per_epoch": 10.0,
        "seconds_total": 50.0,
        "gpu_memory_bytes": 2e9,
    }
    assert preflight_result.format_lines({**result, **timed})[1:5] == [
        "time per step      0.01 s",
        "time per epoch     10 s",
        "estimated total    50 s",
        "GPU memory         2000 MB",
    ]
