"""The records in a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from digits.data.manifest import Manifest
from digits.data.records.index import IndexCache
from digits.data.records.records import Record, SplitReader
from digits.data.records.search import Place
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.records.images import RecordImages, decoded_labels, describe_record
from digits.web.resources.encoding import describe
from digits.web.resources.records import GalleryItem
from digits.web.services import services


def gallery_items(
    job: DatasetJob,
    manifest: Manifest,
    images: RecordImages,
    places: Sequence[Place],
    *,
    decodes: bool = True,
) -> list[GalleryItem]:
    """Return what galleries show of the records at ``places``; raises UnreadableFile and IndexError.

    Waits for threads and another process, so it does not run in a thread itself. Unless it ``decodes`` masks, they
    have no labels.
    """
    items = in_thread(_read_items, job, manifest, images, places, services().record_indexes)
    wanted = [(place.split, place.number) for place in places] if decodes else []
    labels = decoded_labels(job, manifest, wanted)
    return (
        [replace(item, label=label) for item, label in zip(items, labels, strict=True)] if labels else items
    )


def _read_items(
    job: DatasetJob, manifest: Manifest, images: RecordImages, places: Sequence[Place], indexes: IndexCache
) -> list[GalleryItem]:
    with ExitStack() as opened:
        readers: dict[str, SplitReader] = {}
        for split in {place.split for place in places}:
            content = manifest.splits[split]
            reader = SplitReader(job.folder, content, indexes.get(job.folder, content))
            readers[split] = opened.enter_context(reader)
        return [
            _item(job, manifest, images, place, readers[place.split].read(place.number)) for place in places
        ]


def _item(
    job: DatasetJob, manifest: Manifest, images: RecordImages, place: Place, record: Record
) -> GalleryItem:
    views = views_of(job.data_kind)
    names = manifest.target.names
    drawn = {
        **images.drawings(place.split, place.number, lambda: record),
        **views.draw_record(job.kind_recipe, record),
    }
    return describe(
        GalleryItem,
        place,
        label=describe_record(job, manifest, record),
        filename=record.filename,
        url=images.url(place.split, place.number),
        thumbnail=images.thumbnail(place.split, place.number),
        suggested_label=None if place.suggested is None else names[place.suggested],
        confidence=None if place.suggested is None else place.confidence,
        **drawn,
    )
