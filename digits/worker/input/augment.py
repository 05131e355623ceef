"""Random augmentation of image batches, inside the training function.

Augmentations are applied in this order:

1. `augment_geometry`, to pixels of 0 to 255: 90° rotation, flip, pad and crop, rotation, zoom and the geometric
operations of RandAugment, combined into one map from output to input positions.
2. `augment_colors`, to pixels of 0 to 255, because colors are undefined after mean subtraction: RandAugment, hue,
saturation, value, contrast and noise; the result is clipped to 0 to 255.
3. Mean subtraction, zero padding outside of the image, and random crops (all in `digits.worker.input.preparation`).
4. `standardize`, also for validation and inference.
5. `blend`: Cutout, MixUp and CutMix.

Each image is augmented differently. All random numbers are drawn from a seed of two numbers, the run's and the
step's, so that a repeated step sees the same images.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core.recipe import Augment
from digits.worker.failure import UserFault
from digits.worker.input.affine import AffineMap

FULL_RANGE = 255.0

# Numbers of counterclockwise quarter turns, drawn uniformly.
_QUARTERS = {"rot90": (0, 1, 3), "rot180": (0, 2), "rotall": (0, 1, 2, 3)}

SMALLEST_ZOOM = 0.1

# RandAugment: the range of each operation at magnitude 1.
_LARGEST_TURN = math.radians(30)
_LARGEST_SHEAR = 0.3
_LARGEST_SHIFT = 0.3
_LARGEST_FACTOR = 0.9
_FEWEST_BITS = 4.0

OPERATIONS = (
    "nothing",
    "turn",
    "shear_x",
    "shear_y",
    "shift_x",
    "shift_y",
    "brightness",
    "contrast",
    "saturation",
    "posterize",
    "solarize",
    "stretch",
)

# Each random number has its own row, so that enabling one augmentation does not change the others.
ROWS = (
    "flip_x",
    "flip_y",
    "quarter",
    "shift_x",
    "shift_y",
    "turn",
    "zoom_radius",
    "zoom_phase",
    "hue",
    "saturation",
    "value",
    "contrast",
    "cut_x",
    "cut_y",
    "mix",
    "mix_x",
    "mix_y",
    "mix_choice",
    "first_operation",
    "second_operation",
    "window_x",
    "window_y",
    *(f"amount_{operation}" for operation in OPERATIONS),
)
_NOISE_SEED = 1


def check(augment: Augment, shape: tuple[int, int, int], target_in_image: bool = False) -> None:
    """Raise UserFault if ``augment`` is not possible for images of ``shape`` (height, width, channels).

    ``target_in_image`` is whether their targets move with them.
    """
    if target_in_image and (augment.mixup or augment.cutmix):
        raise UserFault(
            "MixUp and CutMix blend labels of whole images, but the targets of this dataset are in the image.",
            "Turn MixUp and CutMix off.",
        )
    for name in ("pad_crop", "cutout"):
        if getattr(augment, name) > max(shape[:2]):
            raise UserFault(
                f"The augmentation {name} is {getattr(augment, name)} pixels, more than the image has.",
                f"Choose a value from 0 to {max(shape[:2])}.",
            )
    if augment.quad_rotation in ("rot90", "rotall") and shape[0] != shape[1]:
        raise UserFault(
            f"Images of {shape[1]}×{shape[0]} pixels change their size when rotated by 90°.",
            "Choose 180° rotations only (rot180).",
        )


class Draws:
    """Random numbers for one batch of ``count`` images; ``seed`` is int32 [2].

    With ``positions``, int64 [n], they are those of the images at these positions in the batch.
    """

    def __init__(
        self, seed: tf.Tensor, count: tf.Tensor | int, positions: NDArray[np.int64] | None = None
    ) -> None:
        self._seed, self._count, self._positions = seed, count, positions
        # A single call: each one costs more than the numbers it draws.
        self.numbers = self._chosen(
            tf.random.stateless_uniform([len(ROWS), count], seed, alg="philox"), axis=1
        )

    def _chosen(self, numbers: tf.Tensor, axis: int) -> tf.Tensor:
        return numbers if self._positions is None else tf.gather(numbers, self._positions, axis=axis)

    def uniform(self, row: str, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Return uniform numbers, float32 [N], in [``low``, ``high``)."""
        return low + self.numbers[ROWS.index(row)] * (high - low)

    def integer(self, row: str, low: int, high: int) -> tf.Tensor:
        """Return uniform integers, int32 [N], from ``low`` to ``high``, both included."""
        numbers = tf.cast(tf.floor(self.uniform(row) * (high - low + 1)), tf.int32)
        return low + tf.minimum(numbers, high - low)

    def zoom_factors(self, deviation: float) -> tf.Tensor:
        """Return zoom factors, float32 [N]: normal around 1, truncated at two standard deviations and
        `SMALLEST_ZOOM`.
        """
        # Box–Muller transform; the argument of the logarithm is never 0.
        radius = tf.sqrt(-2.0 * tf.math.log(1.0 - self.uniform("zoom_radius")))
        normal = radius * tf.cos(2 * math.pi * self.uniform("zoom_phase"))
        return tf.maximum(1.0 + deviation * tf.clip_by_value(normal, -2.0, 2.0), SMALLEST_ZOOM)

    def noise(self, shape: tf.Tensor) -> tf.Tensor:
        """Return standard normal noise, float32 of ``shape``, whose first dimension is that of the images."""
        seed = tf.random.experimental.stateless_fold_in(self._seed, _NOISE_SEED, alg="philox")
        whole = shape if self._positions is None else tf.concat([[self._count], shape[1:]], 0)
        return self._chosen(tf.random.stateless_normal(whole, seed, alg="philox"), axis=0)

    def amount(self, operation: str) -> tf.Tensor:
        """Return the signed strength of a RandAugment operation, float32 [N] in [-1, 1]; 0 for images without
        it.
        """
        return tf.where(self.is_chosen(operation), self.uniform(f"amount_{operation}", -1.0, 1.0), 0.0)

    def is_chosen(self, operation: str) -> tf.Tensor:
        """Return for which images RandAugment selected ``operation``, bool [N]."""
        number, last = OPERATIONS.index(operation), len(OPERATIONS) - 1
        rows = ("first_operation", "second_operation")
        return tf.reduce_any([tf.equal(self.integer(row, 0, last), number) for row in rows], axis=0)


