"""Follow the running tasks of jobs: read their events and output, and report what is new."""

from __future__ import annotations

import time

from digits.core.job import Job
from digits.core.metrics.series import Metrics
from digits.core.task import Task
from digits.runtime import changes
from digits.runtime.executors.executor import Executor
from digits.runtime.task_states import TaskStates

OUTPUT_SECONDS = 1.0
PROGRESS_SECONDS = 0.25
SPARKLINE_SECONDS = 2.0
OUTPUT_BYTES = 16 * 1024


def summarize(job: Job, metrics: Metrics) -> None:
    """Update the summary of a training from its ``metrics``."""
    job.summary.sparkline = metrics.sparkline()
    job.summary.last_accuracy = metrics.last_accuracy()
    job.summary.last_values = metrics.last_values()
    job.summary.ranges = metrics.ranges()


class TaskFollower:
    """Reads the events and the output of one running task, and reports them at a limited rate."""

    def __init__(
        self, job: Job, task: Task, states: TaskStates, executor: Executor, report: changes.Report
    ) -> None:
        self._job = job
        self._task = task
        self._states = states
        self._executor = executor
        self._report = report
        self._output = 0
        self._output_at = 0.0
        self._progress_at = 0.0
        self._sparkline_at = 0.0

    def read(self, *, has_ended: bool) -> bool:
        """Apply new events to the task for one time slice; return whether all were applied. Raises OSError."""
        is_complete = self._read_events()
        now = time.monotonic()
        if has_ended or now - self._output_at >= OUTPUT_SECONDS:
            self._output_at = now
            self._read_output()
        return is_complete

    def _read_events(self) -> bool:
        happened, is_complete = self._states.advance(self._job, self._task)
        if not happened:
            return is_complete
        self._report(changes.EventsApplied(self._job, self._task, happened))
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._report(changes.ProgressChanged(self._job))
        metrics = self._task.state.metrics
        if metrics.train.steps and now - self._sparkline_at >= SPARKLINE_SECONDS:
            self._sparkline_at = now
            summarize(self._job, metrics)
            self._report(changes.CurveChanged(self._job, metrics))
        return is_complete

    def _read_output(self) -> None:
        folder = self._job.task_folder(self._task)
        text, self._output = self._executor.output(folder, self._output, OUTPUT_BYTES)
        if text:
            self._report(changes.OutputWritten(self._job, self._task, text))
