"""The recipe of a dataset for image classification."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from digits.core.recipe import CreateDataset
from digits.data.sample_catalog import Sample

KIND = "image-classification"


@dataclass(kw_only=True)
class FolderSplit:
    """The folder that holds the images of a split, and the number of images allowed per class."""

    folder: str
    min_per_class: int = 2
    max_per_class: int | None = None


@dataclass(kw_only=True)
class CreateClassification(CreateDataset):
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
    pct_val: float = 25
    pct_test: float = 0
    sample: str | None = None
    sample_mirrors: list[str] = field(default_factory=list)


Recipe = CreateClassification


def for_sample(sample: Sample, folder: Path, mirrors: list[str]) -> CreateClassification:
    """The recipe that downloads ``sample`` to a folder of its own in ``folder``, with its train and test split."""
    source = folder / sample.id
    return CreateClassification(
        train=FolderSplit(folder=str(source / "train"), min_per_class=1),
        val=FolderSplit(folder=str(source / "test"), min_per_class=1),
        pct_val=0,
        width=sample.width,
        height=sample.height,
        channels=sample.channels,
        seed=secrets.randbelow(2**31),
        sample=sample.id,
        sample_mirrors=mirrors,
    )
