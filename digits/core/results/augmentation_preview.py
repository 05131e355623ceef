"""Augmentation preview: dataset records, with several augmented variants of each as a network would see them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, field

from digits.core.files import read_json, write_json

FILE_NAME = "augmented.json"


class Outline(Struct, frozen=True):
    """A box to draw; the edges are percentages of the width and height of the image.

    One that is ``ignored`` is not an object, but a region to ignore.
    """

    left: float
    top: float
    width: float
    height: float
    name: str
    color: str
    ignored: bool = False


class Picture(Struct, frozen=True, kw_only=True):
    """An image of ``width`` × ``height`` pixels as a data URI; ``label`` describes its target.

    A ``mask`` or ``boxes`` are drawn on it, and a ``target`` beside it.
    """

    url: str
    width: int
    height: int
    label: str
    mask: str = ""
    target: str = ""
    boxes: list[Outline] = field(default_factory=list)


class Augmented(Struct, frozen=True, kw_only=True):
    """A record of the training split by its ``number``: the ``original``, and ``variants`` of it."""

    number: int
    original: Picture
    variants: list[Picture]


class AugmentationPreview(Struct, frozen=True, kw_only=True):
    """The records; ``shape`` is that of the network's input, and its values lie between ``low`` and ``high``."""

    shape: tuple[int, int, int]
    low: float
    high: float
    records: list[Augmented]


def save(folder: Path, preview: AugmentationPreview) -> None:
    write_json(folder / FILE_NAME, msgspec.to_builtins(preview))


def load(folder: Path) -> AugmentationPreview:
    """Load the preview in ``folder``; raises UnreadableFile."""
    return read_json(folder / FILE_NAME, AugmentationPreview, below=folder)
