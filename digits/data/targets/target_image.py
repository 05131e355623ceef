"""The target of image-to-image networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from digits.data.images.conversion import Size
from digits.data.targets.picture import PictureTarget
from digits.data.targets.target import DatasetFit, Feature, Read, Target, UnfitDataset

if TYPE_CHECKING:
    from digits.data.images.images import Geometry


class TargetImage(PictureTarget, frozen=True, kw_only=True):
    """An image of the same size, float32 [height, width, channels], 0 to 255. Stored as a PNG."""

    feature: Feature = "target/encoded"
    dtype: Literal["float32"] = "float32"
    spatial: Literal["image"] = "image"

    @classmethod
    def of(cls, height: int, width: int, channels: int) -> Self:
        """Return the target for images of this size."""
        return cls(shape=[height, width, channels])

    def __post_init__(self) -> None:
        """Raise ValueError for another shape."""
        super().__post_init__()
        if len(self.shape) != 3:
            raise ValueError("target: image are float32 of rank 3")

    def resize(self, value: NDArray[np.uint8], geometry: Geometry) -> NDArray[np.uint8]:
        from digits.data.images import images

        size = (geometry.width, geometry.height)
        return images.as_pixels(images.resize_image(images.as_image(value), *size, geometry.mode))

    def _fit_names(self, other: Target) -> DatasetFit:
        if self.shape[2] != other.shape[2]:
            raise UnfitDataset("its target images have a different number of channels")
        return super()._fit_names(other)

    def describe(self, value: Any) -> str:
        return ""

    def describe_stored(self, read: Read) -> str:
        return ""  # without decoding it

    def drawings(self, url: str, thumbnail: str, read: Read, size: Size) -> dict[str, Any]:
        return {"target": thumbnail, "full_target": url}

    def draw(self, value: NDArray[np.uint8], side: int = 0) -> bytes:
        from digits.data.images import images

        return images.thumbnail(images.as_image(value), side) if side else images.encode(value, "png")

    def draw_prediction(self, predicted: Any, url: str, size: Size) -> dict[str, Any] | None:
        return {"url": predicted["image"]}