# 1. Geometry


def augment_geometry(images: tf.Tensor, augment: Augment, draws: Draws) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Apply the geometric augmentations to ``images``, uint8 or float32 [N, H, W, C].

    Returns the images in the same size, float32 or with their dtype, and a mask, float32 [N, H, W, 1], that is 1
    for pixels from inside of the image and 0 for pixels that repeat its border; None if all are from inside.
    """
    if augment.rotation or augment.scale or augment.randaugment:
        return affine_map(augment, draws, *images.shape[1:3]).warp(images)
    quarters = _quarters(augment, draws)
    flip_x, flip_y = _flips(augment, draws, quarters)
    padding = augment.pad_crop
    rows, rows_inside = _source_positions("shift_y", images.shape[1], padding, flip_y, draws)
    columns, columns_inside = _source_positions("shift_x", images.shape[2], padding, flip_x, draws)
    inside = rows_inside[:, :, None, None] * columns_inside[:, None, :, None] if padding else None
    if quarters is not None and augment.quad_rotation in ("rot90", "rotall"):
        return _gather_rotated(images, rows, columns, quarters % 2 == 1), inside
    if padding or flip_y is not None:
        images = tf.gather(images, rows, axis=1, batch_dims=1)
    if padding or flip_x is not None:
        images = tf.gather(images, columns, axis=2, batch_dims=1)
    return images, inside


def _quarters(augment: Augment, draws: Draws) -> tf.Tensor | None:
    """Return the number of counterclockwise quarter turns of each image, int32 [N], or None."""
    choices = _QUARTERS.get(augment.quad_rotation)
    return None if choices is None else tf.gather(choices, draws.integer("quarter", 0, len(choices) - 1))


def _flips(
    augment: Augment, draws: Draws, quarters: tf.Tensor | None
) -> tuple[tf.Tensor | None, tf.Tensor | None]:
    """Return which images are mirrored left to right, and top to bottom, bool [N]; None for none.

    A 90° rotation is a transposition, followed by one of these.
    """
    flip_x = draws.uniform("flip_x") < 0.5 if augment.flip in ("fliplr", "fliplrud") else None
    flip_y = draws.uniform("flip_y") < 0.5 if augment.flip in ("flipud", "fliplrud") else None
    if quarters is None:
        return flip_x, flip_y
    turn_x, turn_y = quarters >= 2, (quarters == 1) | (quarters == 2)
    return (turn_x if flip_x is None else flip_x ^ turn_x, turn_y if flip_y is None else flip_y ^ turn_y)


def _source_positions(
    row: str, side: int, padding: int, flip: tf.Tensor | None, draws: Draws
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the source positions along one axis, int32 [N, side], and a mask: 1 inside of the image, float32."""
    places = draws.integer(row, -padding, padding)[:, None] + tf.range(side)[None, :]
    inside = tf.cast((places >= 0) & (places < side), tf.float32)
    places = tf.clip_by_value(places, 0, side - 1)
    if flip is not None:
        places = tf.where(flip[:, None], side - 1 - places, places)
    return places, inside


