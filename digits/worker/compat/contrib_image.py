"""``tf.contrib.image`` and ``tf.contrib.resampler``: projective transforms, warps and resampling of images.

A projective transform is a vector of eight numbers (a0, a1, a2, b0, b1, b2, c0, c1): pixel (x, y) of the output is
the input at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), with k = c0 x + c1 y + 1.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: Any = None) -> Any:
    """Rotate images counterclockwise by ``angles`` in radians, a scalar or [N]."""
    images = tf.convert_to_tensor(images)
    height, width = (tf.shape(images)[axis] for axis in ((1, 2) if images.shape.rank == 4 else (0, 1)))
    return transform(images, angles_to_projective_transforms(angles, height, width), interpolation)


def translate(images: Any, translations: Any, interpolation: str = "NEAREST", name: Any = None) -> Any:
    """Translate images by ``translations`` [N or 1, 2] (right, down), in pixels."""
    return transform(images, translations_to_projective_transforms(translations), interpolation)


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any = None,
    name: Any = None,
) -> Any:
    """Apply the projective ``transforms`` [N or 1, 8] to images [N, H, W, C], [H, W, C] or [H, W]."""
    images = tf.convert_to_tensor(images)
    rank = images.shape.rank
    batch = {2: lambda: images[None, :, :, None], 3: lambda: images[None]}.get(rank, lambda: images)()
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=batch,
        transforms=_flat(transforms),
        output_shape=tf.shape(batch)[1:3] if output_shape is None else output_shape,
        fill_value=0.0,
        interpolation=interpolation.upper(),
    )
    if output_shape is None:
        moved = tf.ensure_shape(moved, batch.shape)
    return {2: lambda: moved[0, :, :, 0], 3: lambda: moved[0]}.get(rank, lambda: moved)()


def _flat(transforms: Any) -> tf.Tensor:
    return tf.reshape(tf.cast(transforms, tf.float32), [-1, 8])


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: Any = None
) -> tf.Tensor:
    """Return the transforms [N, 8] that rotate images counterclockwise about their center; ``angles`` in
    radians.
    """
    angles = tf.reshape(tf.cast(angles, tf.float32), [-1])
    height, width = (tf.cast(side, tf.float32) - 1 for side in (image_height, image_width))
    cos, sin = tf.cos(angles), tf.sin(angles)
    zeros = tf.zeros_like(cos)
    offset_x = (width - (cos * width - sin * height)) / 2
    offset_y = (height - (sin * width + cos * height)) / 2
    return tf.stack([cos, -sin, offset_x, sin, cos, offset_y, zeros, zeros], 1)


def translations_to_projective_transforms(translations: Any, name: Any = None) -> tf.Tensor:
    """Return the transforms [N, 8] that translate images by ``translations`` [N, 2] or [2] (right, down), in
    pixels.
    """
    moves = tf.reshape(tf.cast(translations, tf.float32), [-1, 2])
    ones, zeros = tf.ones_like(moves[:, 0]), tf.zeros_like(moves[:, 0])
    return tf.stack([ones, zeros, -moves[:, 0], zeros, ones, -moves[:, 1], zeros, zeros], 1)


def flat_transforms_to_matrices(transforms: Any, name: Any = None) -> tf.Tensor:
    """Convert transforms [N, 8] to matrices [N, 3, 3]."""
    flat = _flat(transforms)
    return tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], 1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any, name: Any = None) -> tf.Tensor:
    """Convert matrices [N, 3, 3] or [3, 3] to transforms [N, 8]."""
    flat = tf.reshape(tf.cast(transform_matrices, tf.float32), [-1, 9])
    return flat[:, :8] / flat[:, 8:]


def compose_transforms(*transforms: Any, name: Any = None) -> tf.Tensor:
    """Compose ``transforms`` into one [N, 8], applied from first to last."""
    composed = flat_transforms_to_matrices(transforms[0])
    for more in transforms[1:]:
        composed = tf.matmul(composed, flat_transforms_to_matrices(more))
    return matrices_to_flat_transforms(composed)


def dense_image_warp(image: Any, flow: Any, name: str = "dense_image_warp") -> tf.Tensor:
    """Sample ``image`` [N, H, W, C] at the position (y, x) of each pixel minus ``flow`` [N, H, W, 2].

    Values are interpolated bilinearly; positions outside of the image use the nearest pixel inside.
    """
    with tf.name_scope(name):
        image, flow = tf.convert_to_tensor(image), tf.convert_to_tensor(flow)
        height, width = tf.shape(image)[1], tf.shape(image)[2]
        rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
        grid = tf.cast(tf.stack([rows, columns], 2), flow.dtype)
        places = grid - flow
        last = tf.cast(tf.stack([height, width]) - 1, flow.dtype)
        return _interpolate(image, tf.clip_by_value(places, 0, last))


def resampler(data: Any, warp: Any, name: str = "resampler") -> tf.Tensor:
    """Sample ``data`` [N, H, W, C] at ``warp`` [N, …, 2] (x, y), bilinearly; zero outside."""
    with tf.name_scope(name):
        data, warp = tf.convert_to_tensor(data), tf.convert_to_tensor(warp)
        padded = tf.pad(data, [[0, 0], [1, 1], [1, 1], [0, 0]])
        last = tf.cast(tf.shape(padded)[1:3] - 1, warp.dtype)
        return _interpolate(padded, tf.clip_by_value(warp[..., ::-1] + 1, 0, last))


def _interpolate(image: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Sample ``image`` [N, H, W, C] at ``places`` [N, …, 2] (y, x) inside of it, bilinearly."""
    last = tf.maximum(tf.shape(image)[1:3] - 2, 0)
    corner = tf.minimum(tf.cast(tf.floor(places), tf.int32), last)
    down, right = tf.split(tf.cast(places - tf.cast(corner, places.dtype), image.dtype), 2, -1)

    def pixel(rows: int, columns: int) -> tf.Tensor:
        wanted = tf.minimum(corner + tf.constant([rows, columns]), tf.shape(image)[1:3] - 1)
        return tf.gather_nd(image, wanted, batch_dims=1)

    above = pixel(0, 0) * (1 - right) + pixel(0, 1) * right
    below = pixel(1, 0) * (1 - right) + pixel(1, 1) * right
    return above * (1 - down) + below * down


def names() -> dict[str, Any]:
    """Return the names of ``tf.contrib.image``."""
    functions = (
        rotate,
        translate,
        transform,
        angles_to_projective_transforms,
        translations_to_projective_transforms,
        flat_transforms_to_matrices,
        matrices_to_flat_transforms,
        compose_transforms,
        dense_image_warp,
    )
    return {function.__name__: function for function in functions}
