"""Make the records of a dataset from its plan, as they are stored."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import CreateDataset
from digits.data.images import images
from digits.data.records import records
from digits.data.sources.plan import Plan, SplitPlan

DIGEST_BYTES = 8

_FORMATS = {"png": "png", "jpg": "jpeg", "none": "raw"}


class UnusablePart(Exception):
    """The image ``name``, one of several in a record, cannot be used because of ``error``."""

    def __init__(self, name: str, error: images.UnusableImage | OSError) -> None:
        super().__init__(name)
        self.name, self.error = name, error


class RecordMaker:
    """Converts the images and targets of ``plan`` to records, resized and encoded as in ``recipe``."""

    def __init__(self, recipe: CreateDataset, plan: Plan) -> None:
        self._recipe = recipe
        self._plan = plan
        # Image files have one or three channels.
        self._format = "raw" if plan.stacked > 1 else _FORMATS[recipe.encoding]

    def make(self, split: SplitPlan, place: int) -> tuple[records.Record, NDArray[Any], bytes]:
        """Return a record of ``split``, its pixels or array, and 8 bytes for the content of its source.

        Raises UnusableImage, OSError, UnusablePart and WiderValues.
        """
        make = self._image_record if self._plan.dtype == "uint8" else self._array_record
        return make(split, place)

    def _pictures(self, split: SplitPlan, place: int) -> list[images.Picture]:
        """Read the images of a record; raises UnusableImage, OSError, UnusablePart and WiderValues."""
        plan, recipe = self._plan, self._recipe
        # Images to pad are decoded at their full size.
        enough = None if plan.padding else (recipe.width, recipe.height)
        names = plan.names(split, place)
        if len(names) == 1:
            return [plan.open(data, recipe.channels, enough) for data in plan.read(split, place)]
        pictures = []
        for name in names:
            try:
                pictures.append(plan.open(split.images.read(name), recipe.channels, enough))
            except (images.UnusableImage, OSError) as error:
                raise UnusablePart(name, error) from error
        return pictures

    def _image_record(self, split: SplitPlan, place: int) -> tuple[records.Record, images.Pixels, bytes]:
        recipe, size = self._recipe, (self._recipe.width, self._recipe.height)
        read = self._pictures(split, place)
        pictures = [self._plan.pad(item) for item in read]
        first = pictures[0]
        features = self._plan.features(split, place, _geometry(first.size, *size, recipe.resize_mode))
        digest = _digest(b"".join([item.data for item in pictures]))
        # The padding noise depends on the images only, so that it is reproducible.
        seed = recipe.seed % (1 << 64) ^ int.from_bytes(digest, "big")
        resized = [item.resize(*size, recipe.resize_mode, seed=seed) for item in pictures]
        pixels = resized[0] if len(resized) == 1 else np.concatenate(resized, axis=2)
        if first.plain and first.size == size and first.format.lower() == self._format:
            data = first.data
        elif self._format == "raw":
            data = pixels.tobytes()
        else:
            data = images.encode(pixels, recipe.encoding)
        name = self._plan.source_name(split, place)
        source_size, source_mode = self._plan.source(split, place, read[0])
        record = records.Record(
            data,
            self._format,
            recipe.height,
            recipe.width,
            pixels.shape[2],
            features,
            source=name,
            source_size=source_size,
            source_mode=source_mode,
        )
        return record, pixels, digest

    def _array_record(
        self, split: SplitPlan, place: int
    ) -> tuple[records.Record, NDArray[np.float32], bytes]:
        recipe = self._recipe
        array = self._plan.array(split, place)
        size = (recipe.width, recipe.height)
        features = self._plan.features(split, place, _geometry(size, *size, "squash"))
        data = array.astype("<f4").tobytes()
        digest = _digest(data)
        name = self._plan.source_name(split, place)
        record = records.Record(
            data, "float32", recipe.height, recipe.width, array.shape[2], features, source=name
        )
        return record, array, digest


# Many images have the same size.
_geometry = functools.lru_cache(maxsize=4096)(images.Geometry)


def _digest(data: bytes) -> bytes:
    # Processors have instructions for this hash.
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]
