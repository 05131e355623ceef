"""The recipe of a dataset for image classification."""

from __future__ import annotations

from dataclasses import dataclass

from digits.core.recipe import CreateDataset


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
    each class of ``train`` are taken. With ``sample``, a set of `digits.data.samples` is
    first downloaded to the parent of the train folder.
    """

    train: FolderSplit
    val: FolderSplit | None = None
    test: FolderSplit | None = None
    pct_val: float = 25
    pct_test: float = 0
    sample: str | None = None


Recipe = CreateClassification