def _gather_rotated(
    images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, exchanged: tf.Tensor
) -> tf.Tensor:
    """Gather pixels of square ``images`` at ``rows`` and ``columns``, swapped for images in ``exchanged``."""
    side, channels = images.shape[2:]
    plain = rows[:, :, None] * side + columns[:, None, :]
    turned = columns[:, None, :] * side + rows[:, :, None]
    pixels = tf.reshape(images, [-1, side * side, channels])
    return tf.gather(pixels, tf.where(exchanged[:, None, None], turned, plain), batch_dims=1)


def changes_geometry(augment: Augment) -> bool:
    """Return whether `augment_geometry` changes images."""
    return (
        augment.flip != "none"
        or augment.quad_rotation != "none"
        or bool(augment.pad_crop or augment.rotation or augment.scale or augment.randaugment)
    )


def affine_map(augment: Augment, draws: Draws, height: int, width: int) -> AffineMap:
    """Return all geometric augmentations of images of ``height`` × ``width`` as one map.

    `augment_geometry` has the same result; it only takes shortcuts.
    """
    zero = tf.zeros_like(draws.uniform("turn"))
    matrix = _matrix(zero + 1, zero, zero, zero + 1)
    shift = tf.stack([zero, zero], 1)
    quarters = _quarters(augment, draws)
    if quarters is not None:
        swap = (quarters % 2 == 1)[:, None, None]
        matrix = tf.where(swap, _matrix(zero, zero + 1, zero + 1, zero), matrix)
    flip_x, flip_y = _flips(augment, draws, quarters)
    sign_x = zero + 1 if flip_x is None else tf.where(flip_x, -1.0, 1.0)
    sign_y = zero + 1 if flip_y is None else tf.where(flip_y, -1.0, 1.0)
    matrix = matrix @ _matrix(sign_y, zero, zero, sign_x)
    if augment.pad_crop:
        padding = augment.pad_crop
        starts = [
            tf.cast(draws.integer(row, -padding, padding), tf.float32) for row in ("shift_y", "shift_x")
        ]
        shift += _apply_matrix(matrix, tf.stack(starts, 1))
    angle, zoom = draws.uniform("turn", -1.0, 1.0) * math.radians(augment.rotation), zero + 1
    if augment.scale:
        zoom = draws.zoom_factors(augment.scale)
    matrix = matrix @ rotation_matrix(angle, zoom)
    if augment.randaugment:
        more, more_shift = _randaugment_affine(augment.randaugment, draws, height, width)
        shift += _apply_matrix(matrix, more_shift)
        matrix = matrix @ more
    return AffineMap(matrix, shift, height, width)


def _randaugment_affine(
    magnitude: float, draws: Draws, height: int, width: int
) -> tuple[tf.Tensor, tf.Tensor]:
    angle = draws.amount("turn") * (_LARGEST_TURN * magnitude)
    shear_x = draws.amount("shear_x") * (_LARGEST_SHEAR * magnitude)
    shear_y = draws.amount("shear_y") * (_LARGEST_SHEAR * magnitude)
    down = draws.amount("shift_y") * (_LARGEST_SHIFT * magnitude * height)
    right = draws.amount("shift_x") * (_LARGEST_SHIFT * magnitude * width)
    one = tf.ones_like(angle)
    return rotation_matrix(angle, one) @ _matrix(one, shear_y, shear_x, one), tf.stack([down, right], 1)


def rotation_matrix(angle: tf.Tensor, zoom: tf.Tensor) -> tf.Tensor:
    """Return matrices that rotate images counterclockwise by ``angle`` in radians and magnify them by ``zoom``."""
    cosine, sine = tf.cos(angle) / zoom, tf.sin(angle) / zoom
    return _matrix(cosine, sine, -sine, cosine)


