"""Read single images, or arrays, as inputs of a trained network."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data import arrays
from digits.data.images import images
from digits.data.manifest import Manifest
from digits.worker.failure import UserFault


def read(image: images.Source, manifest: Manifest) -> tuple[NDArray[np.uint8], images.Geometry]:
    """Read an image file or its contents; return uint8 [H, W, C] pixels and the geometry of the resize.

    ``manifest`` describes the model's dataset. Raises UserFault if the image cannot be used.
    """
    return read_stack([image], manifest)


def read_stack(
    stacked: Sequence[images.Source], manifest: Manifest
) -> tuple[NDArray[np.uint8], images.Geometry]:
    """Like `read`, for images that are ``stacked`` along the channels; the geometry is that of the first one."""
    size, channels = (manifest.width, manifest.height), manifest.channels // len(stacked)
    read = [_read(image, manifest, channels, size) for image in stacked]
    return np.concatenate([pixels for pixels, _ in read], axis=2), read[0][1]


def read_unresized(image: images.Source, manifest: Manifest) -> tuple[NDArray[np.uint8], images.Geometry]:
    """Like `read`, but return the pixels of the image at its original size."""
    return _read(image, manifest, manifest.channels, None)


def _read(
    image: images.Source, manifest: Manifest, channels: int, size: tuple[int, int] | None
) -> tuple[NDArray[np.uint8], images.Geometry]:
    if channels not in (1, 3) or manifest.dtype != "uint8":
        raise UserFault(
            "The model does not predict from single images.", "Use the input fields on the page of the model."
        )
    try:
        picture = images.open_picture(image, channels, bits=manifest.bits)
        is_reduced = picture.is_reduced  # because it is huge
        if is_reduced and size is None:
            raise images.UnusableImage("{}×{} pixels are too many at the original size".format(*picture.size))
        padded = images.padded_size(picture.size, manifest.padding) if manifest.padding else None
        width, height = size or padded or picture.size
        geometry = images.Geometry(picture.size, width, height, manifest.resize_mode, padded)
        if padded:
            picture = picture.pad(*padded)
        if is_reduced or picture.size == (width, height):
            return picture.resize(width, height, geometry.mode), geometry
        return images.as_pixels(images.resize_image(picture.image, width, height, geometry.mode)), geometry
    except (images.UnusableImage, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserFault(f"The image cannot be read: {reason}", "Choose a PNG or JPEG file.") from error


def read_array(file: str | BytesIO, manifest: Manifest) -> tuple[NDArray[Any], images.Geometry]:
    """Read a ``.npy`` file; return the array, [H, W, C], and the geometry of an unchanged image.

    ``manifest`` describes the model's dataset. Raises UserFault unless the array has its dtype and shape.
    """
    try:
        with contextlib.nullcontext(file) if isinstance(file, BytesIO) else open(file, "rb") as opened:
            pixels = arrays.read_array(opened, dtype=np.dtype(manifest.dtype), shape=manifest.shape)
    except (OSError, ValueError) as error:
        raise UserFault(f"The pixels cannot be read: {error}.") from error
    height, width, _ = manifest.shape
    return pixels, images.Geometry((width, height), width, height, "squash")
