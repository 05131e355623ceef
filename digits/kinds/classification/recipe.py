"""The recipe of a dataset for image classification."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field, structs

from digits.core.schema import Positive
from digits.data.databases.convert import IMAGE, LABEL, Labels, OldDataset
from digits.data.samples.catalog import Sample
from digits.data.sources.shares import CreateWithShares, need_one_source
from digits.data.tables.tables import Dialect
from digits.kinds.sources.records import RecordSource
from digits.kinds.sources.tables import TableSettings


class FolderSplit(Struct, kw_only=True, frozen=True):
    """The folder that holds the images of a split, and the number of images allowed per class.

    ``more_folders`` are further ones; the images of classes with the same name are merged.
    """

    folder: str
    more_folders: list[str] = field(default_factory=list)
    min_per_class: Positive = 2
    max_per_class: Positive | None = None

    @property
    def folders(self) -> list[str]:
        return [self.folder, *self.more_folders]


class ListedSplit(Struct, kw_only=True, frozen=True):
    """A file that lists images with labels, and the folder that relative paths in it start from."""

    file: str
    folder: str


class TextFiles(Struct, kw_only=True, frozen=True, tag="textfile"):
    """Lines of a path and the index of a class, from 0; line i of the file ``labels`` is the name of class i - 1.

    Without ``shuffle``, records have the order of the lines.
    """

    train: ListedSplit
    val: ListedSplit | None = None
    test: ListedSplit | None = None
    labels: str = ""
    shuffle: bool = True


class Tables(TableSettings, kw_only=True, frozen=True, tag="csv"):
    """CSV files with a column of images and one of labels, by name; see `digits.data.tables.tables`.

    An empty name is that of the first column, or, for the label, of the first other column. An empty
    delimiter is detected.
    """

    train: ListedSplit
    val: ListedSplit | None = None
    test: ListedSplit | None = None
    image_column: str = ""
    label_column: str = ""


class DatasetFolder(Struct, kw_only=True, frozen=True, tag="huggingface"):
    """A dataset that the Hugging Face library ``datasets`` can load: see `digits.data.sources.dataset_folder`.

    ``folder`` can also be a Parquet file, one of several shards, or a pattern. Empty names of columns are detected.
    """

    folder: str
    image_column: str = ""
    label_column: str = ""

    @property
    def dialect(self) -> Dialect:
        return Dialect(header="yes")


class LabeledRecords(RecordSource, kw_only=True, frozen=True, tag="tfrecord"):
    """TFRecord files with an image and a label each. ``labels`` is a file with the names of integer labels."""

    label_feature: str = ""
    labels: str = ""


class CreateClassification(CreateWithShares, kw_only=True):
    """Read images with one label each.

    The source is ``files``, a ``database``, or folders with a sub-folder for each class: ``train``, and ``val`` and
    ``test`` if these are separate. With ``sample``, a sample dataset of `digits.data.samples.catalog` is first
    downloaded to the parent of the train folder, from ``sample_mirrors`` if its own address fails. Folders must
    contain at least two classes, unless ``one_class``. With ``classes_from_names``, the class of an image is the
    beginning of its file name, up to the last numbers, as in ``cat.0.jpg``; folders do not matter. ``class_names`` are
    those of CSV files in their order; by default, the labels of the training rows, sorted.
    """

    database_labels: ClassVar[Labels] = "class"

    kind: str = "image-classification"
    train: FolderSplit | None = None
    val: FolderSplit | None = None
    test: FolderSplit | None = None
    files: TextFiles | Tables | DatasetFolder | LabeledRecords | None = None
    database: OldDataset | None = None
    one_class: bool = False
    classes_from_names: bool = False
    class_names: list[str] = field(default_factory=list)
    sample: str | None = None
    sample_mirrors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        need_one_source("a dataset for image classification", self, "train", "files", "database")

    @property
    def records(self) -> LabeledRecords | None:
        """The TFRecord files, if they are the source."""
        return self.files if isinstance(self.files, LabeledRecords) else None

    def with_records(self, paths: dict[str, Any]) -> CreateClassification:
        """Return the recipe with the TFRecord files of the converted ``database``; raises UnusableSource."""
        assert self.database is not None
        names = self.database.class_names()
        files = LabeledRecords(**paths, image_feature=IMAGE, label_feature=LABEL, labels=names)
        return structs.replace(self, database=None, files=files)


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
