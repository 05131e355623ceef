"""Download sample datasets and lay them out as folders of images, ready to become a dataset.

    FOLDER/train/<class>/00000.png …   FOLDER/test/<class>/00000.png …
    FOLDER/labels.txt                  the classes' folder names, one per line
    FOLDER/train.txt, test.txt         ``train/5/00000.png 5``: path and line of labels.txt, from 0

The address where the authors publish a sample comes first, then its known mirrors, the
configured mirrors, and packages that contain the same images.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from digits.core.errors import NotFound, Unavailable
from digits.core.files import UnreadableFile, locked, read_json, remove_tree, write_bytes, write_json
from digits.core.schema import JsonObject
from digits.data.samples.catalog import SAMPLES, Sample
from digits.data.samples.downloads import LOCK_SECONDS, Source, SourceError
from digits.data.samples.formats import SPLITS, LabeledImages, Reader

if TYPE_CHECKING:
    from digits.data.parallel import Send

# Called with the fraction done and the current action.
Progress = Callable[[float, str], None]

IMAGES_PER_PIECE = 1000
DOWNLOAD_FRACTION = 0.6

COMPLETE_FILE = "sample.json"
# Files that have arrived; removed when the sample is complete.
DOWNLOAD_FOLDER = ".partial"
_LAYOUT_VERSION = 1
_WAITING = "Waiting for another download into the same folder"
LABELS_FILE = "labels.txt"
_TEXT_FILES = (LABELS_FILE, *(f"{split}.txt" for split in SPLITS))


class DownloadFailed(Unavailable):
    """A sample could not be downloaded or laid out; ``hint`` lists the sources tried."""


def download(sample_id: str, folder: Path, progress: Progress, *, mirrors: Sequence[str] = ()) -> Path:
    """Lay out a sample in ``folder``, which then contains ``train/`` and ``test/``; return the folder.

    A complete folder is used unchanged, and an interrupted download resumes. If another
    process downloads into the same folder, wait for it. The files of a sample are looked
    for in ``MIRROR/ID/`` of each of ``mirrors``, after the addresses of the sample itself.
    Raises NotFound and DownloadFailed.
    """
    if sample_id not in SAMPLES:
        raise NotFound(f"There is no sample called {sample_id!r}.", f"Available: {', '.join(SAMPLES)}.")
    return lay_out(SAMPLES[sample_id], Path(folder), progress, mirrors=mirrors)


def remove(folder: Path) -> None:
    """Remove the files that `download` writes from ``folder``; other files stay."""
    for name in (COMPLETE_FILE, *_TEXT_FILES):
        (folder / name).unlink(missing_ok=True)
    for name in (*SPLITS, DOWNLOAD_FOLDER):
        remove_tree(folder / name)


def lay_out(sample: Sample, folder: Path, progress: Progress, *, mirrors: Sequence[str] = ()) -> Path:
    """Do what `download` does for a sample that need not be in the catalog."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", LOCK_SECONDS, lambda: progress(0.0, _WAITING)):
            if not _is_complete(sample, folder):
                _fill(sample, folder, progress, mirrors)
    except OSError as error:
        path = error.filename or folder
        raise DownloadFailed(f"{sample.title} cannot be written: {error.strerror} ({path}).") from error
    progress(1.0, f"{sample.title} is ready")
    return folder


def _fill(sample: Sample, folder: Path, progress: Progress, mirrors: Sequence[str]) -> None:
    downloads = folder / DOWNLOAD_FOLDER
    if not downloads.exists():
        _refuse_to_overwrite(folder)
    downloads.mkdir(exist_ok=True)
    splits = _fetch(sample, downloads, progress, mirrors)
    laid_out = downloads / "laid-out"
    remove_tree(laid_out)
    _write_images(sample, splits, laid_out, progress)
    for name in SPLITS:
        remove_tree(folder / name)  # left by a run that was interrupted between these lines
        (laid_out / name).rename(folder / name)
    _write_lists(sample, splits, folder)
    os.sync()  # much faster than fsync for thousands of images
    write_json(folder / COMPLETE_FILE, {"sample": sample.id, "layout": _LAYOUT_VERSION})
    remove_tree(downloads)


