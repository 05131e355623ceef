"""The recipe of a dataset for image classification."""

from __future__ import annotations

import secrets
from pathlib import Path

from msgspec import Struct, field

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent, Positive
from digits.data.sample_catalog import Sample

KIND = "image-classification"


class FolderSplit(Struct, kw_only=True, frozen=True):
    """The folder that holds the images of a split, and the number of images allowed per class."""

    folder: str
    min_per_class: Positive = 2
    max_per_class: Positive | None = None


class CreateClassification(CreateDataset, kw_only=True):
    """Read a folder of images with a sub-folder for each class.

    ``val`` and ``test`` are separate folders; without them ``pct_val`` and ``pct_test`` percent of
    each class of ``train`` are taken. With ``sample``, a
    sample dataset of `digits.data.sample_catalog` is first downloaded to the parent of the train folder, from
    ``sample_mirrors`` if its own address fails.
    """

    kind: str = KIND
    train: FolderSplit
    val: FolderSplit | None = None
    test: FolderSplit | None = None
    pct_val: Percent = 25.0
    pct_test: Percent = 0.0
    sample: str | None = None
    sample_mirrors: list[str] = field(default_factory=list)


Recipe = CreateClassification


def for_sample(sample: Sample, folder: Path, mirrors: list[str]) -> CreateClassification:
    """The recipe that downloads ``sample`` to a folder of its own in ``folder``, with its train and test split."""
    source = folder / sample.id
    return CreateClassification(
        train=FolderSplit(folder=str(source / "train"), min_per_class=1),
        val=FolderSplit(folder=str(source / "test"), min_per_class=1),
        pct_val=0.0,
        width=sample.width,
        height=sample.height,
        channels=1 if sample.channels == 1 else 3,
        seed=secrets.randbelow(2**31),
        sample=sample.id,
        sample_mirrors=mirrors,
    )
