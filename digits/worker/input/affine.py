"""Affine maps of a batch of images."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class AffineMap:
    """Maps positions in the output to positions in images of ``height`` × ``width``, each image differently.

    Positions are (y, x) relative to the center of the image, in pixels: ``matrix`` [N, 2, 2] times the position plus
    ``shift`` [N, 2].
    """

    matrix: tf.Tensor
    shift: tf.Tensor
    height: int
    width: int

    def warp(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sample ``images`` [N, H, W, C] with bilinear interpolation, float32.

        Also returns a mask, float32 [N, H, W, 1]: 1 for pixels inside the image, 0 for those that repeat its
        border.
        """
        y, x = self._sources()
        pixels = self._flat(images)
        top, left = tf.floor(y), tf.floor(x)

        def at(row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
            return tf.cast(self._gather(pixels, row, column), tf.float32)

        lower, further = (y - top)[..., None], (x - left)[..., None]
        above = at(top, left) * (1 - further) + at(top, left + 1) * further
        below = at(top + 1, left) * (1 - further) + at(top + 1, left + 1) * further
        return above * (1 - lower) + below * lower, tf.cast(self._inside(y, x), tf.float32)

    def nearest(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sample the nearest pixels of ``images`` [N, H, W, C]; also return which are inside, bool [N, H, W, 1]."""
        y, x = self._sources()
        pixels = self._gather(self._flat(images), tf.round(y), tf.round(x))
        return pixels, self._inside(y, x)

    def forward(self, points: tf.Tensor) -> tf.Tensor:
        """Return where points of the images are in the output.

        Points, float32 [N, M, 2], are (y, x) in pixels from the top left corner of the image, whose first pixel
        extends from 0 to 1.
        """
        middle = tf.constant([self.height / 2, self.width / 2], tf.float32)
        relative = points - middle - self.shift[:, None, :]
        return tf.matmul(relative, tf.linalg.inv(self.matrix), transpose_b=True) + middle

    def _sources(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the positions y and x, float32 [N, H, W], that the pixels of the output come from."""
        middle_y, middle_x = (self.height - 1) / 2, (self.width - 1) / 2
        down = (tf.range(self.height, dtype=tf.float32) - middle_y)[None, :, None]
        right = (tf.range(self.width, dtype=tf.float32) - middle_x)[None, None, :]
        matrix, shift = self.matrix, self.shift
        y = matrix[:, 0, 0, None, None] * down + matrix[:, 0, 1, None, None] * right
        x = matrix[:, 1, 0, None, None] * down + matrix[:, 1, 1, None, None] * right
        return y + shift[:, 0, None, None] + middle_y, x + shift[:, 1, None, None] + middle_x

    def _inside(self, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # Pixels extend half a pixel beyond the outermost positions.
        rows = (y > -0.5) & (y < self.height - 0.5)
        return (rows & (x > -0.5) & (x < self.width - 0.5))[..., None]

    def _flat(self, images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(images, [-1, self.height * self.width, images.shape[3]])

    def _gather(self, pixels: tf.Tensor, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        row = tf.clip_by_value(tf.cast(row, tf.int32), 0, self.height - 1)
        column = tf.clip_by_value(tf.cast(column, tf.int32), 0, self.width - 1)
        return tf.gather(pixels, row * self.width + column, batch_dims=1)