def _refuse_to_overwrite(folder: Path) -> None:
    taken = [name for name in SPLITS if (folder / name).exists()]
    if taken:
        raise DownloadFailed(
            f"{folder} already contains {' and '.join(taken)}, which were not downloaded by DIGITS.",
            "Choose another folder, or remove them first (--clean does).",
        )


def _is_complete(sample: Sample, folder: Path) -> bool:
    try:
        body = read_json(folder / COMPLETE_FILE, JsonObject)
    except UnreadableFile:
        return False
    if body != {"sample": sample.id, "layout": _LAYOUT_VERSION}:
        return False
    return all((folder / split / label).is_dir() for split in SPLITS for label in sample.labels)


def _sources(sample: Sample, mirrors: Sequence[str]) -> list[tuple[Source, Reader]]:
    """Return the sources of ``sample`` in the order in which they are tried."""
    addresses = [*sample.mirrors, *(f"{mirror}/{sample.id}" for mirror in mirrors)]
    web = [sample.web, *(sample.web.at(address) for address in addresses)]
    return [*((source, sample.read) for source in web), *sample.packages]


def _fetch(
    sample: Sample, folder: Path, progress: Progress, mirrors: Sequence[str]
) -> dict[str, LabeledImages]:
    """Return the images from the first source that provides them."""
    failures = []
    for source, read in _sources(sample, mirrors):
        try:
            return read(source.fetch(folder, _reporter(sample, source, progress)))
        except SourceError as failure:
            failures.append(f"{source.name}: {failure}")
    raise DownloadFailed(
        f"{sample.title} could not be downloaded.",
        f"Tried {'; '.join(failures)}. Check the network, or set a proxy in https_proxy. Without a network, put "
        f"{', '.join(sample.web.checksums)} into {folder} and try again.",
    )


def _reporter(sample: Sample, source: Source, progress: Progress) -> Callable[[float], None]:
    action = f"Downloading {sample.title} from {source.name}"
    progress(0.0, action)
    return lambda fraction: progress(fraction * DOWNLOAD_FRACTION, action)


def _write_images(sample: Sample, splits: dict[str, LabeledImages], folder: Path, progress: Progress) -> None:
    from digits.data import parallel
    from digits.data.images import images

    for split in SPLITS:
        for label in sample.labels:
            (folder / split / label).mkdir(parents=True)
    pieces = [
        (split, start) for split in SPLITS for start in range(0, len(splits[split].labels), IMAGES_PER_PIECE)
    ]

    def write(number: int, send: Send) -> None:
        split, start = pieces[number]
        labeled = splits[split]
        for index in range(start, min(start + IMAGES_PER_PIECE, len(labeled.labels))):
            pixels = labeled.pixels[index]
            data = images.encode(255 - pixels if sample.inverted else pixels, "png")
            path = folder / _image_path(sample, split, index, int(labeled.labels[index]))
            with open(path, "wb", buffering=0) as file:
                file.write(data)
        send(number)

    done = 0
    try:
        with closing(parallel.run(write, len(pieces))) as messages:
            for message in messages:
                done += message is not None
                fraction = DOWNLOAD_FRACTION + (1 - DOWNLOAD_FRACTION) * done / len(pieces)
                progress(fraction, f"Writing the images of {sample.title}")
    except parallel.ProcessDied as death:
        raise DownloadFailed(f"The images could not be written: {death}.") from death


def _write_lists(sample: Sample, splits: dict[str, LabeledImages], folder: Path) -> None:
    # Sorted like the classes of a dataset created from these folders, so that both use the same numbers.
    in_order = sorted(sample.labels, key=os.fsencode)
    numbers = [in_order.index(label) for label in sample.labels]
    write_bytes(folder / LABELS_FILE, "".join(f"{label}\n" for label in in_order).encode())
    for split in SPLITS:
        lines = [
            f"{_image_path(sample, split, index, label)} {numbers[label]}\n"
            for index, label in enumerate(splits[split].labels.tolist())
        ]
        write_bytes(folder / f"{split}.txt", "".join(lines).encode())


def _image_path(sample: Sample, split: str, index: int, label: int) -> str:
    return f"{split}/{sample.labels[label]}/{index:05d}.png"
