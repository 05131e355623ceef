"""Attribution: which parts of an image a network's output depends on.

- Grad-CAM: Selvaraju et al., 2017, “Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization”,
  https://arxiv.org/abs/1610.02391. For outputs with a value per pixel, the score is the mean over the pixels of the
  class, as in Vinogradova et al., 2020, https://arxiv.org/abs/2002.11434.
- Integrated gradients: Sundararajan et al., 2017, “Axiomatic Attribution for Deep Networks”,
  https://arxiv.org/abs/1703.01365, with a black image as the baseline.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images import images, tiles
from digits.worker.failure import UserFault
from digits.worker.inspection.inspector import Inspector

METHODS = ("grad_cam", "integrated_gradients")
STEPS = 32
# Images of the path whose gradients are computed together.
PATH_BATCH = 8
# The largest attributions beyond this share of the pixels are drawn in the brightest color.
BRIGHTEST_SHARE = 0.99


class Attribution:
    """Computes heat maps for the outputs of the network of ``inspector``."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._trained = inspector.trained
        self._layer_functions: dict[str, Any] = {}

    def default_layer(self) -> str:
        """Return the layer for Grad-CAM; raises UserFault if the network has no layer of maps.

        This is the last one with weights, or for networks that return maps, the last one of the smallest maps, because
        the output depends on the last layer in a single place only.
        """
        maps = [name for name, size in self._map_sizes().items() if size]
        if not maps:
            raise UserFault(
                "Grad-CAM needs a layer of maps, such as a convolution, and the network has none.",
                "Use integrated gradients.",
            )
        sizes = self._map_sizes()
        if self._output_rank() == 4:
            smallest = min(sizes[name] for name in maps)
            maps = [name for name in maps if sizes[name] == smallest]
        with_weights = [name for name in maps if self._trained.layer(name).row["parameters"]]
        return (with_weights or maps)[-1]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in order; empty if the network has none that can be explained."""
        try:
            shape = _main_output(self._trained.traced.built.output).shape
        except UserFault:
            return []
        count = 1 if shape.rank == 1 else shape[-1] or 0
        return [self._name_of(number) for number in range(count)]

    def _name_of(self, output: int) -> str:
        names = self._trained.manifest.target.names
        return names[output] if output < len(names) else f"Output {output}"

    @property
    def layers(self) -> list[str]:
        """The layers that Grad-CAM can use."""
        return [name for name, size in self._map_sizes().items() if size]

    def grad_cam(self, pixels: NDArray[Any], output: int | None = None, layer: str = "") -> dict[str, Any]:
        """Return the Grad-CAM heat map of an ``output``, by default the one with the largest score, for a ``layer``.

        ``pixels`` are [H, W, C]. Raises UserFault for an unknown output or layer, or one that has no maps.
        """
        layer = layer or self.default_layer()
        self._trained.layer(layer)
        if layer not in self.layers:
            raise UserFault(f"The layer “{layer}” has no maps.", f"Choose one of {', '.join(self.layers)}.")
        batch = tf.constant(self._repeat(pixels[None]))
        chosen = self._chosen(batch, output)
        activation, gradient = (value.numpy()[0] for value in self._layer_function(layer)(batch, chosen))
        weights = gradient.mean(axis=(0, 1))
        heat = np.maximum((activation * weights).sum(axis=-1), 0)
        return self._as_json("grad_cam", chosen, heat, {"layer": layer})

    def integrated_gradients(self, pixels: NDArray[Any], output: int | None = None) -> dict[str, Any]:
        """Return the heat map of an ``output`` by integrated gradients along `STEPS` steps from a black image.

        The heat map is the absolute attribution, summed over the channels. ``attributed`` is the sum of all
        attributions and ``difference`` that of the scores of the image and of the black one; the closer they are, the
        better is the approximation. Raises UserFault for an unknown output.
        """
        image = pixels.astype(np.float32)
        chosen = self._chosen(tf.constant(self._repeat(pixels[None])), output)
        fractions = np.asarray((np.arange(STEPS) + 0.5) / STEPS, np.float32)  # midpoints
        total = np.zeros_like(image)
        for start in range(0, STEPS, self._path_batch):
            path = fractions[start : start + self._path_batch, None, None, None] * image
            total += self._gradients(path, chosen).sum(axis=0)
        attribution = image * total / STEPS
        ends = [self._score(each, chosen) for each in (image, np.zeros_like(image))]
        heat = np.abs(attribution).sum(axis=-1)
        more = {"attributed": float(attribution.sum()), "difference": ends[0] - ends[1]}
        return self._as_json("integrated_gradients", chosen, heat, more)

    @property
    def _path_batch(self) -> int:
        return 1 if self._inspector.repeats > 1 else PATH_BATCH

    def _repeat(self, batch: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(batch, self._inspector.repeats, axis=0)

    def _map_sizes(self) -> dict[str, int]:
        """Return the number of positions of each layer's maps; 0 for layers without maps."""
        sizes = {}
        for row in self._inspector.table:
            shape = row["shape"]
            is_map = len(shape) == 4 and None not in shape[1:] and shape[1] * shape[2] > 1
            sizes[row["name"]] = shape[1] * shape[2] if is_map else 0
        return sizes

    def _output_rank(self) -> int:
        return int(_main_output(self._trained.traced.built.output).shape.rank or 0)

    def _chosen(self, batch: tf.Tensor, output: int | None) -> tf.Tensor:
        """Return the number of the ``output``, by default that of the largest score; raises UserFault."""
        scores = self._scores_function(batch).numpy()[0]
        if output is None:
            return tf.constant(int(np.argmax(scores)))
        if not 0 <= output < len(scores):
            raise UserFault(f"There is no output {output}: the network has outputs 0 to {len(scores) - 1}.")
        return tf.constant(output)

    @functools.cached_property
    def _scores_function(self) -> Any:
        """A function from images [N, H, W, C] to the scores of all outputs, float32 [N, outputs]."""
        return tf.function(
            lambda pixels: _scores(self._trained.outputs(pixels)), autograph=False, reduce_retracing=True
        )

    def _score(self, image: NDArray[np.float32], chosen: tf.Tensor) -> float:
        return float(self._scores_function(tf.constant(self._repeat(image[None]))).numpy()[0, int(chosen)])

    def _gradients(self, batch: NDArray[np.float32], chosen: tf.Tensor) -> NDArray[np.float32]:
        """Return the gradients of the chosen score with respect to images, float32 [N, H, W, C]."""
        # Images that are repeated share the gradient of their sum.
        gradients: NDArray[np.float32] = self._gradient_function(
            tf.constant(self._repeat(batch)), chosen
        ).numpy()
        return gradients.reshape(len(batch), -1, *batch.shape[1:]).sum(axis=1) / self._inspector.repeats

    @functools.cached_property
    def _gradient_function(self) -> Any:
        def gradients(pixels: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(pixels)
                score = tf.reduce_sum(tf.gather(_scores(self._trained.outputs(pixels)), chosen, axis=1))
            return tape.gradient(score, pixels, unconnected_gradients="zero")

        return tf.function(gradients, autograph=False, reduce_retracing=True)

    def _layer_function(self, layer: str) -> Any:
        """A function from images and an output to the activation of ``layer`` and the gradient of the score."""

        def compute(pixels: tf.Tensor, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            output, activations = self._trained.build_layers(pixels)
            activation = activations[layer]
            score = tf.reduce_sum(tf.gather(_scores(output), chosen, axis=1))
            # The activation is in the middle of the user's network, so a tape cannot watch it.
            (gradient,) = tf.gradients(score, [activation], unconnected_gradients="zero")
            return activation, gradient

        if layer not in self._layer_functions:
            self._layer_functions[layer] = tf.function(compute, autograph=False)
        return self._layer_functions[layer]

    def _as_json(
        self, method: str, chosen: tf.Tensor, heat_map: NDArray[Any], more: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a heat map with its ``output``, its name, its largest value, and its picture on the image's pixels."""
        output = int(chosen)
        heat = np.nan_to_num(heat_map)
        top = (
            float(np.quantile(heat, BRIGHTEST_SHARE))
            if method == "integrated_gradients"
            else float(heat.max())
        )
        scaled = np.clip(heat / (top or float(heat.max()) or 1.0), 0, 1).astype(np.float32)
        return {
            "method": method,
            "output": output,
            "label": self._name_of(output),
            "max": float(heat.max()),
            "url": images.data_uri(images.encode(tiles.colorize(self._on_image(scaled, method)), "png")),
            **more,
        }

    def _on_image(self, heat: NDArray[np.float32], method: str) -> NDArray[np.float32]:
        """Resize the heat map of a layer to the pixels that the network sees: the center of the image after a crop."""
        height, width, _ = self._trained.manifest.shape
        if method == "integrated_gradients":
            return heat
        seen = self._trained.prepare.shape[:2]
        resized = tf.image.resize(heat[..., None], seen, method="bilinear")
        whole = tf.image.resize_with_crop_or_pad(resized, height, width)
        resized_heat: NDArray[np.float32] = whole.numpy()[..., 0]
        return resized_heat


def _main_output(outputs: Any) -> tf.Tensor:
    """Return the first output of floating-point numbers; raises UserFault."""
    for item in tf.nest.flatten(outputs):
        if isinstance(item, tf.Tensor) and item.dtype.is_floating and item.shape.rank:
            return item
    raise UserFault("The network has no output of numbers for each image.", "Inspect its layers instead.")


def _scores(outputs: Any) -> tf.Tensor:
    """Return a score per output, float32 [N, outputs].

    For outputs [N, …, outputs] such as those of a segmentation network, the score is the mean over the positions where
    an output is the largest, or over all positions if there are none.
    """
    values = tf.cast(_main_output(outputs), tf.float32)
    if values.shape.rank == 1:
        values = values[:, None]
    if values.shape.rank == 2:
        return values
    count = values.shape[-1]
    flat = tf.reshape(values, [tf.shape(values)[0], -1, count])
    wins = tf.stop_gradient(tf.one_hot(tf.argmax(flat, axis=-1), count))
    has_wins = tf.reduce_any(wins > 0, axis=1, keepdims=True)
    weights = tf.where(has_wins, wins, tf.ones_like(wins))
    return tf.reduce_sum(flat * weights, axis=1) / tf.reduce_sum(weights, axis=1)
