"""List the images to label: decode each one, find those that look the same, and divide them among the splits.

A split is a function of the content of the first image of a set, and never changes: images that are found later join
the sets of those before.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.core import append_log
from digits.core.errors import DigitsError
from digits.core.events import EventLog, Warned
from digits.core.files import UnreadableFile
from digits.core.recipe import ListImages
from digits.data import parallel
from digits.data.arrays import load_rows, write_array
from digits.data.health.findings import LOW_CONTRAST
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.images.lists import list_images
from digits.data.images.near_duplicates import find_sets
from digits.data.images.statistics import SHAPE_LENGTH, low_frequencies, perceptual_hashes, shapes
from digits.kinds.labeling import importing
from digits.kinds.labeling.images import IMAGES_FILE, ListedImage, read_images, split_of
from digits.kinds.labeling.importing import Source
from digits.kinds.labeling.ordering import diverse_order, write_order
from digits.worker.creation.report import Report
from digits.worker.failure import UserFault
from digits.worker.tasks import background

IMAGES_PER_PIECE = 64
LINES_PER_WRITE = 10_000
APPEARANCE_FILE = "appearance.npy"
_SIDE = 32
# Decoding larger images at a reduced size does not change how they look.
_ENOUGH = (4 * _SIDE, 4 * _SIDE)
APPEARANCE = np.dtype(
    [("digest", "<u8"), ("hash", "<u8"), ("shape", "i1", SHAPE_LENGTH), ("is_distinct", "?")]
)


def run(recipe: ListImages, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Add the new images below the recipe's root to the list; raises UserFault if there are none at all."""
    background.lower_priority()
    try:
        return _list(recipe, events)
    except DigitsError as error:
        raise UserFault(error.message, error.hint) from error
    except parallel.ProcessDied as death:
        raise UserFault(
            f"A process that reads images ended early ({death.reason}).", "List the images again."
        ) from death


def _list(recipe: ListImages, events: EventLog) -> dict[str, Any]:
    folder, report = Path(recipe.target), Report(events)
    known = list(read_images(folder))
    source = Source(recipe, report) if recipe.source is not None and not known else None
    root = Path(source.root if source else recipe.root or importing.load(folder).root)
    found = list_images(root, report)
    if not known:
        found.need_images()
    unnamed = [name for name in found.files if not importing.is_text(name)]
    _warn(events, [*found.remarks(), *importing.remark(unnamed, "image", "whose path is not UTF-8")])
    paths = {image.path for image in known}
    new = [name for name in found.files if name not in paths and importing.is_text(name)]
    appearance = _appearance_of(folder, root, known, events)
    described, looks = _describe(root, new, events)
    appearance = np.concatenate([appearance, looks])
    _divide(known, described, appearance)
    unusable = [f"{image.path} ({image.reason})" for image in described if image.reason]
    _warn(events, importing.remark(unusable, "image", "cannot be decoded and will be skipped"))
    with background.reporting_full_disk("the list"):
        write_array(folder / APPEARANCE_FILE, appearance)
        lines = LINES_PER_WRITE
        if source:
            source.save(described, background.ItemProgress(events, "Reading labels", len(source)).advance)
            _warn(events, source.remarks)
            lines = max(1, len(described))  # all or none of the images that the labels are about
        for start in range(0, len(described), lines):
            append_log.append(folder / IMAGES_FILE, described[start : start + lines])
        every = [*known, *described]
        features = partial(features_of, Path(recipe.weights), root, every, events)
        seed = zlib.crc32(folder.name.encode())
        write_order(folder, diverse_order(every, appearance["shape"], seed, features))
    return {"images": len(known) + len(described), "new": len(described), "unusable": len(unusable)}


def _warn(events: EventLog, remarks: Iterable[str]) -> None:
    for remark in remarks:
        events.append(Warned(remark))


