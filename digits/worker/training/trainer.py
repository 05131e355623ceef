"""Trains a network: recipe, data, network, optimizer, loop."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core import resume_point
from digits.core.events import Built, EventLog, Measured, Progressed, Resumed, Warned, WeightsLoaded
from digits.core.resume_point import ResumePoint
from digits.core.schedules import LearningRate
from digits.worker import stopping
from digits.worker.failure import Stopped, UserFault, describe, in_a_sentence
from digits.worker.input import feeds
from digits.worker.network import inference, network
from digits.worker.network.variables import VariableStore, plain_name
from digits.worker.randomness import streams
from digits.worker.randomness.streams import Randomness
from digits.worker.training import device_config as executions
from digits.worker.training import numerics, restore, snapshots, usage
from digits.worker.training.activations import Activations
from digits.worker.training.checkpoints import Keeper
from digits.worker.training.device_config import Execution
from digits.worker.training.metric_rows import Curve, Row
from digits.worker.training.optimizers import Optimizer
from digits.worker.training.steps import Evaluation, Rows, Training
from digits.worker.training.tensorboard_log import TensorBoardLog, readable_graph

# A call of the training function takes about this long, so that a stop and the
# rows of metrics do not have to wait for longer.
CALL_SECONDS = 0.15
MAX_STEPS_PER_CALL = 1000

PROGRESS_SECONDS = 0.5

# Smallest difference between two epochs that counts.
_EPSILON = 1e-9

log = logging.getLogger(__name__)


def run(recipe: recipes.Train, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Do the training that ``recipe`` asks for; products go to the job's folder.

    Raises UserFault, or whatever the user's network raises.
    """
    point = _resumed(recipe, task_folder.parent, events)
    done = min(1.0, point.epoch / recipe.epochs) if point else 0.0
    events.append(Progressed(round(done, 6), doing="Reading the dataset"))
    execution, gpus = executions.prepare(recipe, events)
    seed = point.seed if point else secrets.randbelow(2**31) if recipe.seed is None else recipe.seed
    keras.utils.set_random_seed(seed % 2**32)
    with usage.reported(events, "GPU" if gpus else "CPU", gpus):
        return Trainer(recipe, task_folder.parent, events, seed, execution, point).run()


def _resumed(recipe: recipes.Train, job_folder: Path, events: EventLog) -> ResumePoint | None:
    """The newest intact resume point, if the recipe requests to resume; None if there is none.

    Raises UserFault if all resume points are damaged.
    """
    if not recipe.resume:
        return None
    snapshots.remove_halves(job_folder)
    point, faults = _newest_intact(job_folder)
    damage = " ".join(f"{fault.rstrip('.')}." for fault in faults.values())
    if faults and point is None:
        intact = snapshots.newest_intact(job_folder)
        raise UserFault(
            f"The training cannot resume because all of its resume points are damaged. {damage}",
            f"Start a new training with the weights of {intact.name}, which is intact."
            if intact
            else "Start a new training.",
        )
    # If they become readable again, their rows are no longer in the log.
    resume_point.discard(job_folder, faults)
    step, epoch = (point.step, point.epoch) if point else (0, 0.0)
    events.append(Resumed(step, round(epoch, 6)))
    log.info("The training resumes after step %d (epoch %.6g)", step, epoch)
    if point and faults:
        _warn(
            f"{damage} The training resumes from {point.snapshot} instead, after step {step:,} (epoch {epoch:.6g}).",
            events,
        )
    elif point is None and snapshots.of_epochs(job_folder):
        _warn("There is no resume point: the training restarts from the first step.", events)
    return point


def _newest_intact(job_folder: Path) -> tuple[ResumePoint | None, dict[str, str]]:
    """The newest intact resume point, and the faults of newer ones by snapshot."""
    points, faults = resume_point.resume_points(job_folder)
    for point in points:
        fault = snapshots.fault(job_folder / point.snapshot)
        if not fault:
            return point, faults
        faults[point.snapshot] = fault
    return None, faults


def _warn(message: str, events: EventLog) -> None:
    log.warning(message)
    events.append(Warned(message))


@dataclass(frozen=True)
class Moment:
    """Something to be done after ``step`` steps, when ``epoch`` epochs are over."""

    step: int
    epoch: float


