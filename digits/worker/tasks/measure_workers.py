"""Compare the steps of several workers with those of one, by the workers themselves, where they run.

In each round, the first worker takes steps of the whole batches by itself while the others wait, and then all of them
take steps together, as in the training: with its threads, its share of each batch, and its sums over the network. On
this machine, the workers divide its cores, so the process that has started them takes the steps of one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed
from digits.worker.failure import PartnerLost
from digits.worker.gang import loopback
from digits.worker.gang.gang import ALONE, Gang, join
from digits.worker.gang.rendezvous import Rendezvous, node_name
from digits.worker.gang.share import Share
from digits.worker.input import feeds
from digits.worker.input.preparation import Chunk
from digits.worker.tasks.forecast import Rounds
from digits.worker.training.loop import setup
from digits.worker.training.loop.setup import Resources, Steps
from digits.worker.training.loop.tensorboard_log import TensorBoardLog
from digits.worker.training.loop.timeline import Pace
from digits.worker.training.step import device_config, numerics
from digits.worker.training.step.step_function import StepFunction
from digits.worker.training.step.training_step import TrainingStep

# Time to repeat rounds, in seconds, unless they are too few; and the time after which they suffice in any case.
MEASURED_SECONDS, MAX_SECONDS = 10.0, 60.0
MIN_ROUNDS, MAX_ROUNDS = 7, 40
# The same without a limit for the comparison of two functions, which takes less time.
COMPARED_SECONDS, MIN_COMPARISONS = 2.0, 3
# Calls before the first round, which adapt the number of steps per call and fill the caches.
WARM_UP_CALLS = 3


def run(
    recipe: recipes.Preflight, meeting: Rendezvous, task_folder: Path, events: EventLog
) -> dict[str, Any]:
    """Measure the workers of ``meeting``, of which each calls this; return `forecast.Forecast` as ``workers``.

    Raises UserFault and PartnerLost, or whatever the user's network raises.
    """
    try:
        return _measure(recipe, meeting, task_folder, events)
    except PartnerLost as error:
        hint = (
            "Check that the nodes see the jobs folder and reach each other at any port, then measure again."
        )
        raise PartnerLost(error.message, hint) from None


def _measure(
    recipe: recipes.Preflight, meeting: Rendezvous, task_folder: Path, events: EventLog
) -> dict[str, Any]:
    events.append(Progressed(0.0, doing=f"Waiting for {meeting.workers} workers"))
    nodes = meeting.exchange("node", node_name())
    gang = join(meeting)
    with gang.explained():
        events.append(Progressed(0.1, doing="Building the network"))
        config, _ = device_config.configure(recipe, events, gang)
        seed = recipe.seed or 0
        keras.utils.set_random_seed(seed % 2**32)
        of_one = dataclasses.replace(config, gang=ALONE, averaging_interval=1)
        resources = Resources(recipe, task_folder.parent, events, of_one, seed)
        resources.data.end_claims()  # only a batch of images that are cached later is decoded
        with TensorBoardLog(task_folder.parent / "tb", is_silent=True) as board:
            steps = setup.build(resources, board)
        config = config.supported_by(steps.shown.built.tower)
        config = dataclasses.replace(config, compiled=steps.training.is_compiled)
        share = config.share(bool(recipe.augment.mixup or recipe.augment.cutmix))
        assert share is not None
        with feed(resources) as all_records, feed(resources, share) as some_records:
            alone: Callable[[], float] = Calls(resources, steps, steps.training, all_records).call
            if not recipe.apart and gang.is_lead:
                alone = loopback.ask_parent(task_folder)
            shared = Calls(resources, steps, _shared_function(resources, steps, config, share), some_records)
            gang.take_from_lead(resources.variables)
            events.append(Progressed(0.5, doing=f"Measuring {gang.workers} workers"))
            found = _Rounds(gang, alone, shared, config.averaging_interval).measure(
                nodes if recipe.apart else []
            )
    return {"workers": asdict(found.forecast())}


def _shared_function(
    resources: Resources, steps: Steps, config: device_config.DeviceConfig, share: Share
) -> StepFunction:
    """Return the function of the steps of which this worker computes a ``share``, of the network of ``steps``."""
    step = steps.training.step
    return StepFunction(
        TrainingStep(
            step.network,
            resources.store,
            dataclasses.replace(step.preparation, share=share),
            resources.randomness,
            dataclasses.replace(step.options, config=config),
        )
    )


class Repeated:
    """A feed of one batch, again and again, like one of images that are cached in memory."""

    def __init__(self, batch: Chunk) -> None:
        self._batch = batch

    def take(self, batches: int) -> Chunk:
        return self._batch._replace(positions=tf.tile(self._batch.positions, [batches, 1]))


@contextlib.contextmanager
def feed(resources: Resources, share: Share | None = None) -> Iterator[feeds.Feed | Repeated]:
    """Feed batches, or the ``share`` of a worker in each, in the way of the training."""
    data = resources.data
    order = (records[share.positions] if share else records for records in data.order(resources.seed))
    is_resident = data.train.is_resident
    with contextlib.closing(
        data.train.stream(itertools.islice(order, 1) if is_resident else order)
    ) as stream:
        yield Repeated(stream.take(1)) if is_resident else stream


@dataclass
class Calls:
    """Calls of a step ``function`` with what is in a ``feed``."""

    resources: Resources
    steps: Steps
    function: StepFunction
    feed: feeds.Feed | Repeated

    def __post_init__(self) -> None:
        self.pace = Pace(self.resources.max_steps_per_call)
        self._done = 0

    @property
    def trained(self) -> list[tf.Variable]:
        """The variables that the steps train."""
        names = self.function.traced.trained
        return [item for name, item in self.resources.store.variables.items() if name in names]

    def call(self, count: int = 0) -> float:
        """Take ``count`` steps, by default as many as a training would in one call; return the seconds of each."""
        count = count or self.pace.steps
        rates = [self.steps.learning_rate.at(0)] * count
        began = time.perf_counter()
        chunk = self.feed.take(count)
        with numerics.explained(self._done + 1, rates[0]):
            self.function.steps(chunk, rates, self._done)
        seconds = time.perf_counter() - began
        self._done += count
        self.pace.update(count, seconds)
        return seconds / count


def compare(one: Calls, other: Calls) -> float:
    """Return how long a step of ``one`` takes as a multiple of one of ``other``, measured in turns."""
    ratios: list[float] = []
    for _ in range(WARM_UP_CALLS):
        one.call()
        other.call()
    began = time.monotonic()
    while len(ratios) < MIN_COMPARISONS or time.monotonic() - began < COMPARED_SECONDS:
        ratios.append(one.call() / other.call())
    return statistics.median(ratios)


class _Rounds:
    """Rounds in which the lead takes steps ``alone``, and then all workers ``shared`` ones."""

    def __init__(
        self, gang: Gang, alone: Callable[[], float], shared: Calls, averaging_interval: int
    ) -> None:
        self._gang, self._alone, self._shared = gang, alone, shared
        self._interval = averaging_interval
        # Workers that average seldom exchange all variables, others the gradients in each step.
        variables = shared.resources.variables.values() if averaging_interval > 1 else shared.trained
        self._message = np.zeros(sum(item.shape.num_elements() for item in variables), np.float32)

    def measure(self, nodes: list[str]) -> Rounds:
        """Measure rounds until they suffice; return them."""
        for _ in range(WARM_UP_CALLS):
            self._round()
        found: list[tuple[float, float, float]] = []
        began = time.monotonic()
        while self._gang.agree(self._needs_more(len(found), time.monotonic() - began))[0]:
            found.append(self._round())
        alone, together, adding = zip(*found, strict=True)
        return Rounds(self._gang.workers, alone, together, adding, self._message.nbytes, nodes)

    def _needs_more(self, rounds: int, seconds: float) -> bool:
        if rounds >= MAX_ROUNDS or (seconds > MAX_SECONDS and rounds):
            return False
        return self._gang.is_lead and (rounds < MIN_ROUNDS or seconds < MEASURED_SECONDS)

    def _round(self) -> tuple[float, float, float]:
        """Return the seconds of a step of one worker, of a step of all, and of a sum."""
        gang = self._gang
        alone = self._alone() if gang.is_lead else 0.0
        steps = (
            self._shared.pace.steps if self._interval == 1 else min(self._shared.pace.steps, self._interval)
        )
        count = int(gang.agree(steps if gang.is_lead else 0)[0])
        together = self._shared.call(count)
        began = time.perf_counter()
        gang.reduce(self._message)
        adding = (time.perf_counter() - began) / self._interval
        return alone, together + (adding if self._interval > 1 else 0.0), adding
