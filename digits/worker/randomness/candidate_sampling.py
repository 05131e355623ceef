"""Candidate sampling for ``tf.nn.sampled_softmax_loss`` and ``tf.nn.nce_loss`` from given random numbers.

TensorFlow's own samplers draw from counters that cannot be saved. These sample the same distributions, with the
same expected counts. See https://www.tensorflow.org/extras/candidate_sampling.pdf.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Sampled(NamedTuple):
    """The sampled classes, and the expected counts of the true and the sampled classes, with TensorFlow's names."""

    sampled_candidates: tf.Tensor
    true_expected_count: tf.Tensor
    sampled_expected_count: tf.Tensor


def uniform(range_max: int) -> tf.Tensor:
    """Return the same probability for each of ``range_max`` classes, float64 [range_max]."""
    return tf.fill([range_max], tf.constant(1.0 / range_max, tf.float64))


def log_uniform(range_max: int) -> tf.Tensor:
    """Return the probabilities of an approximate Zipf distribution, decreasing with the class, float64
    [range_max].
    """
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
    """Return probabilities proportional to ``unigrams`` or the last column of ``vocab_file``, float64
    [range_max].
    """
    if vocab_file:
        lines = Path(tf.compat.as_str(vocab_file)).read_text().splitlines()
        unigrams = [float(line.rpartition(",")[2]) for line in lines if line.strip()]
    weights = np.concatenate([np.zeros(num_reserved_ids), np.array(unigrams, np.float64) ** distortion])
    weights = weights[:range_max] * (np.arange(min(len(weights), range_max)) % num_shards == shard)
    return tf.constant(np.pad(weights, (0, range_max - len(weights))) / weights.sum(), tf.float64)


def sample(chances: tf.Tensor, numbers: tf.Tensor, true_classes: Any, count: int, unique: bool) -> Sampled:
    """Sample ``count`` classes with the probabilities ``chances``, float64 [classes].

    ``numbers`` are `numbers_needed` uniform random numbers, float64 in [0, 1). Expected counts are float32.
    """
    true_classes = tf.convert_to_tensor(true_classes)
    if not unique:
        ends = tf.cumsum(chances)
        found = tf.searchsorted(ends, numbers * ends[-1], side="right", out_type=tf.int64)
        found = tf.minimum(found, tf.size(chances, tf.int64) - 1)

        def expected(classes: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.gather(chances, classes) * count, tf.float32)

        return Sampled(found, expected(true_classes), expected(found))

    # The classes with the shortest exponential waiting times: equivalent to drawing until `count` classes are
    # found.
    waits, more = tf.math.log1p(-numbers[:-count]) / chances, numbers[-count:]
    found = tf.cast(tf.math.top_k(waits, count).indices, tf.int64)
    # The number of rejected draws before each class, which repeated classes already drawn.
    drawn_before = tf.cumsum(tf.gather(chances, found), exclusive=True)
    in_vain = tf.floor(tf.math.log1p(-more) / tf.math.log(drawn_before))
    tries = count + tf.reduce_sum(in_vain)

    def expected_unique(classes: tf.Tensor) -> tf.Tensor:
        chance = tf.gather(chances, classes)
        often = -tf.math.expm1(tries * tf.math.log1p(-chance))
        return tf.cast(tf.where(tf.equal(tries, count), chance * count, often), tf.float32)

    return Sampled(found, expected_unique(true_classes), expected_unique(found))


def numbers_needed(classes: int, count: int, unique: bool) -> int:
    """Return the number of random numbers that `sample` requires."""
    return classes + count if unique else count
