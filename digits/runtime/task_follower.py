"""Follow the running tasks of jobs: read their events and output, and report what is new."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Container
from pathlib import Path

from digits.core import events
from digits.core.job import Job
from digits.core.metrics import Metrics
from digits.core.status import Status
from digits.core.task import EVENTS_FILE, Task
from digits.runtime import changes
from digits.runtime.executor import Executor

OUTPUT_SECONDS = 1.0
PROGRESS_SECONDS = 0.25
SPARKLINE_SECONDS = 2.0
OUTPUT_BYTES = 16 * 1024
METRICS_KEPT = 32


class MetricsCache:
    """The metrics of the jobs asked for last, read from their logs."""

    def __init__(self) -> None:
        self._metrics: OrderedDict[str, Metrics] = OrderedDict()

    def get(self, job: Job, followed: Container[str]) -> Metrics:
        """The metrics of ``job``. Those of jobs that are ``followed`` stay in memory."""
        metrics = self._metrics.get(job.id)
        if metrics is None:
            metrics = self._metrics[job.id] = _read_metrics(job)
            self._limit(followed)
        self._metrics.move_to_end(job.id)
        return metrics

    def forget(self, job: Job) -> None:
        """Read the metrics of ``job`` again when they are needed."""
        self._metrics.pop(job.id, None)

    def _limit(self, followed: Container[str]) -> None:
        while len(self._metrics) > METRICS_KEPT:
            oldest = next(iter(self._metrics))
            if oldest in followed:
                self._metrics.move_to_end(oldest)
                break
            del self._metrics[oldest]


class TaskFollower:
    """Reads the events and the output of one running task, and reports them at a limited rate."""

    def __init__(self, job: Job, task: Task, executor: Executor, report: changes.Report) -> None:
        self._job = job
        self._task = task
        self._executor = executor
        self._report = report
        self._output = 0
        self._output_at = 0.0
        self._progress_at = 0.0
        self._sparkline_at = 0.0

    def read(self, metrics: Metrics, *, has_ended: bool) -> None:
        """Apply new events to the task and to ``metrics``; raises OSError."""
        self._read_events(metrics)
        now = time.monotonic()
        if has_ended or now - self._output_at >= OUTPUT_SECONDS:
            self._output_at = now
            self._read_output()

    def _read_events(self, metrics: Metrics) -> None:
        log_file = self._job.task_folder(self._task) / EVENTS_FILE
        if _size_of(log_file) == self._task.state.cursor:
            return
        happened = self._task.read_events(log_file)
        metrics.cursor = self._task.state.cursor
        if not happened:
            return
        for event in happened:
            metrics.add(event)
        self._report(changes.EventsApplied(self._job, self._task, happened))
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._report(changes.ProgressChanged(self._job))
        if metrics.train.steps and now - self._sparkline_at >= SPARKLINE_SECONDS:
            self._sparkline_at = now
            self._job.summary.last_accuracy = metrics.last_accuracy()
            self._report(changes.CurveChanged(self._job, metrics))

    def _read_output(self) -> None:
        folder = self._job.task_folder(self._task)
        text, self._output = self._executor.output(folder, self._output, OUTPUT_BYTES)
        if text:
            self._report(changes.OutputWritten(self._job, self._task, text))


def _size_of(path: Path) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _read_metrics(job: Job) -> Metrics:
    metrics = Metrics()
    for task in job.tasks:
        # A task that is being followed adds the rest as its events are applied.
        until = task.state.cursor if task.status is Status.RUN else None
        happened, metrics.cursor = events.read(job.task_folder(task) / EVENTS_FILE, until=until)
        for event in happened:
            metrics.add(event)
    return metrics
