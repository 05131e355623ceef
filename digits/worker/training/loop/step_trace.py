"""Convert profiles of TensorFlow to traces that browsers can display."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from digits.core import step_traces
from digits.core.files import write_bytes

# The longest operations of a step; the others are too short to see. About 2 MB.
MAX_OPERATIONS = 20_000
MAX_NAME_CHARACTERS = 200
# Older traces are deleted.
MAX_TRACES = 100


def save(profile: Path, job_folder: Path, step: int) -> None:
    """Write the trace of ``step`` from the file ``profile``, and delete the oldest traces if there are too many.

    Raises OSError, and ValueError if the profile is damaged.
    """
    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(profile.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{profile.name} is damaged") from error
    write_bytes(job_folder / step_traces.file_name(step), msgspec.json.encode(chrome_trace(space)))
    for old in step_traces.steps_in(job_folder)[:-MAX_TRACES]:
        (job_folder / step_traces.file_name(old)).unlink(missing_ok=True)


def chrome_trace(space: Any) -> dict[str, Any]:
    """Return an ``XSpace`` in Chrome's trace format: times in microseconds since the first operation."""
    operations = heapq.nlargest(MAX_OPERATIONS, _operations(space), key=lambda operation: operation["dur"])
    operations.sort(key=lambda operation: operation["ts"])
    began = operations[0]["ts"] if operations else 0.0
    for operation in operations:
        operation["ts"] = round(operation["ts"] - began, 3)
    used = {(operation["pid"], operation["tid"]) for operation in operations}
    return {"displayTimeUnit": "ms", "traceEvents": [*_names(space, used), *operations]}


def _operations(space: Any) -> Iterator[dict[str, Any]]:
    for pid, plane in enumerate(space.planes):
        names = {
            number: (item.display_name or item.name)[:MAX_NAME_CHARACTERS]
            for number, item in plane.event_metadata.items()
        }
        for tid, line in enumerate(plane.lines):
            for event in line.events:
                yield {
                    "ph": "X",
                    "name": names.get(event.metadata_id, ""),
                    "pid": pid,
                    "tid": tid,
                    "ts": line.timestamp_ns / 1e3 + event.offset_ps / 1e6,
                    "dur": round(event.duration_ps / 1e6, 3),
                }


def _names(space: Any, used: set[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Yield the names of the devices and of the threads of operations."""
    for pid, plane in enumerate(space.planes):
        if any(pid == other for other, _ in used):
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": plane.name}}
        for tid, line in enumerate(plane.lines):
            if (pid, tid) in used:
                title = line.display_name or line.name or f"Thread {tid}"
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": title}}
