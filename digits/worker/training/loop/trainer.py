"""Train a network: recipe, data, network, optimizer, loop."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from msgspec import structs
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core import schema
from digits.core.events import EventLog, Measured, PhaseChanged, Progressed, Warned
from digits.core.resume_point import ResumePoint, resume_point
from digits.data.sources.plan import count_of
from digits.kinds import kind_named
from digits.worker import environment, stopping
from digits.worker.failure import Stopped, UserFault
from digits.worker.gang.gang import Gang, join
from digits.worker.gang.rendezvous import Rendezvous
from digits.worker.training.loop import assessment, reporting, setup, usage
from digits.worker.training.loop.profiler import Profiler
from digits.worker.training.loop.reporting import Reports
from digits.worker.training.loop.resources import Resources
from digits.worker.training.loop.setup import Steps
from digits.worker.training.loop.tensorboard_log import spread
from digits.worker.training.loop.timeline import (
    MetricRows,
    Milestone,
    Pace,
    Row,
    measuring_interval,
    next_measured,
)
from digits.worker.training.loop.validation import Validation
from digits.worker.training.step import device_config, numerics
from digits.worker.training.step.step_function import Rows, StepFunction
from digits.worker.training.step.training_step import CROSS_ENTROPY
from digits.worker.training.weights.checkpoints import Checkpoints, choose_point

# Maximum time that a stopping worker waits while the lead saves the training, in seconds.
LEAD_SECONDS = 300.0
# The total time is estimated once steps have taken at least this many seconds.
TIMED_SECONDS = 5.0
# Training records that are predicted at the end.
MAX_RECALLED = 64

log = logging.getLogger(__name__)


def run(recipe: recipes.Train, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Train as ``recipe`` describes; write snapshots and logs to the job's folder.

    Returns the task's result: ``seed``, ``steps``, ``parameters``, ``flops`` per image if they are known, the metrics
    of ``recalled`` training records, ``environment``, their number if there are several ``workers``, and
    ``ended_early`` with the reason if the training ended early. Raises UserFault, or whatever the network raises.
    """
    job_folder = task_folder.parent
    meeting = Rendezvous(task_folder)
    newest = resume_point(job_folder) if recipe.resume else None
    done = round(min(1.0, newest.epoch / recipe.epochs) if newest else 0.0, 6)
    if meeting.workers > 1:
        events.append(Progressed(done, doing=f"Waiting for {meeting.workers} workers"))
    gang = join(meeting)
    with gang.explained():
        point = _agreed_point(recipe, job_folder, events, gang)  # takes minutes for large checkpoints
        events.append(Progressed(done, doing="Reading the dataset"))
        config, gpus = device_config.configure(recipe, events, gang)
        seed = point.seed if point else secrets.randbelow(2**31) if recipe.seed is None else recipe.seed
        seed = int(gang.of_lead(np.array([seed]))[0])
        keras.utils.set_random_seed(seed % 2**32)
        with usage.reported(events, "GPU" if gpus else "CPU", gpus):
            return _train(Resources(recipe, job_folder, events, config, seed), point)


def _agreed_point(
    recipe: recipes.Train, job_folder: Path, events: EventLog, gang: Gang
) -> ResumePoint | None:
    """Return the resume point that the lead chooses: others may see an outdated folder on a network file system."""
    point = choose_point(recipe, job_folder, events) if gang.is_lead else None
    body = json.loads(gang.words_of_lead(json.dumps(point and structs.asdict(point)).encode()))
    return None if body is None else schema.convert(body, ResumePoint)


