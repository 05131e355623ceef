"""The manifest of a finished dataset: the file ``dataset.json`` in its job's folder.

Splits are ``train``, ``val`` and ``test``. The records of a split are stored in shards,
TFRecord files of ``tf.train.Example``, each with an index and the names of its sources (see
`digits.data.records.records`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from digits.core.files import read_json, remove_partial_writes, remove_tree, sync_folder, write_json
from digits.core.schema import Count, Integer
from digits.core.splits import SPLITS
from digits.data.targets.forms import form_of
from digits.data.targets.target import DatasetFit, Target, UnfitDataset

FILE_NAME = "dataset.json"
LABELS_FILE = "labels.txt"
FEATURES_FILE = "feature_spec.json"
MEAN_IMAGE_FILE = "mean.png"
# For scripts written for DIGITS 6.
MEAN_JPEG_FILE = "mean.jpg"
MEAN_ARRAY_FILE = "mean.npy"
SKIPPED_FILE = "skipped.csv"
# The changed records of a version of another dataset.
CHANGES_FILE = "changes.csv"
# Copies of remote files, and records of other sources, which exist while a dataset is created.
COPIES_FOLDER = "remote"
CONVERTED_FOLDER = "databases"
ADDED_FOLDER = "added"
HEALTH_FILE = "health.json"
HEALTH_RECORDS_FILE = "health-records.npy"
LABEL_CHECK_FILE = "label-check.json"
LABEL_ERRORS_FILE = "label-errors.npy"


Pixels = Annotated[int, Meta(ge=1, le=1_000_000)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
ShardName = Annotated[str, Meta(pattern=r"^(?a:(train|val|test)-\d+-of-\d+\.tfrecord)\Z")]


class SplitRecords(Struct, kw_only=True):
    """The records of one split. ``counts[i]`` records belong to group i; ``shards`` are file names.

    ``class_counts[i]`` records contain class i, and the last of these numbers is that of the records that contain no
    class; empty if a record has one class. ``hashes`` are the SHA-256 hashes of the shards.
    """

    count: Count
    counts: list[Count] = field(default_factory=list)
    class_counts: list[Count] = field(default_factory=list)
    bytes: Count
    shards: list[ShardName]
    hashes: list[Sha256] = field(default_factory=list)


class Manifest(Struct, kw_only=True):
    """A finished dataset of images.

    ``kind`` is a name in `digits.kinds`. ``groups`` are the names of the groups by which records are counted,
    listed and balanced: the classes, or ranges of a number; there may be none. ``mean_pixel`` has one value per
    channel, 0 to 255; the two images of a pair are stacked along the channels. ``mean.npy`` contains the mean image,
    float32 [height, width, channels]; ``mean.png`` and ``mean.jpg`` are pictures of it. ``source`` contains one line
    of text per split.
    With the ``dtype`` float32, the records are arrays of any numbers instead of images. ``padding`` is the width and
    height to which images were padded before resizing, if at all; see `digits.data.images.images.pad`. ``bits`` are
    those that 16-bit images use: larger values are white.
    """

    kind: str
    width: Pixels
    height: Pixels
    channels: Annotated[int, Meta(ge=1, le=4096)]
    dtype: Literal["uint8", "float32"] = "uint8"
    encoding: str
    resize_mode: str
    padding: tuple[Pixels, Pixels] | None = None
    bits: Annotated[int, Meta(ge=8, le=16)] = 16
    target: Target
    groups: list[str] = field(default_factory=list)
    splits: dict[str, SplitRecords]
    mean_pixel: list[float]
    skipped: Count = 0
    seed: Integer = 0
    source: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError if the manifest is inconsistent."""
        self.target = form_of(self.target)
        for name, split in self.splits.items():
            if name not in SPLITS:
                raise ValueError(f"unknown split {name!r}")
            if len(split.counts) != len(self.groups) or (split.counts and sum(split.counts) != split.count):
                raise ValueError(f"the counts of the split {name} do not match its groups and records")
            if split.class_counts and len(split.class_counts) != len(self.target.contained_names) + 1:
                raise ValueError(f"the counts of the split {name} do not match the classes")
        if len(self.mean_pixel) != self.channels:
            raise ValueError("mean_pixel does not have a value for each channel")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of every image: height, width, channels."""
        return self.height, self.width, self.channels

    @property
    def contained(self) -> list[str]:
        """The names for the ``class_counts`` of the splits: those of the classes, and one for records without any."""
        names = self.target.names
        return [*names, next((group for group in self.groups if group not in names), "none")]

    @property
    def lists_classes(self) -> bool:
        """Whether the classes that each record contains are known; see `digits.data.records.index`."""
        return any(split.class_counts for split in self.splits.values())

    @property
    def content_hash(self) -> str:
        """The hash of all records and their order: equal for datasets with the same content."""
        named = {name: split.hashes for name, split in self.splits.items()}
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()

    def fit(self, other: Manifest, *, takes_image: bool) -> DatasetFit:
        """Return how a model that was trained on this dataset predicts the records of ``other``.

        Classes, labels and numbers are mapped by name. Images are resized if the kind ``takes_image``, rather than
        two, a text or an array. Raises UnfitDataset.
        """
        if self.kind != other.kind:
            raise UnfitDataset("it is of a different kind")
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            is_image = takes_image and self.dtype == other.dtype == "uint8"
            if not is_image or not {self.channels, other.channels} <= {self.channels, 1, 3}:
                shapes = ("×".join(map(str, each.shape)) for each in (other, self))
                raise UnfitDataset("its records have the shape {}, but the model expects {}".format(*shapes))
        return self.target.fit(other.target)

    def save(self, job_folder: Path) -> None:
        """Write the manifest, after making the names of the files it describes durable."""
        sync_folder(job_folder)
        write_json(job_folder / FILE_NAME, {"schema": 1, **msgspec.to_builtins(self)}, type(self))


def health_statistics_file(split: str) -> str:
    """Return the name of the file with the statistics of the records of ``split``; see `digits.data.health.health`."""
    return f"health-{split}.npy"


def load(job_folder: Path) -> Manifest:
    """Load the manifest in a dataset job's folder; raises UnreadableFile."""
    return read_json(job_folder / FILE_NAME, Manifest)


def remove_products(job_folder: Path) -> None:
    """Remove a complete or partial dataset, the manifest first, except for the list of skipped images."""
    names = [
        FILE_NAME,
        FEATURES_FILE,
        LABELS_FILE,
        MEAN_ARRAY_FILE,
        MEAN_IMAGE_FILE,
        MEAN_JPEG_FILE,
        CHANGES_FILE,
    ]
    names += [HEALTH_FILE, HEALTH_RECORDS_FILE, LABEL_CHECK_FILE, LABEL_ERRORS_FILE]
    names += [*map(health_statistics_file, SPLITS)]
    for name in names:
        (job_folder / name).unlink(missing_ok=True)
        remove_partial_writes(job_folder / name)
    for name in (COPIES_FOLDER, CONVERTED_FOLDER, ADDED_FOLDER):
        remove_tree(job_folder / name, ignore_errors=True)
    for split in SPLITS:
        for ending in ("tfrecord", "index", "names", "classes"):
            for pattern in (f"{split}-*-of-*.{ending}", f".{split}-*-of-*.{ending}.tmp"):
                for path in job_folder.glob(pattern):
                    path.unlink(missing_ok=True)
