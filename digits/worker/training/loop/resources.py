"""What a training uses: its dataset, its variables, random numbers, and the weights that it starts from."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog, Warned
from digits.core.recipe import Solver
from digits.core.splits import Split
from digits.data.manifest import Manifest
from digits.kinds.standard_networks import Network as StandardNetwork
from digits.kinds.standard_networks import of_text
from digits.worker import network_loader
from digits.worker.compat.half_precision import reason_for_float32
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.input.preparation import Chunk, Preparation
from digits.worker.network.network import Network
from digits.worker.network.variables import VariableStore
from digits.worker.randomness.streams import Randomness
from digits.worker.training.loop.timeline import Timeline, max_steps
from digits.worker.training.loop.validation import SavedState
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.optimizers import STATE_SCOPE, Optimizer
from digits.worker.training.step.training_step import Phase, StepOptions, Traced, TrainingStep
from digits.worker.training.weights import restore
from digits.worker.training.weights.initial_weights import InitialWeights


@dataclass(frozen=True)
class TrainingData:
    """The dataset of a training.

    ``step_records`` records make a step, in batches of ``batch_size``. ``balanced`` contains the groups of the
    training records, int32 [N], if epochs draw from all groups equally often.
    """

    manifest: Manifest
    train: feeds.Records
    val: feeds.Records | None
    preparation: Preparation
    batch_size: int
    step_records: int
    shuffle: bool = True
    balanced: NDArray[np.int32] | None = None

    @property
    def steps_per_epoch(self) -> float:
        """Steps in which each training record is used once, a fraction."""
        return len(self.train) / self.step_records

    @property
    def validation_records(self) -> int:
        return len(self.val) if self.val else 0

    @property
    def step_bytes(self) -> int:
        """The size of the decoded images of a step, in bytes."""
        return int(np.prod(self.manifest.shape)) * self.step_records

    @property
    def is_resident(self) -> bool:
        """Whether the decoded images of all splits are cached in memory."""
        return self.train.is_resident and (self.val is None or self.val.is_resident)

    def order(self, seed: int, first_step: int = 0) -> feeds.Order:
        """The indexes of the records of each step from ``first_step`` on, of this worker, without end."""
        order = feeds.training_order(
            len(self.train), self.step_records, seed, self.shuffle, first_step, balanced=self.balanced
        )
        share = self.preparation.share
        return (records[share.positions] for records in order) if share else order

    def end_claims(self) -> None:
        """Leave the memory that resident images would need to other trainings."""
        for records in filter(None, (self.train, self.val)):
            records.end_claim()

    def read_first(self, records: feeds.Records) -> Chunk:
        """Decode the first batch of ``records``, which may be smaller than `batch_size`."""
        return records.read(np.arange(min(self.batch_size, len(records))))


class Resources:
    """What a training uses: the dataset of ``recipe``, variables, random numbers, and the weights that it starts from.

    The network is in ``job_folder``. ``head_optimizer`` is used in the first phase of fine-tuning. ``config`` describes
    devices, precision and batches. The constructor raises UserFault for an unusable dataset or recipe.
    """

    def __init__(
        self, recipe: recipes.Train, job_folder: Path, events: EventLog, config: DeviceConfig, seed: int
    ) -> None:
        self.recipe, self.job_folder, self.events = recipe, job_folder, events
        self.config, self.seed = _in_possible_precision(config, job_folder / recipe.network, events), seed
        self.data, self.weights = _load_data(recipe, config, events), InitialWeights(recipe, events)
        self.frozen = restore.Frozen(self.weights.path, recipe.freeze)
        self.store = VariableStore(frozen=self.frozen, device=config.weights_device)
        self.optimizer = Optimizer(recipe.solver)
        self.head_optimizer = Optimizer(Solver(type="ADAM"), f"{STATE_SCOPE}/head")
        self.randomness = Randomness(seed)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables that the training modifies, by name."""
        return {
            **self.store.variables,
            **self.store.local,
            **self.optimizer.state,
            **self.head_optimizer.state,
            **self.randomness.state,
        }

    @property
    def timeline(self) -> Timeline:
        return Timeline(self.recipe.epochs, self.data.steps_per_epoch)

    def save_state(self) -> SavedState:
        """Save what running the network may modify apart from its weights."""
        return SavedState(self.store, self.randomness)

    @contextlib.contextmanager
    def save_all(self) -> Iterator[None]:
        """Restore all variables and what running the network may modify when the block ends."""
        values = [(item, item.numpy()) for item in self.variables.values()]
        with self.save_state():
            yield
        for variable, value in values:
            variable.assign(value)

    @property
    def measures_updates(self) -> bool:
        """Whether some steps measure gradients and updates. Not with numerics checks, which already slow steps down."""
        return self.recipe.gradient_metrics and not self.recipe.numerics_checks

    @property
    def max_steps_per_call(self) -> int:
        """The most steps that a call of a step function or an evaluation may run."""
        if self.recipe.numerics_checks:
            return 1  # so that the step of a fault is known
        return max_steps(self.data.is_resident, self.data.step_bytes)

    def load_weights(self, traced: Traced) -> None:
        """Load the weights that the recipe names, if any, and report them. Raises UserFault."""
        self.weights.load(self.store, self.frozen, traced.trained)

    @cached_property
    def standard(self) -> StandardNetwork | None:
        """The standard network that is trained; None for another one."""
        return of_text((self.job_folder / self.recipe.network).read_text("utf-8", "replace"))

    def network(self) -> Network:
        """Load the network; raises UserFault, or whatever its text raises."""
        file, dataset = self.job_folder / self.recipe.network, Path(self.recipe.dataset)
        return network_loader.load_for(self.data.manifest, dataset, file, self.data.preparation.shape)

    def step(
        self, net: Network, phase: Phase, config: DeviceConfig, *, measures_labels: bool
    ) -> TrainingStep:
        """Return the training step of a ``phase``; with ``measures_labels``, see `StepOptions`."""
        options = StepOptions(phase, self.seed, config, measures_labels, self.measures_updates)
        return TrainingStep(net, self.store, self.data.preparation, self.randomness, options)