def _train(resources: Resources, point: ResumePoint | None) -> dict[str, Any]:
    first_step, gang = point.step if point else 0, resources.config.gang
    restarted = -1 if resources.recipe.resume else None  # invalidates the logs of all steps
    with reporting.opened(
        resources.job_folder,
        resources.events,
        resumed_after=point.step if point else restarted,
        validates=resources.data.val is not None,
        is_silent=not gang.is_lead,
    ) as reports:
        reports.progress(first_step / resources.timeline.total_steps, "Building the network", now=True)
        steps = setup.build(
            resources,
            reports.train_board,
            measures_labels=resources.standard is None,
            trunk=point.trunk if point else (),
        )
        trainer = Trainer(resources, steps, reports, first_step)
        if point:
            if point.step > steps.head_steps:
                steps.build()  # creates the optimizer's state
            trainer.resume(point)
        else:
            resources.load_weights(steps.first.traced)
        gang.take_from_lead(resources.variables)
        ended_early = trainer.train(is_new=not point)
    result = {
        "seed": resources.seed,
        "steps": trainer.step,
        "parameters": resources.store.parameters,
        "environment": environment.describe(),
    }
    if not gang.is_lead:
        return result
    if gang.workers > 1:
        result["workers"] = gang.workers
    with resources.save_state():
        flops = steps.shown.count_flops()  # builds the network again
    if flops is not None:
        result["flops"] = flops
    if recalled := trainer.recall():
        result["recalled"] = recalled
    return {**result, "ended_early": ended_early} if ended_early else result


@dataclass(frozen=True)
class Call:
    """A call of a step function: ``count`` steps, or an extended one. The first one of each kind ``builds`` a graph."""

    count: int
    is_extended: bool
    is_profiled: bool
    builds: bool


