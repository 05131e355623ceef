"""Read the file formats of sample datasets: idx files, CIFAR's binary files, and sprites."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from digits.data.samples.downloads import SourceError, decompress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPLITS = ("train", "test")


@dataclass(frozen=True)
class LabeledImages:
    """A split of a sample: uint8 [images, height, width, channels], and the class of each image."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.integer]


# Turns the contents of files, by name, into the two splits. Raises SourceError.
Reader = Callable[[Mapping[str, bytes]], dict[str, LabeledImages]]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BINARY_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR_SPRITES = (*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png")
# The package spells them like this.
CIFAR_SPRITE_LABELS = ("train_lables.json", "test_lables.json")


def read_idx(files: Mapping[str, bytes]) -> dict[str, LabeledImages]:
    """Read the four `IDX_FILES` of MNIST and its relatives, plain or as ``.gz``."""
    content = {
        name.removesuffix(".gz"): decompress(data, name) if name.endswith(".gz") else data
        for name, data in files.items()
    }
    train_images, train_labels, test_images, test_labels = (_idx_array(content[name]) for name in IDX_FILES)
    return {
        "train": LabeledImages(train_images[..., None], train_labels),
        "test": LabeledImages(test_images[..., None], test_labels),
    }


def read_cifar_binary(files: Mapping[str, bytes]) -> dict[str, LabeledImages]:
    """Read CIFAR-10's binary version: records of a label byte and 3 planes of 32×32 bytes."""
    *train, test = CIFAR_BINARY_FILES
    return {
        "train": _cifar_records(b"".join(files[name] for name in train)),
        "test": _cifar_records(files[test]),
    }


def read_cifar_sprites(files: Mapping[str, bytes]) -> dict[str, LabeledImages]:
    """Read CIFAR-10 from PNG files with one image in each row of pixels, and JSON lists of labels."""
    import numpy as np

    from digits.data.images import images

    def rows(name: str) -> NDArray[np.uint8]:
        return images.load(files[name], 3).reshape(-1, 32, 32, 3)

    def labels(name: str) -> NDArray[np.uint8]:
        return np.array(json.loads(files[name]), np.uint8)

    *train, test = CIFAR_SPRITES
    train_labels, test_labels = CIFAR_SPRITE_LABELS
    return {
        "train": LabeledImages(np.concatenate([rows(name) for name in train]), labels(train_labels)),
        "test": LabeledImages(rows(test), labels(test_labels)),
    }


def _idx_array(data: bytes) -> NDArray[np.uint8]:
    """Read an idx file of bytes: 2 zero bytes, type 8, number of dimensions, the dimensions, the values."""
    import numpy as np

    if data[:3] != b"\0\0\x08":
        raise SourceError("an idx file is damaged")
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, 4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _cifar_records(data: bytes) -> LabeledImages:
    import numpy as np

    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return LabeledImages(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0])
