"""Profiles every N-th training step, for Perfetto and TensorBoard's profile plugin."""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from digits.core.files import write_bytes
from digits.core.model_job import trace_name, traced_steps

# The longest operations of a step; the others are too short to see. About 2 MB.
MAX_OPERATIONS = 20_000
MAX_NAME_CHARACTERS = 200
# Older traces are deleted.
MAX_TRACES = 100

log = logging.getLogger(__name__)


class Profiler:
    """Profiles one step every ``interval`` steps (0 for never) into ``folder``; not the ``first_step``.

    The traces of the steps are saved in ``job_folder``.
    """

    def __init__(self, folder: Path, job_folder: Path, interval: int, first_step: int) -> None:
        self._folder, self._job_folder = folder, job_folder
        self._interval, self._first_step = interval, first_step

    def steps_until_next(self, step: int) -> int | None:
        """The number of steps after ``step`` before the next profiled one; None if there is none."""
        if not self._interval:
            return None
        # The first step also builds its graph, so its times are not representative.
        return -step % self._interval if step > self._first_step else self._interval

    @contextlib.contextmanager
    def profiling(self, step: int) -> Iterator[None]:
        """Profile the block, which runs ``step``."""
        before = self._profiles()
        tf.profiler.experimental.start(str(self._folder))
        try:
            yield
        finally:
            tf.profiler.experimental.stop()
        for profile in self._profiles() - before:
            try:
                save_trace(profile, self._job_folder, step)
            except (OSError, ValueError, tf.errors.OpError) as error:
                log.warning("The trace of step %d could not be saved: %s", step, error)

    def _profiles(self) -> set[Path]:
        return set(self._folder.glob("plugins/profile/*/*.xplane.pb"))


def save_trace(profile: Path, job_folder: Path, step: int) -> None:
    """Write the trace of ``step`` from the file ``profile``, and delete the oldest traces if there are too many.

    Raises OSError, and ValueError if the profile is damaged.
    """
    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(profile.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{profile.name} is damaged") from error
    write_bytes(job_folder / trace_name(step), msgspec.json.encode(chrome_trace(space)))
    for old in traced_steps(job_folder)[:-MAX_TRACES]:
        (job_folder / trace_name(old)).unlink(missing_ok=True)


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
