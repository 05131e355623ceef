"""The images of the records of a dataset: their URLs, what is drawn on them, and their targets in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from flask import url_for

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.splits import SPLITS
from digits.core.status import Status
from digits.data import manifest as manifests
from digits.data.images import images
from digits.data.manifest import Manifest
from digits.data.records import records
from digits.data.targets.mask import Mask
from digits.kinds.decoding import RecordLabels, Request
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.services import services

AnyPart = TypeVar("AnyPart")
# In pixels; the width of an image in the gallery on a screen with two pixels for each pixel of CSS.
THUMBNAIL_SIDE = 240


class RecordImages:
    """The URLs of the images of records, and what is drawn on them."""

    def __init__(self, job: DatasetJob, manifest: Manifest) -> None:
        url = url_for("records.image", job_id=job.id, split="train", number=0)
        self._base = url.removesuffix("train/0")
        self._manifest = manifest
        width, height = shown_size(job, manifest)
        self._thumbnail = "/thumbnail" if max(width, height) > THUMBNAIL_SIDE else ""

    def url(self, split: str, number: int) -> str:
        """Return the URL of the whole image."""
        return f"{self._base}{split}/{number}"

    def thumbnail(self, split: str, number: int) -> str:
        """Return the URL of the image in a gallery: that of the whole image if it is small."""
        return f"{self._base}{split}/{number}{self._thumbnail}"

    def drawings(self, split: str, number: int, read: Callable[[], records.Record]) -> dict[str, Any]:
        """Return what is drawn on the image of a record, or beside it: its ``mask`` or ``target`` by URL, or its boxes.

        ``full_target`` is the URL of a target in full size. ``read`` returns the record.
        """
        target, url = self._manifest.target, f"{self._base}{split}/{number}/target"
        size = (self._manifest.width, self._manifest.height)
        return target.drawings(url, url + self._thumbnail, lambda: read().target(target), size)


def describe_record(job: DatasetJob, manifest: Manifest, record: records.Record) -> str:
    """Return the target of a record as text; nothing for a mask, see `decoded_labels`."""
    return "" if _is_mask(manifest) else views_of(job.data_kind).describe_record(manifest, record)


def decoded_labels(job: DatasetJob, manifest: Manifest, places: Sequence[tuple[str, int]]) -> list[str]:
    """Return the targets of the records at ``places``, splits and numbers, as text if they are masks, else no texts.

    One request to another process decodes all of them. Raises UnreadableFile.
    """
    if not places or not _is_mask(manifest):
        return []
    try:
        return services().decoder.run(RecordLabels(str(job.folder), list(places))).texts
    except images.UnusableImage:  # the masks take too much memory or time
        return ["unknown classes"] * len(places)


def _is_mask(manifest: Manifest) -> bool:
    return isinstance(manifest.target, Mask)


def example_images(job: DatasetJob, manifest: Manifest, count: int) -> list[tuple[str, str]]:
    """Return the names, such as ``test/12``, and the URLs of up to ``count`` images, which a training did not see if
    there are such.

    They are spread over the split, whose classes may follow each other.
    """
    images = RecordImages(job, manifest)
    split = next(
        (name for name in reversed(SPLITS) if name in manifest.splits and manifest.splits[name].count), None
    )
    if split is None:
        return []
    total = manifest.splits[split].count
    numbers = sorted({total * index // count for index in range(count)})
    return [(f"{split}/{number}", images.thumbnail(split, number)) for number in numbers]


def shown_size(job: DatasetJob, manifest: Manifest) -> tuple[int, int]:
    """Return the width and height of the images of records: those of a pair are side by side."""
    return manifest.width * manifest.channels // job.recipe.channels, manifest.height


def find_dataset(job_id: str) -> DatasetJob:
    """Return a dataset; raises NotFound."""
    return services().store.get(job_id, DatasetJob)


def finished_manifest(job: DatasetJob) -> Manifest:
    """Return the manifest of a dataset; raises BadRequest if it is not done, or UnreadableFile."""
    if job.status is not Status.DONE:
        raise BadRequest(f"“{job.name}” has no records to show: it is {job.status.title}, not Done.")
    return job.manifest() or manifests.load(job.folder)  # raises the reason


def open_record(
    job: DatasetJob, split: str, number: int, use: Callable[[records.Record], AnyPart]
) -> Callable[[], AnyPart]:
    """Return a function that returns the result of ``use`` for a record, or raises NotFound if it is unreadable.

    Raises NotFound if there is no such split.
    """
    manifest = finished_manifest(job)
    if split not in manifest.splits:
        raise NotFound(f"This dataset has no split called “{split}”.")
    return partial(_read, job, manifest.splits[split], number, use, services().record_indexes)


def _read(
    job: DatasetJob,
    split: manifests.SplitRecords,
    number: int,
    use: Callable[[records.Record], AnyPart],
    indexes: Any,
) -> AnyPart:
    try:
        index = indexes.get(job.folder, split)
        if number >= len(index):
            raise NotFound("There is no such record.")
        with records.SplitReader(job.folder, split, index) as reader:
            return use(reader.read(number))
    except UnreadableFile as error:
        raise NotFound("The record cannot be read.", str(error)) from error


def drawn_once(key: str, read: Callable[[], Request], problem: str) -> bytes:
    """Return the picture ``key``, which is decoded from what ``read`` returns if it is not kept.

    Raises NotFound with the ``problem`` if that is impossible.
    """
    pictures = services().pictures
    data = in_thread(pictures.find, key)
    if data is None:
        try:
            data = services().decoder.run(in_thread(read)).data
        except (UnreadableFile, images.UnusableImage) as error:
            raise NotFound(problem, str(error)) from error
        in_thread(pictures.save, key, data)
    return data