def _matrix(yy: tf.Tensor, yx: tf.Tensor, xy: tf.Tensor, xx: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.stack([yy, yx], 1), tf.stack([xy, xx], 1)], 1)


def _apply_matrix(matrix: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matvec(matrix, vector)


# 2. Colors


def augment_colors(images: tf.Tensor, augment: Augment, draws: Draws) -> tf.Tensor:
    """Apply the color augmentations to ``images``, float32 [N, H, W, C] in 0 to 255; the result has this range
    too.
    """
    if not changes_colors(augment):
        return images
    if augment.randaugment:
        images = _randaugment_colors(images, augment.randaugment, draws)
    if augment.hsv_hue or augment.hsv_saturation or augment.hsv_value:
        images = _adjust_hsv(images, augment, draws)
    if augment.contrast:
        images = _adjust_contrast(
            images, draws.uniform("contrast", max(0.0, 1 - augment.contrast), 1 + augment.contrast)
        )
    if augment.noise:
        images += draws.noise(tf.shape(images)) * (augment.noise * FULL_RANGE)
    return tf.clip_by_value(images, 0.0, FULL_RANGE)


def changes_colors(augment: Augment) -> bool:
    """Return whether `augment_colors` changes images."""
    hsv = augment.hsv_hue or augment.hsv_saturation or augment.hsv_value
    return bool(augment.randaugment or hsv or augment.contrast or augment.noise)


def _adjust_hsv(images: tf.Tensor, augment: Augment, draws: Draws) -> tf.Tensor:
    """Shift the hue by a fraction of the circle, scale the saturation, and shift the value by a fraction of the
    range.
    """
    value_shift = draws.uniform("value", -augment.hsv_value, augment.hsv_value)[:, None, None]
    if images.shape[3] != 3:  # grayscale has neither hue nor saturation
        return tf.clip_by_value(images + value_shift[..., None] * FULL_RANGE, 0.0, FULL_RANGE)
    hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(images / FULL_RANGE), axis=-1)
    hue += draws.uniform("hue", -augment.hsv_hue, augment.hsv_hue)[:, None, None]
    factor = draws.uniform("saturation", 1 - augment.hsv_saturation, 1 + augment.hsv_saturation)
    saturation = tf.clip_by_value(saturation * factor[:, None, None], 0.0, 1.0)
    value = tf.clip_by_value(value + value_shift, 0.0, 1.0)
    hue -= tf.floor(hue)
    return tf.image.hsv_to_rgb(tf.stack([hue, saturation, value], axis=-1)) * FULL_RANGE


