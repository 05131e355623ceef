"""Measurements of workers on the nodes of a cluster, which users request before they queue a training.

A measurement is a task that goes through the cluster's queue like a training. It is stopped, also in the queue, when
its user cancels it or no longer asks for it, as after a browser has crashed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import gevent
from msgspec import structs

from digits.core import preflight_result
from digits.core.errors import TooBusy
from digits.core.files import make_folder
from digits.core.job import DeviceRequest
from digits.core.recipe import Preflight
from digits.core.task import Failure, TaskState
from digits.runtime import short_tasks
from digits.runtime.task_runner import TaskRun, TaskRunner

POOL = "measurement"
# Browsers wake pages in the background once per minute.
LEASE_SECONDS = 150.0
# A page that was closed before it knew of its measurement never asks.
FIRST_LEASE_SECONDS = 20.0
# The longest time that a measurement runs. As its time limit, it starts in gaps of the queue.
MAX_MINUTES = 10
MAX_UNFINISHED = 8
# Time to end measurements when the server stops.
STOP_SECONDS = 10.0
POLL_SECONDS = 0.2

State = Literal["waiting", "running", "done", "failed", "canceled"]


@dataclass(eq=False)
class Measurement:
    """A measurement, its ``task`` as far as its events are known, and its ``run``.

    Its result replaces the estimate in that of the check in the folder ``checked``, if there was one.
    """

    id: str
    folder: Path
    run: TaskRun
    task: TaskState
    checked: Path | None = None
    failure: Failure | None = None
    began_at: float = field(default_factory=time.monotonic)
    asked_at: float | None = None
    is_discarded: bool = False

    @property
    def seconds(self) -> float:
        """The time since the request."""
        return time.monotonic() - self.began_at

    @property
    def state(self) -> State:
        if self.task.is_finished:
            return "done"
        if self.failure:
            return "failed"
        if self.run.stop_requested and not self.run.timed_out:
            return "canceled"
        return "waiting" if self.run.handle is None or self.run.waiting else "running"


class Measurements:
    """Runs measurements in folders below ``folder``, which must be on the file system that the nodes share.

    ``discard`` deletes folders in the background.
    """

    def __init__(self, folder: Path, runner: TaskRunner, discard: Callable[[Path], None]) -> None:
        self._folder, self._runner, self._discard = folder, runner, discard
        self._known: dict[str, Measurement] = {}
        runner.every_round.append(self._end_leases)

    def start(
        self,
        network: str,
        recipe: Preflight,
        request: DeviceRequest,
        network_folder: Path | None = None,
        checked: Path | None = None,
    ) -> Measurement:
        """Measure the workers of ``request`` with the training that ``recipe`` describes.

        See `ShortTasks.visualize` for ``network_folder``, and `Measurement` for ``checked``. Raises TooBusy if many
        measurements have not ended.
        """
        if sum(not item.run.has_ended for item in self._known.values()) >= MAX_UNFINISHED:
            raise TooBusy(
                f"{MAX_UNFINISHED} measurements on nodes are waiting or running.",
                "Try again when one has ended.",
            )
        compute = request.compute
        compute = structs.replace(compute, minutes=min(compute.minutes or MAX_MINUTES, MAX_MINUTES))
        folder = self._folder / f"measurement-{secrets.token_hex(6)}"
        task_folder = folder / recipe.task
        make_folder(self._folder)
        folder.mkdir(mode=0o700)
        task_folder.mkdir(mode=0o700)
        short_tasks.write_network(folder, network, network_folder)
        task = TaskState()
        run = TaskRun(
            folder=task_folder,
            request=structs.replace(request, pool=POOL, compute=compute),
            holder=short_tasks.PREFLIGHT,
            prepare=partial(
                short_tasks.prepare, task_folder, structs.replace(recipe, workers=1, apart=True), task
            ),
            follow=self._follow,
            seconds=60.0 * MAX_MINUTES,
            poll_seconds=POLL_SECONDS,
        )
        measurement = self._known[folder.name] = Measurement(folder.name, folder, run, task, checked)
        self._runner.submit(run)
        return measurement

    def find(self, measurement_id: str) -> Measurement | None:
        """Return a measurement, which is then not stopped for `LEASE_SECONDS`."""
        measurement = self._known.get(measurement_id)
        if measurement:
            measurement.asked_at = time.monotonic()
        return measurement

    def stop(self, measurement: Measurement) -> None:
        """Cancel a measurement, wherever it is. Does nothing if it has ended."""
        if not measurement.run.has_ended:
            self._runner.stop(measurement.run)

    def nodes(self, measurement: Measurement) -> str:
        """Return the nodes on which a measurement runs, in the scheduler's words; empty if they are unknown."""
        nodes = getattr(self._runner.executor_of(measurement.run), "nodes", None)
        return str(nodes(measurement.run.folder)) if nodes else ""

    def stop_all(self) -> None:
        """Cancel all measurements, and wait a little for their end."""
        deadline = time.monotonic() + STOP_SECONDS
        for measurement in self._known.values():
            self.stop(measurement)
        while any(not item.run.has_ended for item in self._known.values()) and time.monotonic() < deadline:
            gevent.sleep(POLL_SECONDS)

    def clear(self) -> None:
        """Stop the measurements of an earlier server, and remove their folders."""
        if self._folder.exists():
            tasks = [path for path in self._folder.glob("*/*") if path.is_dir()]
            found = [executor.find(task, 1) for task in tasks for executor in self._runner.executors]
            self._runner.clear(self._folder, [handle for handle in found if handle])
            self._discard(self._folder)

    def _follow(self, run: TaskRun) -> bool:
        measurement = next(item for item in self._known.values() if item.run is run)
        is_complete = short_tasks.follow(measurement.task, run)
        if run.has_ended and is_complete:
            measurement.failure = self._failure_of(measurement)
            if measurement.checked and measurement.task.result:
                preflight_result.replace_forecast(measurement.checked, measurement.task.result["workers"])
        return is_complete

    def _failure_of(self, measurement: Measurement) -> Failure | None:
        run = measurement.run
        if run.timed_out:
            return Failure(
                f"The measurement took longer than {MAX_MINUTES} minutes.",
                "Choose a smaller batch size, or train without it.",
            )
        failure = self._runner.failure_of(run, measurement.task, "measurement")
        if failure and run.exit and run.exit.stopped:
            return Failure(failure.message, "Measure again, or train without it.")
        return failure

    def _end_leases(self) -> None:
        """Stop measurements for which nobody asks, and forget those that have ended."""
        now = time.monotonic()
        for measurement in list(self._known.values()):
            asked_at = measurement.asked_at
            is_over = now > (
                measurement.began_at + FIRST_LEASE_SECONDS if asked_at is None else asked_at + LEASE_SECONDS
            )
            if is_over and not measurement.run.stop_requested:
                self.stop(measurement)
            if measurement.run.has_ended and not measurement.is_discarded:
                measurement.is_discarded = True
                self._discard(measurement.folder)
            if is_over and measurement.run.has_ended:
                del self._known[measurement.id]
