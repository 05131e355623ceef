"""The layers of a trained network for one image: activations, weights and their statistics."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images import images, tiles
from digits.data.images.tiles import TilePicture
from digits.worker.failure import UserFault
from digits.worker.network.variables import count
from digits.worker.training.models.trained import Trained

# Activations for the latest image that are kept, in numbers.
MAX_KEPT = 100_000_000
# The side of a tile that shows a single value, in pixels.
VALUE_SIDE = 8


class Inspector:
    """Computes the layers of ``trained`` for single images.

    ``repeats`` is the smallest batch that the network accepts. The activations for the latest image are kept, so that
    a page can request its layers one after the other. Raises UserFault for a network that generates images.
    """

    def __init__(self, trained: Trained, repeats: int = 1) -> None:
        if trained.traced.latent:
            raise UserFault(
                "The network generates images from latent vectors, so it has no activations for an image.",
                "Choose a model that predicts from images.",
            )
        self.trained, self.repeats = trained, repeats
        self._weights: dict[int, dict[str, Any]] = {}
        self._kept: tuple[bytes, dict[str, NDArray[Any]]] = (b"", {})

    @property
    def table(self) -> list[dict[str, Any]]:
        """The ``name``, ``type``, output ``shape`` and number of ``parameters`` of each layer, in order."""
        return [{**layer.row, "name": name} for name, layer in self.trained.layers.items()]

    def describe(self, pixels: NDArray[Any], names: list[str] | None = None) -> list[dict[str, Any]]:
        """Describe the layers ``names``, by default all, for ``pixels`` [H, W, C] of the dataset's shape and type.

        Each has the keys of `table`, and those of `tiles.statistics` and the ``picture`` of its ``activation`` and of
        each of its ``weights``. Raises UserFault for an unknown layer.
        """
        chosen = {
            name: self.trained.layer(name) for name in (self.trained.layers if names is None else names)
        }
        activations = self._activations(pixels)
        return [
            {
                **layer.row,
                "name": name,
                "activation": describe_activation(activations[name]),
                "weights": [self._describe_weights(item) for item in layer.weights],
            }
            for name, layer in chosen.items()
        ]

    def _describe_weights(self, variable: tf.Variable) -> dict[str, Any]:
        # They never change, and those of a large network take seconds.
        key = id(variable)
        if key not in self._weights:
            self._weights[key] = describe_weights(variable)
        return self._weights[key]

    def filters(self, folder: Path, snapshots: list[str]) -> dict[str, Any]:
        """Draw the filters of the first convolution in each of the ``snapshots`` in a ``folder``, on one scale.

        Returns the name of the ``layer``, and for each snapshot the ``snapshot``, its ``picture`` and ``statistics``.
        Snapshots that cannot be read are left out. Raises UserFault for a network without convolutions.
        """
        layer, variable = self._first_kernel()
        key = next(name for name, each in self.trained.store.variables.items() if each is variable)
        values: dict[str, NDArray[Any]] = {}
        for snapshot in snapshots:
            try:
                values[snapshot] = tf.train.load_checkpoint(str(folder / snapshot)).get_tensor(key)
            except (tf.errors.OpError, ValueError, KeyError):
                continue  # being removed, or damaged
        kernels = {name: as_maps(value) for name, value in values.items()}
        limits = tiles.value_range(
            np.concatenate([value.ravel() for value in kernels.values()] or [np.zeros(1)])
        )
        return {
            "layer": layer,
            "shape": list(variable.shape),
            "filters": [
                {
                    "snapshot": name,
                    "picture": as_json(tiles.draw_tiles(value, limits)),
                    "statistics": tiles.statistics(value),
                }
                for name, value in kernels.items()
            ],
        }

    def _first_kernel(self) -> tuple[str, tf.Variable]:
        for name, layer in self.trained.layers.items():
            for variable in layer.weights:
                if variable.shape.rank == 4:
                    return name, variable
        raise UserFault(
            "The network has no convolution with filters that could be drawn.", "Choose another model."
        )

    def _activations(self, pixels: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The output of each layer for an image, without the batch axis."""
        key = pixels.tobytes()
        if self._kept[0] == key:
            return self._kept[1]
        outputs = self._function(tf.constant(np.repeat(pixels[None], self.repeats, axis=0)))
        arrays = {name: _first(value.numpy()) for name, value in outputs.items()}
        if sum(value.size for value in arrays.values()) <= MAX_KEPT:
            self._kept = key, arrays
        return arrays

    @functools.cached_property
    def _function(self) -> Any:
        """A function from images, uint8 or float32 [N, H, W, C], to the outputs of all layers by name."""
        return tf.function(lambda pixels: self.trained.build_layers(pixels)[1], autograph=False)


def _first(batch: NDArray[Any]) -> NDArray[Any]:
    first: NDArray[Any] = batch[0] if batch.ndim else batch
    return first


def describe_activation(values: NDArray[Any]) -> dict[str, Any]:
    """Describe the output of a layer for an image, [H, W, units] or [..., units].

    `tiles.statistics`, the ``shape``, the ``picture`` of the units, the number of ``units`` and the ``dead_fraction``:
    the share of units that are zero everywhere in this image.
    """
    units = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    return {
        "shape": list(values.shape),
        **tiles.statistics(values),
        "units": units.shape[1],
        "dead_fraction": float(np.mean(~units.any(axis=0))) if units.shape[1] else 0.0,
        "picture": _draw_activation(values),
    }


def _draw_activation(values: NDArray[Any]) -> dict[str, Any] | None:
    """Draw maps [H, W, units] as tiles, and other activations as a grid of pixels, one for each value."""
    if not values.size:
        return None
    if values.ndim == 3 and max(values.shape[:2]) > 1:
        return as_json(tiles.draw_tiles(np.moveaxis(values, -1, 0)))
    return as_json(tiles.draw_tiles(values.reshape(-1, 1, 1), side=VALUE_SIDE))


def describe_weights(variable: tf.Variable) -> dict[str, Any]:
    """Describe a variable: its ``name``, ``shape``, ``parameters``, `tiles.statistics` and the ``picture`` of filters.

    The picture is None unless it is a kernel of a convolution.
    """
    values = variable.numpy()
    return {
        "name": variable.name.partition(":")[0],
        "shape": list(values.shape),
        "parameters": count(variable),
        **tiles.statistics(values),
        "picture": as_json(tiles.draw_tiles(as_maps(values))) if values.ndim == 4 and values.size else None,
    }


def as_maps(kernel: NDArray[Any]) -> NDArray[Any]:
    """Return the filters of a kernel [H, W, in, out]: [out, H, W, 3] for images in color, else [out × in, H, W]."""
    filters = np.moveaxis(kernel, 3, 0)
    if filters.shape[3] == 3 and max(filters.shape[1:3]) > 1:
        return filters
    return np.moveaxis(filters, 3, 1).reshape(-1, *kernel.shape[:2])


def as_json(picture: TilePicture) -> dict[str, Any]:
    """Return a picture with its ``url``, ``width``, ``height``, numbers of tiles and limits."""
    numbers = dataclasses.asdict(picture)
    return {"url": images.data_uri(numbers.pop("png")), **numbers}