def _adjust_contrast(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scale the deviations from the mean of each image and channel by ``factor`` [N]."""
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return mean + (images - mean) * _per_image(factor)


def _randaugment_colors(images: tf.Tensor, magnitude: float, draws: Draws) -> tf.Tensor:
    largest = _LARGEST_FACTOR * magnitude
    images = autocontrast(images, draws.is_chosen("stretch"))
    if images.shape[3] == 3:
        gray = tf.image.rgb_to_grayscale(images)
        images = gray + (images - gray) * _per_image(1 + draws.amount("saturation") * largest)
    images = _adjust_contrast(images, 1 + draws.amount("contrast") * largest)
    images *= _per_image(1 + draws.amount("brightness") * largest)
    images = tf.clip_by_value(images, 0.0, FULL_RANGE)
    images = posterize(images, tf.abs(draws.amount("posterize")) * magnitude)
    return solarize(images, tf.abs(draws.amount("solarize")) * magnitude)


def autocontrast(images: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Stretch each channel of the ``chosen`` images to the full range; constant channels are unchanged."""
    low = tf.reduce_min(images, axis=[1, 2], keepdims=True)
    high = tf.reduce_max(images, axis=[1, 2], keepdims=True)
    whole = tf.math.divide_no_nan((images - low) * FULL_RANGE, high - low)
    return tf.where(_per_image(chosen) & (high > low), whole, images)


def posterize(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Reduce the bits per value: 8 for an ``amount`` of 0, `_FEWEST_BITS` for 1."""
    lost = tf.round(amount * (8 - _FEWEST_BITS))
    size = _per_image(tf.pow(2.0, lost))
    return tf.where(_per_image(lost > 0), tf.floor(images / size) * size, images)


def solarize(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Invert values above a threshold: none for an ``amount`` of 0, all for 1."""
    return tf.where(images > _per_image(FULL_RANGE * (1 - amount)), FULL_RANGE - images, images)


# 4. and 5.


def standardize(images: tf.Tensor) -> tf.Tensor:
    """Scale each image to mean 0 and variance 1 (``tf.image.per_image_standardization``); constant images become
    0.
    """
    return tf.image.per_image_standardization(images)


def blend(images: tf.Tensor, augment: Augment, draws: Draws) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Apply Cutout, then blend each image with the previous one in the batch by MixUp or CutMix.

    Returns the images, float32 [N, H, W, C], and the share of the original image in each, float32 [N] from 0 to 1,
    which is also the weight of its label; None without blending. If both are enabled, each image gets MixUp or
    CutMix with equal probability.

    - Cutout: DeVries and Taylor (2017), https://arxiv.org/abs/1708.04552
    - MixUp: Zhang et al. (2018), https://arxiv.org/abs/1710.09412
    - CutMix: Yun et al. (2019), https://arxiv.org/abs/1905.04899
    """
    height, width = images.shape[1:3]
    if augment.cutout:
        middle_y, middle_x = draws.uniform("cut_y", 0, height), draws.uniform("cut_x", 0, width)
        side = tf.fill(tf.shape(middle_y), float(augment.cutout))
        images *= 1 - _box(middle_y, middle_x, side, side, height, width)
    if not augment.mixup and not augment.cutmix:
        return images, None
    weights = _weights(augment, draws, height, width)
    images = images * weights + take_partners(images) * (1 - weights)
    return images, tf.reduce_mean(weights, axis=[1, 2, 3])


def take_partners(values: tf.Tensor) -> tf.Tensor:
    """Return, for each row of a batch, the row of the image that it is blended with."""
    return tf.roll(values, 1, axis=0)


def _weights(augment: Augment, draws: Draws, height: int, width: int) -> tf.Tensor:
    """Return the weight of each pixel against its partner's, float32 [N, H, W, 1] from 0 to 1."""
    even = None
    if augment.mixup:
        share = _quantile(_beta(augment.mixup), draws.uniform("mix"))
        even = tf.broadcast_to(_per_image(share), [tf.shape(share)[0], height, width, 1])
    if not augment.cutmix:
        return even
    side = tf.sqrt(1 - _quantile(_beta(augment.cutmix), draws.uniform("mix")))
    middle_y, middle_x = draws.uniform("mix_y", 0, height), draws.uniform("mix_x", 0, width)
    patch = 1 - _box(middle_y, middle_x, side * height, side * width, height, width)
    return patch if even is None else tf.where(_per_image(draws.uniform("mix_choice") < 0.5), patch, even)


def _box(
    middle_y: tf.Tensor, middle_x: tf.Tensor, tall: tf.Tensor, wide: tf.Tensor, height: int, width: int
) -> tf.Tensor:
    """Return a mask, float32 [N, height, width, 1]: 1 in a rectangle around a center, clipped at the border."""

    def stripe(middle: tf.Tensor, size: tf.Tensor, side: int) -> tf.Tensor:
        first = tf.round(middle - size / 2)[:, None]
        places = tf.range(side, dtype=tf.float32)[None, :]
        return tf.cast((places >= first) & (places < first + tf.round(size)[:, None]), tf.float32)

    return stripe(middle_y, tall, height)[:, :, None, None] * stripe(middle_x, wide, width)[:, None, :, None]


def _beta(parameter: float) -> NDArray[np.float32]:
    """Return 4096 equally likely values of the distribution Beta(parameter, parameter), sorted.

    A table, because XLA cannot sample the gamma distribution.
    """
    sample = np.sort(np.random.Generator(np.random.Philox(0)).beta(parameter, parameter, 2**18))
    return sample[32::64].astype(np.float32)


def _quantile(table: NDArray[np.float32], uniform: tf.Tensor) -> tf.Tensor:
    place = tf.cast(uniform * len(table), tf.int32)
    return tf.gather(tf.constant(table), tf.minimum(place, len(table) - 1))


def _per_image(values: tf.Tensor) -> tf.Tensor:
    """Reshape [N] to [N, 1, 1, 1]."""
    return tf.reshape(values, [-1, 1, 1, 1])