def _in_possible_precision(config: DeviceConfig, network: Path, events: EventLog) -> DeviceConfig:
    """Set Keras' dtype policy to the precision of ``config``, or to float32 for a ``network`` that needs it."""
    if config.precision != "float32" and (reason := reason_for_float32(network_loader.read(network))):
        events.append(Warned(reason))
        config = dataclasses.replace(config, precision="float32")
    keras.config.set_dtype_policy(config.precision)
    return config


def _load_data(recipe: recipes.Train, config: DeviceConfig, events: EventLog) -> TrainingData:
    """Open the dataset of ``recipe`` and report how each split is loaded.

    Raises UserFault if the dataset is unreadable or has no training records.
    """
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    decoder = feeds.Decoder(manifest)
    train = _records(dataset, manifest, "train", events, decoder)
    if train is None:
        raise UserFault("The dataset has no records to train with.")
    # Memory reserved for training images is not available for validation images.
    reserved = train.bytes if train.is_resident else 0
    val = _records(dataset, manifest, "val", events, decoder, reserved) if recipe.val_interval > 0 else None
    class_weights, balanced = feeds.balance(recipe.balance, train.groups, manifest)
    preparation = feeds.preparation(
        manifest, dataset, recipe.mean, recipe.crop_size, recipe.augment, class_weights
    )
    preparation = dataclasses.replace(preparation, share=config.share(preparation.blends))
    step_records = config.batch_size * config.batches
    return TrainingData(
        manifest, train, val, preparation, config.batch_size, step_records, recipe.shuffle, balanced
    )


def _records(
    dataset: Path,
    manifest: Manifest,
    split: Split,
    events: EventLog,
    decoder: feeds.Decoder,
    reserved: int = 0,
) -> feeds.Records | None:
    if split not in manifest.splits or not manifest.splits[split].count:
        return None
    records = feeds.Records(dataset, manifest, split, taken=reserved, decoder=decoder)
    events.append(records.input_prepared)
    return records