def moments(interval: float, epochs: float, steps_per_epoch: float) -> list[Moment]:
    """When a thing is due that happens every ``interval`` epochs, and at the end; only then for 0."""
    last = Moment(math.ceil(epochs * steps_per_epoch - _EPSILON), epochs)
    due: dict[int, Moment] = {}
    for number in range(1, math.ceil(epochs / interval) if interval > 0 else 0):
        epoch = number * interval
        step = math.ceil(epoch * steps_per_epoch - _EPSILON)
        due[step] = Moment(step, epoch)  # of several due after the same step, the last
    return [*(moment for moment in due.values() if moment.step < last.step), last]


@dataclass
class Pace:
    """How many steps to take in a call, so that calls last about `CALL_SECONDS`."""

    steps: int = 1
    limit: int = MAX_STEPS_PER_CALL

    def took(self, steps: int, seconds: float) -> None:
        fitting = int(CALL_SECONDS * steps / max(seconds, 1e-6))
        # A first call is slow for reasons that pass: approach, do not jump.
        self.steps = max(1, min(fitting, 8 * self.steps, self.limit))


class Trainer:
    """One training. `build` and the loop write to the TensorBoard log ``board``.

    With ``measures_labels``, the steps also measure the cross-entropy over the classes, for the preflight.
    """

    board: TensorBoardLog
    measures_labels = False

    def __init__(
        self,
        recipe: recipes.Train,
        job_folder: Path,
        events: EventLog,
        seed: int,
        execution: Execution,
        point: ResumePoint | None,
    ) -> None:
        self.recipe, self.job_folder, self.events, self.seed = recipe, job_folder, events, seed
        self.execution = execution
        self.manifest = feeds.load_manifest(Path(recipe.dataset))
        self.batch = execution.batch_size
        self.step_records = self.batch * execution.batches
        self.train_records = self._records("train")
        taken = self.train_records.bytes if self.train_records and self.train_records.is_resident else 0
        self.val_records = self._records("val", taken)
        count = len(self.train_records) if self.train_records else 0
        if not count:
            raise UserFault("The dataset has no records to train with.")
        self.steps_per_epoch = count / self.step_records
        self.total_steps = math.ceil(recipe.epochs * self.steps_per_epoch - _EPSILON)
        self.rate = self._learning_rate()
        weights_of_classes, self.balanced = feeds.balance(
            recipe.balance, self.train_records.labels, len(self.manifest.labels)
        )
        self.prepare = feeds.preparation(
            self.manifest,
            Path(recipe.dataset),
            recipe.mean,
            recipe.crop_size,
            recipe.augment,
            weights_of_classes,
        )
        self.frozen = restore.Frozen(Path(recipe.weights) if recipe.weights else None, recipe.freeze)
        self.store = VariableStore(
            frozen=self.frozen,
            device=execution.weights_device,
            compute_type=execution.compute_type,
        )
        self.optimizer = self._optimizer()
        self.randomness = Randomness(self.seed)
        self.keeper = Keeper(recipe, job_folder, events)
        self.point = point
        self.step = self.first_step = point.step if point else 0
        self.validated = self.saved = -1
        self.pace, self.val_pace = self._pace(), self._pace()
        self.curve = Curve()
        self.started = self.progressed = time.monotonic()
        self.wants_pictures = False
        self.remark = ""
        self.is_stopping = lambda: False

    def run(self) -> dict[str, Any]:
        anew = -1 if self.recipe.resume else None
        resumed = self.point.step if self.point else anew
        with contextlib.ExitStack() as stack:
            self.board = stack.enter_context(TensorBoardLog(self.job_folder / "tb" / "train", resumed))
            self.val_board = self.board
            if self.val_records:
                self.val_board = stack.enter_context(TensorBoardLog(self.job_folder / "tb" / "val", resumed))
            self.build()
            if self.point:
                self._go_on(self.point)
            else:
                self.load_weights()
                self._validate(0.0)  # before the training images are decoded: the first point comes early
            self.feed = self._feed()
            stack.callback(self.feed.close)
            self.is_stopping = stack.enter_context(stopping.deferred())
            ended = self._loop()
        result = {"seed": self.seed, "steps": self.step, "parameters": self.store.parameters}
        return {**result, "ended_early": ended} if ended else result

    # Preparing

    def _records(self, split: str, taken: int = 0) -> feeds.Records | None:
        wanted = split in self.manifest.splits and self.manifest.splits[split].count > 0
        if split == "val":
            wanted = wanted and self.recipe.val_interval > 0
        if not wanted:
            return None
        records = feeds.Records(Path(self.recipe.dataset), self.manifest, split, taken=taken)
        self.events.append(records.input_prepared)
        return records

    def _learning_rate(self) -> LearningRate:
        recipe = self.recipe
        return LearningRate(
            recipe.lr_policy, recipe.solver.learning_rate, recipe.epochs * self.steps_per_epoch
        )

    def _optimizer(self) -> Optimizer:
        return Optimizer(self.recipe.solver)

    def _pace(self) -> Pace:
        resident = self.train_records.is_resident and (not self.val_records or self.val_records.is_resident)
        if self.recipe.numerics_checks:
            return Pace(limit=1)  # so that the step of a fault is known
        # Streamed images of a call lie in memory together.
        image_bytes = int(np.prod(self.manifest.shape)) * self.step_records
        return Pace(limit=MAX_STEPS_PER_CALL if resident else max(1, min(100, 2**26 // image_bytes)))

    def build(self) -> None:
        """Build the network for all stages. What is wrong with it, is raised here."""
        with streams.noted():
            self._build()

    def _build(self) -> None:
        self._progress("Building the network", now=True)
        net = self._network()
        shown, fault = inference.trace_shown(net, self.store)
        self.execution = self.execution.wanted_by(shown.built.tower)
        if self.recipe.numerics_checks and self.execution.compiled:
            self.execution = dataclasses.replace(self.execution, compiled=False)
            executions.tell_without_xla(self.recipe, self.events, "it leaves out the checks of numbers")
        self.training = self._training(net)
        with self._numerics():
            self.training.trace()
        self._tell_remark()
        self.warn_of_labels()
        if fault:
            reason = in_a_sentence(describe(fault))
            self.events.append(Warned(f"The network cannot predict from images. {reason}"))
        self.store.lock("in validation but not in training")
        self.tell_unmatched()
        if self.val_records:
            self.evaluation = Evaluation(net, self.store, self.prepare, Randomness(self.seed), self.execution)
            with self._numerics():
                self.evaluation.trace()
        self.randomness.begin()
        self.activations = self._activations(shown.build) if self.recipe.histograms else None
        self.keeper.check(self.evaluation.names if self.val_records else [])
        self.events.append(Built(layers=shown.layers, parameters=self.store.parameters))
        self.board.graph(readable_graph(shown.function))

    def build_nothing(self) -> None:
        """Be ready for steps that are built when they are taken: see `digits.worker.training.step_debugger`."""
        self.execution = dataclasses.replace(
            self.execution, devices=self.execution.devices[:1], compiled=False
        )
        self.training = self._training(self._network())

    def _network(self) -> network.Network:
        file = self.job_folder / self.recipe.network
        return network.load(file, self.prepare.shape, len(self.manifest.labels))

    def _training(self, net: network.Network) -> Training:
        return Training(
            net,
            self.store,
            self.prepare,
            self.optimizer,
            self.seed,
            self.randomness,
            self.execution,
            self.measures_labels,
        )

    def warn_of_labels(self) -> None:
        """Warn about labels that the loss misinterprets."""
        self.events.append(*map(Warned, self.training.label_flow.warnings))

    def tell_unmatched(self) -> None:
        """Warn about freeze patterns that match no variable."""
        for pattern in self.frozen.unmatched:
            self.events.append(Warned(f"No variable is called {pattern!r}, so it freezes none."))

    def _tell_remark(self) -> None:
        if self.training.remark != self.remark:
            self.remark = self.training.remark
            self.events.append(Warned(self.remark))

    def _activations(self, build: Callable[[tf.Tensor], network.Built]) -> Activations:
        """Those of the first records to validate with, or to train with where there are none."""
        records = self.val_records or self.train_records
        feed = records.streamed(iter([np.arange(min(self.batch, len(records)))]))
        try:
            images, _, _ = feed.take(1)
        finally:
            feed.close()
        return Activations(build, self.store, self.prepare, Randomness(self.seed), images)

    def _numerics(self) -> contextlib.AbstractContextManager[None]:
        return numerics.checked() if self.recipe.numerics_checks else contextlib.nullcontext()

    @contextlib.contextmanager
    def faults(self, rate: float) -> Iterator[None]:
        """Says of a failed check of numbers what the user can do with it."""
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            fault = numerics.fault(error, self.step + 1, rate)
            if fault is None:
                raise
            raise fault from None

    def load_weights(self) -> None:
        """Take the weights of the snapshot that the recipe names, if it does; tell of them and of what is frozen."""
        source, variables = self.recipe.weights, self.store.variables
        report = restore.restore(Path(source), variables) if source else restore.Report()
        trainable = {name for name, item in variables.items() if item.trainable}
        frozen = [
            name
            for name in variables
            if name in self.frozen or (name in trainable and name not in self.training.trained)
        ]
        if source or frozen:
            self.events.append(
                WeightsLoaded(
                    Path(source).name if source else "",
                    report.taken,
                    report.missing,
                    report.other_shape,
                    report.unused,
                    frozen,
                    [name for name in variables if name not in trainable and name not in self.frozen],
                )
            )
        for name, other in report.taken.items():
            log.info("%s is taken from %s", name, other)
        if report.remark:
            self.events.append(Warned(report.remark))

    def _go_on(self, point: ResumePoint) -> None:
        """Be as the training was at ``point``."""
        if (point.records, point.step_records) != (len(self.train_records), self.step_records):
            raise UserFault(
                "The training cannot go on: the dataset or the batch size was changed since.",
                "Start a new training.",
            )
        snapshots.restore_exactly(self.job_folder / point.snapshot, self._variables())
        self.curve.recall(point.step, self.training.names, point.curve)
        self.validated, self.saved = point.validated, point.saved
        self.wants_pictures = point.wants_pictures and bool(self.training.pictures)
        self.keeper.recall(point.watched)
        self.keeper.clear_away(point.snapshot)  # where it was killed before it could
        streams.restore_python_state(point.random)

    def _variables(self) -> dict[str, tf.Variable]:
        """All that the training changes, by name."""
        return {
            **self.store.variables,
            **self.store.local,
            **self.optimizer.state,
            **self.randomness.variables,
        }

    def _feed(self) -> feeds.Feed:
        self._progress("Decoding images", now=True)
        return self.train_records.feed(self.order())

    def order(self) -> feeds.Order:
        """The records of the steps that are still to be taken."""
        return feeds.training_order(
            len(self.train_records),
            self.step_records,
            self.seed,
            self.recipe.shuffle,
            self.step,
            balanced=self.balanced,
        )

    # The loop

    def _loop(self) -> str:
        """Train to the end; returns why it came early, if it did."""
        validations, savings = self._due(self.recipe.val_interval), self._due(self.recipe.snapshot_interval)
        validations = [moment for moment in validations if moment.step > self.validated]
        savings = [moment for moment in savings if moment.step > self.saved]
        if self.execution.compiled and not self.training.remark:
            self._progress("Compiling a step", now=True)  # a minute or more for a large network
        self.started = time.monotonic()
        ended = self._had_ended()
        while (validations or savings) and not ended:
            self._train_until(min(due[0].step for due in (validations, savings) if due))
            epoch, is_due = self._epoch(), False
            if validations and validations[0].step == self.step:
                self._report_training(self.curve.cut())
                epoch = validations.pop(0).epoch
                self._validate(epoch)
                ended = self.keeper.reason_to_end(epoch) if self.step < self.total_steps else ""
            if savings and savings[0].step == self.step:
                epoch, is_due = savings.pop(0).epoch, True
            if is_due or ended or self.keeper.wants_snapshot():
                self._save(epoch, is_last=bool(ended) or self.step == self.total_steps)
            if self.activations:
                self._show_spreads(self.activations)
        if ended:
            log.info(ended)
        self._progress("", now=True)
        return ended

    def _had_ended(self) -> str:
        """Why the training had come to its end where it goes on; decided by the latest validation alone."""
        latest = [due.epoch for due in self._due(self.recipe.val_interval) if due.step == self.validated]
        return self.keeper.reason_to_end(latest[0]) if latest and self.validated < self.total_steps else ""

    def _due(self, interval: float) -> list[Moment]:
        return moments(interval, self.recipe.epochs, self.steps_per_epoch)

    def _train_until(self, step: int) -> None:
        while self.step < step:
            untraced = self._steps_to_trace()
            count = min(self.pace.steps, step - self.step, max(1, untraced))
            # The first step and one with pictures also pay for preparing their graphs.
            is_usual = self.step > self.first_step and not self.wants_pictures
            began = time.monotonic()
            with self._traced() if untraced == 0 else contextlib.nullcontext():
                rows = self._pictured_step() if self.wants_pictures else self._steps(count)
            seconds = time.monotonic() - began
            self.step += len(rows)
            self.pace.took(len(rows), seconds)
            self._report_training(self.curve.add(rows, seconds if is_usual else None))
            self._progress("Training")
            if self.is_stopping():
                self._leave()
            if self.step < step and self.keeper.is_due():
                self._save_to_resume()

    def _steps_to_trace(self) -> int:
        """How many steps there are before the next one that the profiler looks at."""
        interval = self.recipe.traces_interval
        if not interval:
            return self.total_steps
        # The first step prepares the graph: its times say nothing.
        return -self.step % interval if self.step > self.first_step else interval

    @contextlib.contextmanager
    def _traced(self) -> Iterator[None]:
        """The profiler looks at what is done inside; TensorBoard shows it with its profile plugin."""
        tf.profiler.experimental.start(str(self.job_folder / "tb" / "train"))
        try:
            yield
        finally:
            tf.profiler.experimental.stop()

    def _show_spreads(self, activations: Activations) -> None:
        """Histograms of the weights, and of what the layers give; nothing of the training changes by it."""
        shown = {name: item for name, item in self.store.variables.items() if item.dtype.is_floating}
        self.board.histograms(self.step, {name: item.numpy() for name, item in shown.items()})
        with self._unchanged():
            self.val_board.spreads(self.step, activations.spreads())

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """What the network changes inside without being trained is put back."""
        counters, drawn = self._counters(), streams.python_state()
        try:
            yield
        finally:
            self._reset(counters)
            streams.restore_python_state(drawn)

    def _steps(self, count: int) -> Rows:
        rates = [self.rate.at(step) for step in range(self.step, self.step + count)]
        with self.faults(rates[0]):
            rows = self.training.steps(self.feed.take(count), rates, self.step)
        self._tell_remark()
        self._check_losses(rows, rates)
        return rows

    def _pictured_step(self) -> Rows:
        self.wants_pictures = False
        rate = self.rate.at(self.step)
        row, values = self.training.step_with_pictures(self.feed.take(1), rate, self.step)
        self._check_losses(row, [rate])
        self.board.pictures(self.step + 1, self.training.pictures, values)
        return row

    def _check_losses(self, rows: Rows, rates: list[float]) -> None:
        bad = np.flatnonzero(~np.isfinite(rows[:, 0]))
        if bad.size:
            place = int(bad[0])
            raise _diverged(float(rows[place, 0]), self.step + place + 1, rates[place])

    def _report_training(self, rows: Sequence[Row]) -> None:
        if rows:
            self._report("train", [self._measured(row) for row in rows])

    def _measured(self, row: Row) -> Measured:
        values = dict(zip(self.training.names, row.means, strict=True))
        values["learning_rate"] = self.rate.at(row.step - 1)
        if row.steps_per_second is not None:
            values["images_per_second"] = row.steps_per_second * self.step_records
        return Measured("train", row.step, round(self._epoch(row.step), 6), values)

    def _report(self, stage: str, rows: Sequence[Measured]) -> None:
        self.events.append(*rows)
        (self.board if stage == "train" else self.val_board).scalars([(row.step, row.values) for row in rows])
        title = "Training" if stage == "train" else "Validation"
        numbers = ", ".join(f"{name} = {value:.6g}" for name, value in rows[-1].values.items())
        log.info("%s (epoch %.6g): %s", title, rows[-1].epoch, numbers)

    def _epoch(self, step: int | None = None) -> float:
        steps = self.step if step is None else step
        return min(steps / self.steps_per_epoch, float(self.recipe.epochs))

    def _validate(self, epoch: float) -> None:
        """One pass over the validation records; every record counts once and alike."""
        if not self.val_records:
            return
        self._progress("Validating", now=True)
        counters, drawn = self._counters(), streams.python_state()
        found: list[Rows] = []
        count = len(self.val_records)
        self.evaluation.begin(self.step)
        feed = self.val_records.feed(feeds.evaluation_order(count, self.batch))
        try:
            sizes = feeds.evaluation_sizes(count, self.batch)
            full = sizes.count(self.batch)
            while full:
                batches = min(full, self.val_pace.steps)
                began = time.monotonic()
                with self.faults(self.rate.at(max(0, self.step - 1))):
                    rows = self.evaluation(feed.take(batches))
                self.val_pace.took(batches, time.monotonic() - began)
                found.append(rows)
                full -= batches
                self._progress("Validating")
                if self.is_stopping():
                    self._reset(counters)
                    streams.restore_python_state(drawn)
                    self._leave()
            if sizes[-1] != self.batch:
                with self.faults(self.rate.at(max(0, self.step - 1))):
                    found.append(self.evaluation(feed.take(1)))
        finally:
            feed.close()
        # Moving averages and the like are of the training; what `tf.metrics` counts goes on.
        self._reset([pair for pair in counters if plain_name(pair[0]) in self.store.variables])
        # Added up at the end, so that the sum does not depend on how many batches a call took.
        rows = np.concatenate(found).astype(np.float64)
        values = dict(zip(self.evaluation.names, (np.array(sizes) @ rows / count).tolist(), strict=True))
        self.validated = self.step
        self._report("val", [Measured("val", self.step, round(epoch, 6), values)])
        if self.step and not math.isfinite(values["loss"]):
            raise _diverged(values["loss"], self.step, self.rate.at(self.step - 1), "validation loss")
        self.wants_pictures = bool(self.training.pictures) and not self.recipe.numerics_checks
        if self.step:
            self.keeper.watch(epoch, values)

    def _counters(self) -> list[tuple[tf.Variable, Any]]:
        """What a validation may change: states of random generators, and the network's own."""
        variables = {**self.store.variables, **self.store.local, **self.randomness.variables}
        return [(item, item.numpy()) for item in variables.values() if not item.trainable]

    def _reset(self, counters: list[tuple[tf.Variable, Any]]) -> None:
        for variable, value in counters:
            variable.assign(value)

    def _save(self, epoch: float, is_last: bool) -> None:
        self._progress("Saving a snapshot", now=True)
        began = time.monotonic()
        name = snapshots.prefix(self.job_folder, epoch).name
        try:
            self.keeper.save(epoch, self.step, self._variables())
        except Exception as error:
            self.keeper.do_without(name, error, is_needed=is_last)
            return
        self.saved = self.step
        self._remember(name, began, is_last)

    def _save_to_resume(self) -> None:
        began = time.monotonic()
        name = snapshots.resume_prefix(self.job_folder, self.step).name
        try:
            self.keeper.save_to_resume(self.step, self._variables())
        except Exception as error:
            self.keeper.do_without(name, error)
            return
        self._remember(name, began)

    def _leave(self) -> None:
        """Put away what there is, and stop."""
        self._save_to_resume()
        raise Stopped

    def _remember(self, snapshot: str, began: float, is_last: bool = False) -> None:
        point = ResumePoint(
            snapshot=snapshot,
            step=self.step,
            epoch=self._epoch(),
            seed=self.seed,
            records=len(self.train_records),
            step_records=self.step_records,
            validated=self.validated,
            saved=self.saved,
            wants_pictures=self.wants_pictures,
            watched=self.keeper.watched,
            random=streams.python_state(),
            curve=self.curve.state(self.training.names),
        )
        try:
            for board in {self.board, self.val_board}:
                board.sync()
            self.keeper.remember(point, is_last)
        except OSError as error:
            self.keeper.do_without(f"{snapshot}{resume_point.SUFFIX}", error)
            return
        self.keeper.took(time.monotonic() - began)

    def _progress(self, doing: str, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self.progressed < PROGRESS_SECONDS:
            return
        self.progressed = moment
        fraction = self.step / self.total_steps
        done = self.step - self.first_step
        left = (moment - self.started) * (self.total_steps - self.step) / done if done else None
        self.events.append(Progressed(round(fraction, 6), left, doing))


def _diverged(loss: float, step: int, rate: float, what: str = "loss") -> UserFault:
    value = "not a number (NaN)" if math.isnan(loss) else "infinite"
    return UserFault(
        f"The {what} became {value} at step {step}, at the learning rate {rate:g}.",
        f"Lower the learning rate, for example to {rate / 10:.3g}, or begin with a warm-up. If it happens at a low "
        "one too, look in the network for a division by zero or the logarithm of zero: training with "
        "“Detect NaN/Inf” names the operation where it begins. Snapshots that were saved before are still good.",
    )
