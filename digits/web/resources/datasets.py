"""Datasets, as pages and programs see them."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from digits.core.recipe import Frozen
from digits.core.schema import JsonObject
from digits.data.statistics import Statistics
from digits.web.resources.jobs import BriefJob


class CreatedDataset(BriefJob):
    """A new dataset. ``warnings`` say how the source was understood, and name fields that have no effect."""

    warnings: list[str]


class VersionOf(Struct):
    """The parent of a version; ``changes`` says in words how the version differs, ``changes_url`` lists its records."""

    id: str
    name: str
    url: str | None
    changes: str
    changes_url: str | None


class Shard(Struct):
    file: str
    sha256: str


class CreateDbTask(Struct):
    """A split of a dataset of images, with the keys of DIGITS."""

    name: str
    entries: int
    image_width: int
    image_height: int
    image_channels: int
    encoding: str
    backend: str = "tfrecords"
    compression: str = "none"


class GenericDbTask(Struct):
    """A split of a dataset, with the keys of generic datasets of DIGITS. Targets are in the same records as images."""

    name: str
    stage: str
    entry_count: int
    feature_db_path: str | None
    label_db_path: None = None


class FrozenLabels(Struct):
    """The labels that a dataset was made from, and their page; None if they were deleted."""

    id: str
    name: str
    url: str | None


class Dataset(BriefJob):
    """A dataset. Only finished ones have the keys after the tasks, and further keys of their kind.

    ``ParseFolderTasks`` is a task for the source of the training images, and one for each other source.
    ``feature_dims`` are height, width and channels of an image. ``skipped`` is the number of unusable images. ``hint``
    says what to do about the ``error``. ``notes`` say how the source was understood when the dataset was created,
    ``frozen`` from which labels it was made, ``remarks`` what its task assumed, and ``warnings`` what may be wrong.
    """

    directory: str
    error: str | None
    notes: list[str]
    warnings: list[str]
    remarks: list[str]
    hint: str | UnsetType = UNSET
    ParseFolderTasks: list[JsonObject] = []
    CreateDbTasks: list[CreateDbTask] = []
    create_db_tasks: list[GenericDbTask] = []
    feature_dims: list[int] | UnsetType = UNSET
    mean_pixel: list[float] | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    version_of: VersionOf | UnsetType | None = UNSET
    frozen: Frozen | UnsetType = UNSET
    content_hash: str | UnsetType = UNSET
    shards: list[Shard] | UnsetType = UNSET


class NetworkSettings(Struct):
    """The recommended fields of the form for a network, with their texts.

    ``time`` is the expected duration in words, empty if unknown, and ``weights`` says whether its ImageNet weights are
    on this server, empty if it starts from random ones. ``refusal`` is the reason why the network cannot be
    used; empty if it can.
    """

    settings: dict[str, str]
    time: str
    weights: str
    refusal: str


class RecommendedModel(Struct):
    """The recommended network for a dataset with the reason, and the settings of all networks for its kind.

    ``headline`` describes the training. ``good`` are the ids of the networks that are good today for such images, best
    first. ``seconds`` is its expected duration, in words in ``time``, and ``download``
    the size of the weights that must be downloaded first, in MB. ``fine_tune`` contains the fields with which any
    network is fine-tuned.
    """

    network: str
    headline: str
    reason: str
    good: list[str]
    seconds: float | None
    time: str
    download: int
    networks: dict[str, NetworkSettings]
    fine_tune: dict[str, str]


class DatasetRecommendation(Struct):
    """The recommendation for a dataset; None if there is no network for its kind."""

    recommendation: RecommendedModel | None


class ResizedExample(Struct):
    """An example image with the settings of a form, as a data URI, and the size of its record in bytes."""

    image: str
    bytes: int


class DatasetStatistics(Statistics, kw_only=True):
    """The statistics of a dataset. The health check adds ``images`` by split, ``findings`` and ``histograms``."""

    id: str
    name: str
    kind: str
