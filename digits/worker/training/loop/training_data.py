"""The records of a training: which ones, in which order, and how they become the network's input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.events import EventLog
from digits.core.recipe import Train
from digits.core.splits import Split
from digits.data.manifest import Manifest
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.input.preparation import Chunk, Preparation
from digits.worker.training.step.device_config import DeviceConfig


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
    def step_bytes(self) -> int:
        """The size of the decoded images of a step, in bytes."""
        return int(np.prod(self.manifest.shape)) * self.step_records

    @property
    def is_resident(self) -> bool:
        """Whether the decoded images of all splits are cached in memory."""
        return self.train.is_resident and (self.val is None or self.val.is_resident)

    def order(self, seed: int, first_step: int = 0) -> feeds.Order:
        """The indexes of the records of each step from ``first_step`` on, without end."""
        return feeds.training_order(
            len(self.train), self.step_records, seed, self.shuffle, first_step, balanced=self.balanced
        )

    def end_claims(self) -> None:
        """Leave the memory that resident images would need to other trainings."""
        for records in filter(None, (self.train, self.val)):
            records.end_claim()

    def read_first(self, records: feeds.Records) -> Chunk:
        """Decode the first batch of ``records``, which may be smaller than `batch_size`."""
        return records.read(np.arange(min(self.batch_size, len(records))))


def load(recipe: Train, config: DeviceConfig, events: EventLog) -> TrainingData:
    """Open the dataset of ``recipe`` and report how each split is loaded.

    Raises UserFault if the dataset is unreadable or has no training records.
    """
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    train = _records(dataset, manifest, "train", events)
    if train is None:
        raise UserFault("The dataset has no records to train with.")
    # Memory reserved for training images is not available for validation images.
    reserved = train.bytes if train.is_resident else 0
    val = _records(dataset, manifest, "val", events, reserved) if recipe.val_interval > 0 else None
    class_weights, balanced = feeds.balance(recipe.balance, train.groups, manifest)
    preparation = feeds.preparation(
        manifest, dataset, recipe.mean, recipe.crop_size, recipe.augment, class_weights
    )
    step_records = config.batch_size * config.batches
    return TrainingData(
        manifest, train, val, preparation, config.batch_size, step_records, recipe.shuffle, balanced
    )


def _records(
    dataset: Path, manifest: Manifest, split: Split, events: EventLog, reserved: int = 0
) -> feeds.Records | None:
    if split not in manifest.splits or not manifest.splits[split].count:
        return None
    records = feeds.Records(dataset, manifest, split, taken=reserved)
    events.append(records.input_prepared)
    return records
