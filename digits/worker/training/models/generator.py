"""Generation of images with a trained network that takes latent vectors, such as a GAN."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
from msgspec import Meta, Struct
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.models import latent
from digits.worker.failure import UserFault
from digits.worker.network.inference import generated_images
from digits.worker.training.models.trained import Trained

MAX_SIDE = 50
MAX_PIXELS = 16_000_000
# Of all images as JSON.
MAX_VALUES = 1_000_000
_BATCH = 64

log = logging.getLogger(__name__)

Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]


class Grid(Struct, frozen=True):
    """A grid of images to generate; see `digits.data.models.latent.draw_vectors`.

    ``with_images`` also returns each image; ``with_values`` returns their pixels as nested lists instead.
    """

    rows: Side = 5
    columns: Side = 10
    seed: Annotated[int, Meta(ge=0)] = 0
    vectors: list[list[float]] = []
    interpolate: bool = False
    chained: bool = False
    label: int | None = None
    with_images: bool = False
    with_values: bool = False


class Generator:
    """Generates images with the network ``trained``, whose inputs are latent vectors.

    If its loss uses the labels, its vectors end with a one-hot class.
    """

    def __init__(self, trained: Trained) -> None:
        self._trained, self._size = trained, trained.traced.latent
        self._labels = trained.manifest.target.names if self._is_conditional() else []

    def _is_conditional(self) -> bool:
        target = self._trained.manifest.target
        # The integers of ready-made records have names as well if they can be classes.
        is_class = target.dtype == "int64" and not target.shape and target.names
        if not is_class or self._size <= target.outputs:
            return False
        try:
            return self._trained.label_flow(0).is_used
        except Exception as error:
            log.info("The loss could not be built: %s", error)
            return False

    def generate(self, grid: Grid) -> dict[str, Any]:
        """Return the ``grid`` as a data URI of a PNG file, and its ``vectors``; raises UserFault."""
        if grid.label is not None and not 0 <= grid.label < len(self._labels):
            raise UserFault(
                f"The network has no class {grid.label}."
                if self._labels
                else "The network is not conditioned on a class.",
                f"Choose a number from 0 to {len(self._labels) - 1}." if self._labels else "",
            )
        try:
            vectors = latent.draw_vectors(
                grid.rows,
                grid.columns,
                self._size,
                grid.seed,
                given=grid.vectors,
                interpolate=grid.interpolate,
                chained=grid.chained,
                classes=len(self._labels),
                label=grid.label,
            )
        except latent.UnusableVector as error:
            raise UserFault(str(error)) from error
        generated = self._run(vectors)
        sheets = np.concatenate([generated[:, index] for index in range(generated.shape[1])], axis=2)
        answer: dict[str, Any] = {
            "grid": _data_uri(latent.draw_grid(sheets, grid.columns)),
            "vectors": [[round(float(value), 6) for value in vector] for vector in vectors],
            "width": int(generated.shape[3]),
            "height": int(generated.shape[2]),
            "classes": self._labels,
        }
        if grid.with_images:
            answer["images"] = [
                [_data_uri(images.as_image(item)) for item in several] for several in generated
            ]
        if grid.with_values:
            if generated.size > MAX_VALUES:
                raise UserFault("The images are too large for JSON.", "Generate fewer images.")
            answer["values"] = [several[0].tolist() for several in generated]
        return answer

    def _run(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the images of each of the vectors, uint8 [N, images, H, W, C]."""
        count = len(vectors)
        parts: list[NDArray[np.uint8]] = []
        for start in range(0, count, _BATCH):
            part = vectors[start : start + _BATCH]
            outputs = generated_images(self._trained.outputs(tf.constant(part)))
            shape = outputs[0].shape[1:]
            same = [output.numpy() for output in outputs if output.shape[1:] == shape]
            # Several images of one vector are several outputs, or follow each other in the batch.
            several = [
                output.reshape(len(part), -1, *shape) for output in same if len(output) % len(part) == 0
            ]
            if not several:
                raise UserFault(f"The network returns {len(same[0])} images for {len(part)} vectors.")
            parts.append(np.concatenate(several, axis=1))
            if parts[0][0].size * count > MAX_PIXELS:
                raise UserFault("The image grid is too large.", "Generate fewer images.")
        return latent.to_pixels(np.concatenate(parts))


def _data_uri(picture: Any) -> str:
    return images.data_uri(images.encode_image(picture, "png"))
