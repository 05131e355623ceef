"""Models in archives that DIGITS wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.files import open_plain
from digits.data import manifest as manifests
from digits.data.arrays import read_array
from digits.data.databases.mean_image import read_mean
from digits.data.images import images
from digits.data.manifest import MEAN_ARRAY_FILE, Manifest
from digits.data.models import archive as model_archive
from digits.data.models.archive import ArchiveProblem
from digits.worker.importing.description import Description, empty_dataset, text_of


def is_archive(folder: Path) -> bool:
    """Return whether ``folder`` is an unpacked archive, rather than a SavedModel or checkpoint."""
    try:
        model_archive.find(folder)
    except ArchiveProblem:
        return False
    return True


def from_archive(source: Path) -> Description:
    """Describe the model in an unpacked archive of DIGITS; raises ArchiveProblem and UnreadableFile."""
    folder = model_archive.find(source)
    info = model_archive.read(folder)
    assert info.network
    manifest = _manifest_in(folder, info)
    mean = np.zeros(manifest.shape, np.float32)
    if info.mean != "none":
        mean = _mean_in(folder, info, manifest)
        if not any(manifest.mean_pixel):
            manifest.mean_pixel = [float(value) for value in mean.mean(axis=(0, 1))]
    return Description(
        network=text_of(folder / info.network, folder),
        weights=folder / info.snapshot_file,
        epoch=model_archive.epoch_of(info.snapshot_file),
        manifest=manifest,
        mean_image=mean,
        mean=info.mean,
        crop_size=info.crop_size or None,
        whitening=info.whitening,
        name=info.name,
        folder=folder if info.pretrained_files else None,
    )


def _manifest_in(folder: Path, info: model_archive.Info) -> Manifest:
    """Return the manifest in the archive without its records, or one built from ``info``."""
    if (folder / manifests.FILE_NAME).is_file():
        manifest = manifests.load(folder)
        manifest.splits = {}
        return manifest
    if info.dimensions is None:
        raise ArchiveProblem(
            f"{model_archive.INFO_FILE} has no “image dimensions”.", "Add the height, width and channels."
        )
    labels = model_archive.labels_in(folder, info.labels_file) if info.labels_file else []
    height, width, channels = info.dimensions
    return empty_dataset(labels, height, width, channels, info.resize_mode or "squash")


def _mean_in(folder: Path, info: model_archive.Info, manifest: Manifest) -> NDArray[np.float32]:
    """Return the mean image of the archive, float32 [H, W, C], with values from 0 to 255."""
    name = info.mean_file or MEAN_ARRAY_FILE
    path = folder / name
    if path.suffix == ".npy":
        with open_plain(path, below=folder) as file:
            try:
                mean = read_array(file, shape=manifest.shape)
            except ValueError as error:
                raise ArchiveProblem(
                    f"The mean image {name} cannot be read: {error}.", "Download the model again."
                ) from error
    elif path.suffix == ".binaryproto":
        mean = read_mean(path, below=folder)
    else:
        mean = images.as_pixels(images.open_picture(path, manifest.channels).image)
        mean = mean.reshape(*mean.shape[:2], manifest.channels)
    if mean.shape != manifest.shape or mean.dtype.kind not in "fui":
        raise ArchiveProblem(
            f"The mean image {name} has the shape {list(mean.shape)}, but the images have {list(manifest.shape)}.",
            "Download the model again.",
        )
    return mean.astype(np.float32)
