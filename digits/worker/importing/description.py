"""A model that is imported: its network, its weights, and the images that it expects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.files import read_bytes
from digits.core.recipe import Mean, ResizeMode
from digits.data.manifest import Manifest
from digits.data.models import archive as model_archive
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.worker.failure import UserFault


@dataclass(frozen=True)
class Description:
    """The model to import: source code, weights if they are separate, and the expected images.

    ``folder`` contains the `pretrained_files` that the network loads, if they are not in the job's folder yet.
    """

    network: str
    weights: Path | None
    epoch: float
    manifest: Manifest
    mean_image: NDArray[np.float32]
    folder: Path | None = None
    mean: Mean = "none"
    crop_size: int | None = None
    whitening: bool = False
    name: str = ""


# The target of a model without class names, until its network is built.
_UNKNOWN_NUMBERS = Numbers.of(["output"])
_MAX_NUMBERS = 10_000


def complete_target(manifest: Manifest, output: Any) -> None:
    """Set the target of an `empty_dataset` without labels if the ``output`` of its network is [N, numbers]."""
    shape = getattr(output, "shape", None)
    if manifest.target == _UNKNOWN_NUMBERS and shape is not None and shape.rank == 2:
        count = shape[1] or 1
        if 1 < count <= _MAX_NUMBERS:
            manifest.target = Numbers.of([f"output {number}" for number in range(1, count + 1)])


def empty_dataset(
    labels: list[str], height: int, width: int, channels: int, resize_mode: ResizeMode
) -> Manifest:
    """Return the manifest of an empty dataset: for classification if there are ``labels``, otherwise generic."""
    target: Target = ClassIndex.of(labels) if labels else _UNKNOWN_NUMBERS
    if channels not in (1, 3):
        raise UserFault(
            f"The model takes images with {channels} channels.",
            "Import a model for images with 1 or 3 channels.",
        )
    return Manifest(
        kind="image-classification" if labels else "generic",
        width=width,
        height=height,
        channels=channels,
        encoding="png",
        resize_mode=resize_mode,
        target=target,
        splits={},
        mean_pixel=[0.0] * channels,
    )


def text_of(path: Path, below: Path | None = None) -> str:
    """Return the text of a network's file; raises UnreadableFile."""
    data = read_bytes(path, model_archive.MAX_NETWORK_BYTES, below=below)
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