def _appearance_of(folder: Path, root: Path, known: list[ListedImage], events: EventLog) -> NDArray[Any]:
    """Return how the images look that were listed before; those files are only read if that is not on disk."""
    try:
        rows = load_rows(folder / APPEARANCE_FILE, below=folder, dtype=APPEARANCE)[: len(known)]
    except UnreadableFile:
        rows = np.zeros(0, APPEARANCE)
    digests = np.array([int(image.digest, 16) for image in known], np.uint64)
    if np.array_equal(rows["digest"], digests):
        return rows
    rows = _describe(root, [image.path for image in known], events)[1]
    rows["digest"] = digests
    return rows


def _describe(root: Path, names: list[str], events: EventLog) -> tuple[list[ListedImage], NDArray[Any]]:
    """Return the images and how they look."""
    described: list[ListedImage | None] = [None] * len(names)
    rows = np.zeros(len(names), APPEARANCE)

    def work(piece: int, send: parallel.Send) -> None:
        start = piece * IMAGES_PER_PIECE
        part = names[start : start + IMAGES_PER_PIECE]
        looks = np.zeros(len(part), APPEARANCE)
        send((start, [_describe_image(root, name, looks[place]) for place, name in enumerate(part)], looks))

    progress = background.ItemProgress(events, "Reading images", len(names))
    with closing(parallel.run(work, -(-len(names) // IMAGES_PER_PIECE))) as messages:
        for message in filter(None, messages):
            start, part, looks = message
            described[start : start + len(part)], rows[start : start + len(part)] = part, looks
            progress.advance(len(part))
    return [image for image in described if image is not None], rows


def _describe_image(root: Path, name: str, looks: Any) -> ListedImage:
    image = ListedImage(path=name, split="train", set=0, digest="")
    data = name.encode()
    try:
        data = images.read_source(root / name)
        _, image.turn = images.upright_size_and_turn(data)
        picture = images.open_picture(data, 1, enough=_ENOUGH, bits=None)
        image.width, image.height = picture.size
        image.is_gray = picture.mode in images.GRAYSCALE
        gray = np.asarray(picture.image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR), np.float32)
        frequencies = low_frequencies(gray[None])
        looks["hash"], looks["shape"] = perceptual_hashes(frequencies)[0], shapes(frequencies)[0]
        looks["is_distinct"] = gray.std() >= LOW_CONTRAST
    except (UnusableImage, OSError) as error:
        image.reason = images.reason_of(error)
    looks["digest"] = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    image.digest = f"{int(looks['digest']):016x}"
    return image


def features_of(
    weights: Path, root: Path, listed: list[ListedImage], events: EventLog, numbers: NDArray[np.int64]
) -> NDArray[np.float32] | None:
    """Return what a network with ``weights`` sees in the images with these ``numbers``; None without such a file."""
    if not weights.is_file():
        return None
    # Loads TensorFlow, which nothing else here needs.
    from digits.worker.training.models import image_features

    background.begin(events, "Comparing images")
    return image_features.of_files(weights, [root / listed[number].path for number in numbers])


def _divide(known: list[ListedImage], new: list[ListedImage], appearance: NDArray[Any]) -> None:
    """Find the set and the split of each of the ``new`` images, which follow those ``known`` before."""
    every = [*known, *new]
    if not new:
        return
    _, first, copies = np.unique(appearance["digest"], return_index=True, return_inverse=True)
    leaders = np.arange(len(every))
    different = np.sort(first)
    distinct = different[appearance["is_distinct"][different]]
    # Sorted, so that the first image of a set is the one listed first.
    leaders[distinct] = distinct[find_sets(appearance["hash"][distinct], appearance["shape"][distinct])]
    leaders = leaders[first[copies]]
    for number in range(len(known), len(every)):
        image, leader = every[number], every[leaders[number]]
        is_first = leader is image
        image.set = number if is_first else leader.set
        image.split = split_of(image.digest) if is_first else leader.split
