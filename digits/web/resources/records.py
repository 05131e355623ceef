"""Records of datasets, as pages and programs see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from digits.core.results.augmentation_preview import Outline
from digits.data.manifest import Manifest


class GalleryItem(Struct, frozen=True, omit_defaults=True):
    """A record in the gallery. The macro ``drawn`` documents the shapes drawn on its image.

    Those with the same ``set`` belong together, such as duplicates. A search for wrong labels has ``suggested`` another
    class, with a ``confidence`` from 0 to 1.
    """

    split: str
    number: int
    label: str
    filename: str
    url: str
    thumbnail: str
    set: int | None = None
    suggested: int | None = None
    suggested_label: str | None = None
    confidence: float | None = None
    text: str | None = None
    arrow: list[float] | None = None
    mask: str | None = None
    target: str | None = None
    full_target: str | None = None
    boxes: Sequence[Outline] = ()

    @property
    def place(self) -> str:
        """The record for scripts, such as ``train/12``."""
        return f"{self.split}/{self.number}"

    @property
    def name(self) -> str:
        """The file name without its folders."""
        return self.filename.rpartition("/")[2]

    @property
    def words(self) -> str:
        """The record in words, for screen readers."""
        return f"{self.label}: {self.filename}"

    def draw_prediction(self, predicted: Any, manifest: Manifest) -> dict[str, Any] | None:
        """Return how to draw a prediction for the record, for the macro ``drawn``; None if it is not drawn."""
        if predicted is None:
            return None
        return manifest.target.draw_prediction(predicted, self.thumbnail, (manifest.width, manifest.height))

    def compare(self, predicted: Any, manifest: Manifest, threshold: float) -> dict[str, Any] | None:
        """Return how to draw what is right and wrong in a prediction, for the macro ``drawn``; None if it is not."""
        if predicted is None:
            return None
        size = (manifest.width, manifest.height)
        return manifest.target.compare(self.boxes, predicted, self.thumbnail, size, threshold)


class FindingCount(Struct):
    """A finding of the checks of a dataset, and its number of records or of groups."""

    id: str
    title: str
    count: int


class ExploredRecords(Struct):
    """A page of the records that match a ``query``; ``splits`` are the numbers of matches. The first page is 0."""

    total: int
    page: int
    pages: int
    size: int
    query: dict[str, Any]
    splits: dict[str, int]
    records: list[GalleryItem]
    findings: list[FindingCount]


class SourceImage(Struct):
    """The image that a record was made from; ``mode`` is the one of its pixels, such as *RGB*.

    ``url`` shows its pixels in the shape of the dataset's images, if the file is still there and is larger.
    """

    width: int
    height: int
    mode: str
    url: str | None = None


class RecordImage(Struct):
    """The image of a record, and the size of its file in bytes."""

    width: int
    height: int
    channels: int
    format: str
    bytes: int


class RecordFinding(Struct):
    """A finding about a record, and the page of all its records."""

    id: str
    title: str
    url: str


class Feature(Struct):
    """The number of the values of a feature, and the first ones; long byte strings are described by their size."""

    count: int
    values: list[Any]


class RecordDescription(Struct):
    """A record. ``statistics`` are known after the health check of its dataset."""

    split: str
    number: int
    filename: str
    label: str
    source: SourceImage | None
    image: RecordImage
    statistics: dict[str, float] | None
    findings: list[RecordFinding]
    features: dict[str, Feature]
