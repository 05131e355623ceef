"""Sampling of classes for ``tf.nn.sampled_softmax_loss`` and ``tf.nn.nce_loss``, from random numbers that are given.

TensorFlow's own samplers draw from counters that nothing can save. These give classes
of the same distributions, and the same expected counts with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Sampled(NamedTuple):
    """The classes, and how often the true ones and those drawn are expected; called as TensorFlow calls them."""

    sampled_candidates: tf.Tensor
    true_expected_count: tf.Tensor
    sampled_expected_count: tf.Tensor


def uniform(range_max: int) -> tf.Tensor:
    """The same probability for each of ``range_max`` classes, float64 [range_max]."""
    return tf.fill([range_max], tf.constant(1.0 / range_max, tf.float64))


def log_uniform(range_max: int) -> tf.Tensor:
    """Probabilities that fall with the class as in Zipf's law, float64 [range_max]."""
    place = tf.range(range_max, dtype=tf.float64)
    return (tf.math.log(place + 2.0) - tf.math.log(place + 1.0)) / np.log(range_max + 1.0)


def unigrams(
    range_max: int,
    vocab_file: Any = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
) -> tf.Tensor:
    """Probabilities as the counts of ``unigrams`` or of the last column of a file have them, float64 [range_max]."""
    if vocab_file:
        lines = Path(tf.compat.as_str(vocab_file)).read_text().splitlines()
        unigrams = [float(line.rpartition(",")[2]) for line in lines if line.strip()]
    weights = np.concatenate([np.zeros(num_reserved_ids), np.array(unigrams, np.float64) ** distortion])
    weights = weights[:range_max] * (np.arange(min(len(weights), range_max)) % num_shards == shard)
    return tf.constant(np.pad(weights, (0, range_max - len(weights))) / weights.sum(), tf.float64)


def sampled(chances: tf.Tensor, numbers: tf.Tensor, true_classes: Any, count: int, unique: bool) -> Sampled:
    """Draw ``count`` classes by their ``chances`` [classes].

    ``numbers`` are as many uniform random ones as `numbers_needed` says, float64 from 0 to 1.
    """
    true_classes = tf.convert_to_tensor(true_classes)
    if not unique:
        ends = tf.cumsum(chances)
        found = tf.searchsorted(ends, numbers * ends[-1], side="right", out_type=tf.int64)
        found = tf.minimum(found, tf.size(chances, tf.int64) - 1)

        def expected(classes: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.gather(chances, classes) * count, tf.float32)

        return Sampled(found, expected(true_classes), expected(found))

    # Who waits for the shortest time is drawn first: as if one drew until there are enough different ones.
    waits, more = tf.math.log1p(-numbers[:-count]) / chances, numbers[-count:]
    found = tf.cast(tf.math.top_k(waits, count).indices, tf.int64)
    # For each class, how often one then drew in vain before: it hit one of those that had been drawn.
    drawn_before = tf.cumsum(tf.gather(chances, found), exclusive=True)
    in_vain = tf.floor(tf.math.log1p(-more) / tf.math.log(drawn_before))
    tries = count + tf.reduce_sum(in_vain)

    def expected_of(classes: tf.Tensor) -> tf.Tensor:
        chance = tf.gather(chances, classes)
        often = -tf.math.expm1(tries * tf.math.log1p(-chance))
        return tf.cast(tf.where(tf.equal(tries, count), chance * count, often), tf.float32)

    return Sampled(found, expected_of(true_classes), expected_of(found))


def numbers_needed(classes: int, count: int, unique: bool) -> int:
    """How many random numbers `sampled` takes."""
    return classes + count if unique else count