class Trainer:
    """The training loop: runs the steps, validations and snapshots when they are due.

    ``step`` is the number of completed steps.
    """

    def __init__(self, resources: Resources, steps: Steps, reports: Reports, first_step: int) -> None:
        self.step = self._first_step = first_step
        self._resources, self._steps, self._reports = resources, steps, reports
        self._recipe, self._data, self._timeline = resources.recipe, resources.data, resources.timeline
        self._gang, share = resources.config.gang, self._data.preparation.share
        self._share = share.fraction if share else 1.0
        self._averaging_interval = resources.config.averaging_interval
        self._learning_rate = steps.learning_rate
        kind = kind_named(self._data.manifest.kind)
        # No metric compares generated images with those of the dataset.
        is_selective = not steps.shown.latent and self._data.validation_records >= recipes.FEWEST_TO_JUDGE
        primary = kind.metric if is_selective else ""
        job_folder = resources.job_folder
        self._checkpoints = Checkpoints(
            self._recipe,
            job_folder,
            resources.events,
            primary,
            kind.lower_is_better,
            reports.flush,
            writes=self._gang.is_lead,
        )
        self._rows = MetricRows()
        self._left = setup.time_left(resources, steps, first_step)
        self._saved_steps = setup.saved_steps(resources, steps)
        traces = job_folder / reporting.TENSORBOARD_FOLDER / "train"
        self._profiler = Profiler(traces, job_folder, self._recipe.traces_interval, first_step)
        self._validated = -1  # the step of the latest validation
        self._wants_pictures = False
        self._extended: StepFunction | None = None  # that built the graph of an extended step
        self._measuring_interval = measuring_interval(self._timeline.total_steps)
        self._statistics: tuple[int, dict[str, float]] = (0, {})  # of the step with this number
        self._stepped = self._waited = (
            0.0  # seconds of representative steps, and those that waited for other workers
        )
        self._is_timed = first_step > 0
        self._waiting_share = 0.0  # of the worker that waits most
        self._is_stopping: Callable[[], bool] = lambda: False

    def resume(self, point: ResumePoint) -> None:
        """Restore the training state saved at ``point``. Raises UserFault if it does not fit this training."""
        if (point.records, point.step_records) != (len(self._data.train), self._data.step_records):
            raise UserFault(
                "The training cannot resume: the dataset or the batch size has changed.",
                "Start a new training.",
            )
        self._checkpoints.restore(point, self._resources.variables)
        self._rows.restore(point.step, self._steps.first.traced.names, point.curve)
        self._validated = point.validated
        self._wants_pictures = point.wants_pictures and bool(self._steps.first.traced.pictures)
        if point.workers != self._gang.workers:
            before, now = count_of(point.workers, "worker"), count_of(self._gang.workers, "worker")
            message = f"The training continues with {now} after {before}: its weights may differ by rounding."
            self._resources.events.append(Warned(message, is_remark=True))

    def train(self, is_new: bool) -> str:
        """Train to the end and return why it came early; empty if it did not. Raises Stopped on SIGTERM.

        A new training also validates the weights that it starts from.
        """
        # The features of a batch take less time than a validation; decoding all images for a step can take more.
        is_step_first = self._steps.head is not None and self._steps.head.is_on_features
        if is_new and not is_step_first:
            self.validate(0.0)
        with contextlib.ExitStack() as self._open:
            self._open_feed()
            with stopping.defer() as self._is_stopping:
                if is_new and is_step_first:
                    self._step_before_validation()
                return self._loop()

    def _open_feed(self) -> None:
        """Open the feed of the next steps, of one phase."""
        self._progress("Decoding images", now=True)
        self._open.close()
        head, order = self._steps.head, self._data.order(self._resources.seed, self.step)
        limit = self._resources.max_steps_per_call
        if head and self.step < head.steps:
            self._open.callback(head.close)
            self._feed = head.feed(self.step, self._computed)
            limit = head.max_steps_per_call
        else:
            self._feed = self._data.train.feed(order)
        self._open.callback(self._feed.close)
        self._pace = Pace(limit)

    def _computed(self, batches: int, of_all: int) -> None:
        """Report that the features of this many ``batches`` have been computed."""
        if batches:
            self._left.computed(batches)
        else:
            self._left.begin()
        if self._is_stopping():
            self._save_and_stop()
        self._progress(f"Computing features: {batches / of_all:.0%}", now=not batches)

    def _loop(self) -> str:
        validations = self._upcoming(self._recipe.val_interval, self._validated)
        snapshots = self._upcoming(self._recipe.snapshot_interval, self._checkpoints.saved_step)
        if self._next_function.is_compiled:
            self._progress("Compiling a step", now=True)  # a minute or more for a large network
        ended_early = self._reason_at_resume()
        while (validations or snapshots) and not ended_early:
            self._train_until(min(due[0].step for due in (validations, snapshots) if due))
            epoch, is_due = self._timeline.epoch(self.step), False
            if validations and validations[0].step == self.step:
                self._report(self._rows.cut())
                epoch = validations.pop(0).epoch
                self.validate(epoch)
                ended_early = "" if self._is_last_step else self._checkpoints.reason_to_stop(epoch)
            if snapshots and snapshots[0].step == self.step:
                epoch, is_due = snapshots.pop(0).epoch, True
            # A worker whose disk was full knows of fewer snapshots.
            is_best = any(self._gang.agree(self._checkpoints.has_unsaved_best(self.step, epoch)))
            if is_due or ended_early or is_best:
                self._save_epoch(epoch, is_last=bool(ended_early) or self._is_last_step)
            self._write_histograms()
            self._left.paused(self.step)
        if ended_early:
            log.info(ended_early)
        self._progress("", now=True)
        return ended_early

    def _upcoming(self, interval: float, done: int) -> list[Milestone]:
        """Return the milestones that are not ``done``. A snapshot skipped before a resume point is not retried."""
        milestones = self._timeline.every(interval)
        return [item for item in milestones if item.step > done and item.step >= self.step]

    def _reason_at_resume(self) -> str:
        """Return why the training had ended early where it resumes; the latest validation alone decides this."""
        if self._validated >= self._timeline.total_steps:
            return ""
        milestones = self._timeline.every(self._recipe.val_interval)
        latest = [milestone.epoch for milestone in milestones if milestone.step == self._validated]
        return self._checkpoints.reason_to_stop(latest[0]) if latest else ""

    @property
    def _is_last_step(self) -> bool:
        return self.step == self._timeline.total_steps

    # Steps

    @property
    def _next_function(self) -> StepFunction:
        """The function of the next step."""
        head = self._steps.head
        return head.function if head and self.step < head.steps else self._steps.training

    @property
    def _steps_left_in_phase(self) -> int:
        head_steps = self._steps.head_steps
        return (head_steps if self.step < head_steps else self._timeline.total_steps) - self.step

    def _train_until(self, step: int) -> None:
        while self.step < step:
            if self.step and self.step == self._steps.head_steps:
                self._begin_whole_phase()
            call = self._next_call(step)
            if self._steps.head and self.step < self._steps.head_steps:
                self._steps.head.prepare(self.step, call.count, self._computed)
            self._advance(call)
            # Workers that average their weights have different ones in between.
            is_common = self.step % self._averaging_interval == 0 or self.step == step
            if is_common and self._averaging_interval > 1:
                self._gang.average(self._resources.variables, self._share)
            self._save_what_is_due(step, is_common)

    def _step_before_validation(self) -> None:
        """Take the first step of the head, then validate the weights before it."""
        trunk = self._resources.store.trunk
        variables = [item for name, item in self._resources.variables.items() if name not in trunk]
        before = [item.numpy() for item in variables]
        self._advance(self._next_call(1))
        after = [item.numpy() for item in variables]
        # Not the counters of the validation, which continue.
        changed = [each for each in zip(variables, before, after, strict=True) if np.any(each[1] != each[2])]
        for variable, value, _ in changed:
            variable.assign(value)
        rows, self._rows, step, self.step = self._rows, MetricRows(), self.step, 0
        self.validate(0.0)
        self._rows, self.step = rows, step
        for variable, _, value in changed:
            variable.assign(value)
        self._left.begin()

    def _begin_whole_phase(self) -> None:
        self._resources.events.append(PhaseChanged(self.step, round(self._timeline.epoch(self.step), 6)))
        log.info("Training all layers from here on")
        self._progress("Building the steps of all layers", now=True)
        self._steps.build()
        if self.step > self._first_step:
            self._open_feed()

    def _next_call(self, end: int) -> Call:
        """Return the steps to run at once: up to ``end``, the phase's end, the next profile or the next statistics."""
        unprofiled = self._profiler.steps_until_next(self.step)
        head = self._steps.head
        counts = [self._pace.steps, end - self.step, self._steps_left_in_phase]
        if head and self.step < head.steps and not head.is_computed:
            counts.append(1)  # each step waits for its features only
        if self._averaging_interval > 1:
            counts.append(self._averaging_interval - self.step % self._averaging_interval)
        if unprofiled is not None:
            counts.append(max(1, unprofiled))
        is_extended = self._wants_pictures
        if self._resources.measures_updates:
            before_measured = next_measured(self.step, self._measuring_interval) - 1 - self.step
            is_extended = is_extended or before_measured == 0
            counts.append(max(1, before_measured))
        # The first step of a phase and the first one with pictures or statistics also build their graphs.
        is_first = self.step in (self._first_step, self._steps.head_steps)
        return Call(
            min(counts),
            is_extended,
            is_profiled=unprofiled == 0 and self._gang.is_lead,
            builds=is_first or (is_extended and self._extended is not self._next_function),
        )

    def _advance(self, call: Call) -> None:
        """Run the steps of ``call``, and report their metrics."""
        draws = self._wants_pictures
        began, waited = time.monotonic(), self._gang.waited
        with self._profiler.profiling(self.step + 1) if call.is_profiled else contextlib.nullcontext():
            metrics = self._extended_step() if call.is_extended else self._take_steps(call.count)
        self.step += len(metrics)
        if self._averaging_interval > 1:
            metrics = self._gang.reduce(metrics * np.float32(self._share))
        seconds = time.monotonic() - began
        is_representative = not call.builds and not draws
        if is_representative:
            stopping.reserve("a call of steps", seconds)
            self._left.stepped(self.step, len(metrics))
            self._stepped, self._waited = self._stepped + seconds, self._waited + self._gang.waited - waited
            self._remark_on_time()
        elif call.builds:
            self._left.begin()
        else:
            self._left.drew(self.step)
        if not call.is_extended:
            self._pace.update(len(metrics), seconds)
        self._report(self._rows.add(metrics, seconds if is_representative else None))
        if self.step == len(metrics):
            self._report_first_step(metrics[0])
        if self.step >= self._steps.head_steps:
            self._progress("Training")
        elif self._steps.head and self._steps.head.is_computed:
            self._progress("Training the head")

    def _report_first_step(self, metrics: NDArray[np.float32]) -> None:
        """Report what the first step of a new training reveals, and draw its batch."""
        resources, function = self._resources, self._steps.first
        order = itertools.islice(self._data.order(resources.seed), 1)
        with contextlib.closing(self._data.train.feed(order)) as feed:
            chunk = feed.take(1)
        if resources.standard is None:
            self._progress("Checking the network", now=True)
            self._steps.build()  # raises the mistakes that only steps of all layers make
        first = function.summarize(metrics.tolist())
        resources.events.append(*map(Warned, assessment.warnings(resources, self._steps, first, chunk)))
        if self._gang.is_lead:
            assessment.write_picture(resources, function.step, chunk, is_compiled=function.is_compiled)
        self._left.begin()

    def _remark_on_time(self) -> None:
        """Report once how long a new training takes if that is long."""
        if self._is_timed or self._stepped < TIMED_SECONDS:
            return
        self._is_timed = True
        if message := assessment.remark_on_time(self._recipe, self._left.seconds(self.step) or 0.0):
            self._resources.events.append(Warned(message, is_remark=True))

    def _save_what_is_due(self, end: int, is_common: bool) -> None:
        """Save the training if it is asked to stop or a resume point is due, once all workers have the same weights.

        After the steps up to ``end``, a validation or a snapshot follows.
        """
        # The fastest worker takes as many steps at a time as the slowest one.
        is_stopping, is_due, pace, self._waiting_share = self._gang.agree(
            self._is_stopping(),
            self._checkpoints.is_due,
            -self._pace.steps,
            self._waited / self._stepped if self._stepped else 0.0,
        )
        self._pace.steps = -int(pace)
        if is_stopping and is_common:
            self._save_and_stop()
        if self.step < end and is_due and is_common:
            self._save_to_resume()

    def _take_steps(self, count: int) -> Rows:
        rates = [self._learning_rate.at(step) for step in range(self.step, self.step + count)]
        with numerics.explained(self.step + 1, rates[0]):
            metrics = self._next_function.steps(self._feed.take(count), rates, self.step)
        numerics.check_losses(metrics[:, 0], self.step, rates, self._checkpoints.has_snapshots)
        return metrics

    def _extended_step(self) -> Rows:
        """One step that also computes the network's histograms, images and texts, or statistics of the updates."""
        rate = self._learning_rate.at(self.step)
        metrics, pictures, statistics = self._next_function.extended_step(self._feed.take(1), rate, self.step)
        numerics.check_losses(metrics[:, 0], self.step, [rate], self._checkpoints.has_snapshots)
        if self._wants_pictures:
            self._reports.train_board.pictures(self.step + 1, pictures)
        self._wants_pictures, self._extended = False, self._next_function
        self._statistics = self.step + 1, statistics
        return metrics

    # Validation

    @functools.cached_property
    def _validation(self) -> Validation | None:
        resources, data, evaluation = self._resources, self._data, self._steps.evaluation
        if data.val is None or evaluation is None:
            return None
        return Validation(
            evaluation,
            data.val,
            data.batch_size,
            resources.save_state,
            resources.max_steps_per_call,
            resources.config.gang,
        )

    def validate(self, epoch: float) -> None:
        """Validate and report the metrics after ``epoch`` epochs. Does nothing without validation records."""
        if self._validation is None:
            return
        self._progress("Validating", now=True)
        rate = self._learning_rate.at(max(0, self.step - 1))
        values = self._validation.run(self.step, rate, self._is_interrupted)
        # Counters of tf.metrics, which counted other batches on each worker.
        self._gang.take_from_lead(self._resources.store.local)
        if values is None:
            self._save_and_stop()
            return
        self._validated = self.step
        self._reports.validation(self.step, epoch, values)
        if self.step:
            has_snapshots = self._checkpoints.has_snapshots
            numerics.check_validation_loss(values["loss"], self.step, rate, has_snapshots)
        self._wants_pictures = self._steps.writes_pictures
        if self.step:
            self._checkpoints.observe(self.step, epoch, values)

    def recall(self) -> dict[str, float]:
        """Return the metrics of some training records as a validation computes them, those that are finite.

        They are worse than in training if the network predicts otherwise than it trains, and not because it memorizes.
        A network that fails here has been trained all the same: the result is then empty.
        """
        evaluation, records = self._steps.evaluation, self._data.train
        if evaluation is None:
            return {}
        size = min(len(records), self._data.batch_size)
        count = max(1, min(len(records), MAX_RECALLED) // size)
        places = np.arange(count * size).reshape(count, size)  # networks may require whole batches
        try:
            with self._resources.save_state(), contextlib.closing(records.feed(iter(places))) as feed:
                evaluation.begin(self.step)
                found = [evaluation(feed.take(1)) for _ in places]
        except (tf.errors.OpError, OSError) as error:
            log.warning("Training images could not be predicted after the training: %s", error)
            return {}
        means = np.stack([rows[0] for rows, _ in found]).mean(axis=0)
        metrics = evaluation.summarize(means.tolist(), np.concatenate([values for _, values in found]))
        return {name: float(value) for name, value in metrics.items() if np.isfinite(value)}

    def _is_interrupted(self) -> bool:
        self._progress("Validating")
        return self._is_stopping()

    # Reports

    def _report(self, rows: Sequence[Row]) -> None:
        self._reports.training([self._measured(row) for row in rows])

    def _measured(self, row: Row) -> Measured:
        values = self._steps.first.summarize(row.means)
        values.pop(CROSS_ENTROPY, None)
        values["learning_rate"] = self._learning_rate.at(row.step - 1)
        if row.steps_per_second is not None:
            values["images_per_second"] = row.steps_per_second * self._data.step_records
        if self._waiting_share:
            values["waiting_share"] = self._waiting_share
        measured, statistics = self._statistics
        if measured == row.step == next_measured(row.step - 1, self._measuring_interval):
            values |= statistics
        return Measured("train", row.step, round(self._timeline.epoch(row.step), 6), values)

    def _write_histograms(self) -> None:
        """Write histograms of weights and activations to TensorBoard's logs, without side effects."""
        if self._steps.activations is None or not self._gang.is_lead:
            return
        variables = self._resources.store.variables
        weights = {name: spread(item).numpy() for name, item in variables.items() if item.dtype.is_floating}
        self._reports.train_board.spreads(self.step, weights)
        with self._resources.save_state():
            self._reports.val_board.spreads(self.step, self._steps.activations.spreads())

    def _progress(self, doing: str, now: bool = False) -> None:
        self._reports.progress(self._done, doing, self._left.seconds(self.step), now)

    @property
    def _done(self) -> float:
        """The completed part of the training by its expected time: steps of the head are shorter than others."""
        head_steps, saved = self._steps.head_steps, self._saved_steps
        so_far = saved * min(1.0, self.step / head_steps) if head_steps else 0.0
        return (self.step - so_far) / (self._timeline.total_steps - saved)

    # Checkpoints

    def _save_epoch(self, epoch: float, is_last: bool) -> None:
        self._progress("Saving a snapshot", now=True)
        variables = self._resources.variables
        self._gang.check_equal(variables)
        self._checkpoints.save_epoch(epoch, self.step, variables, self._resume_point, is_last=is_last)

    def _save_to_resume(self) -> None:
        self._gang.check_equal(self._resources.variables)
        self._checkpoints.save_to_resume(self.step, self._resources.variables, self._resume_point)

    def _save_and_stop(self) -> None:
        if not self._gang.is_lead:
            stopping.reserve("waiting for the lead", LEAD_SECONDS)
        self._save_to_resume()
        self._gang.agree(0.0)  # some schedulers end all workers when the first one ends
        raise Stopped

    def _resume_point(self, snapshot: str) -> ResumePoint:
        return ResumePoint(
            snapshot=snapshot,
            step=self.step,
            epoch=self._timeline.epoch(self.step),
            seed=self._resources.seed,
            records=len(self._data.train),
            step_records=self._data.step_records,
            validated=self._validated,
            saved=self._checkpoints.saved_step,
            wants_pictures=self._wants_pictures,
            watched=self._checkpoints.state(),
            curve=self._rows.state(self._steps.first.traced.names),
            trunk=list(self._steps.trunk),
            workers=self._gang.workers,
        )
