"""Labels, as pages and programs see them. Coordinates are pixels of the image as it is displayed."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from digits.core.schema import JsonObject
from digits.kinds.labeling.answers import LabelClass
from digits.web.resources.jobs import BriefJob, JobRow
from digits.web.resources.tasks import ActivityState


class Labels(JobRow):
    """A job of labels. ``kind`` is the route of the kind, ``field`` where an answer says what is in an image.

    ``folder`` is empty until that of the dataset to begin with is found. ``states`` and ``splits`` count images, and
    ``images_of_classes`` those that contain each class, by id. ``cursor`` is the end of the log. ``warnings`` name
    images that cannot be used.
    """

    kind: str
    field: str
    folder: str
    classes: list[LabelClass]
    images: int
    states: dict[str, int]
    splits: dict[str, int]
    images_of_classes: dict[str, int]
    cursor: int
    formats: list[str]
    warnings: list[str]


class Classes(Struct):
    """The classes, deleted ones included; ``id`` is that of the class that a request added or changed."""

    id: int
    classes: list[LabelClass]


class LabeledImage(Struct, omit_defaults=True):
    """The image ``n``, its ``path`` below the folder, its size as displayed, and the number of its latest entry.

    ``set`` is the number of the first image that looks the same. ``reason`` says why an image cannot be used.
    """

    n: int
    path: str
    width: int
    height: int
    split: str
    set: int
    state: str
    rev: int
    reason: str | UnsetType = UNSET


class ImagePage(Struct):
    """Some of ``total`` images, and the ``after`` of the next request; None if there are no more."""

    total: int
    images: list[LabeledImage]
    after: int | None


class NextImages(Struct):
    """Images for one person, which others do not get for a number of ``seconds``; ``left`` counts all open ones."""

    images: list[LabeledImage]
    seconds: int
    left: int


class LabelHistory(Struct):
    """The latest entries of an image, the newest first; ``before`` is that of the next request, if there are more.

    ``models`` are the names by id of those in the ``source`` of an entry.
    """

    entries: list[JsonObject]
    models: dict[str, str]
    before: int | None


class SavedLabel(Struct):
    rev: int


class FrozenDataset(BriefJob):
    """The new dataset; ``warnings`` say what it lacks."""

    warnings: list[str]


class RetrainedModel(FrozenDataset):
    """The new model, and the id of its new ``dataset``."""

    dataset: str


class ProposalRun(ActivityState, kw_only=True):
    """The newest ``run`` of proposals: the name of its model, the epoch, and the number of ``images`` so far."""

    run: str
    epoch: float
    images: int


class Accepted(Struct, omit_defaults=True):
    """The number of images whose proposals were accepted as a ``batch``, or would be, with a random ``sample``."""

    count: int
    sample: list[int] | UnsetType = UNSET
    batch: str = ""
