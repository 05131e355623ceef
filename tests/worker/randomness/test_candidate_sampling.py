"""Candidate samplers draw from the distributions of TensorFlow's samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

CLASSES, COUNT, DRAWS = 12, 5, 4000


def drawn(kind: str, unique: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return mean counts and expected counts of each class, for our sampler and for TensorFlow's."""
    import tensorflow as tf

    from digits.worker.randomness import candidate_sampling

    every = tf.range(CLASSES, dtype=tf.int64)[None]

    def our(number: Any) -> Any:
        chances = {"uniform": candidate_sampling.uniform, "log_uniform": candidate_sampling.log_uniform}[
            kind
        ](CLASSES)
        needed = candidate_sampling.numbers_needed(CLASSES, COUNT, unique)
        numbers = tf.random.stateless_uniform([needed], [number, 1], dtype=tf.float64)
        return candidate_sampling.sample(chances, numbers, every, COUNT, unique)

    def theirs(number: Any) -> Any:
        sampler = getattr(tf.random, f"{kind}_candidate_sampler")
        return candidate_sampling.Sampled(*sampler(every, CLASSES, COUNT, unique, CLASSES, seed=3))

    @tf.function(autograph=False)
    def run(draw: Any) -> Any:
        kinds = candidate_sampling.Sampled(tf.int64, tf.float32, tf.float32)
        found, expected, of_found = tf.map_fn(draw, tf.range(DRAWS), fn_output_signature=kinds)
        tf.debugging.assert_near(tf.gather(expected[:, 0], found, batch_dims=1), of_found)
        times = tf.math.bincount(tf.cast(tf.reshape(found, [-1]), tf.int32), minlength=CLASSES) / DRAWS
        return times, tf.reduce_mean(expected[:, 0], 0)

    tf.random.set_seed(1)
    return [tuple(value.numpy() for value in run(draw)) for draw in (our, theirs)]


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_distributions_match_tensorflow(in_child: Any, kind: str, unique: bool) -> None:
    (times, expected), (their_times, their_expected) = in_child(drawn, kind, unique)
    assert times.sum() == pytest.approx(COUNT)
    assert times == pytest.approx(their_times, abs=0.05)
    assert expected == pytest.approx(their_expected, abs=0.02)
    if not unique:  # TensorFlow only estimates the expected count of unique classes
        assert times == pytest.approx(expected, abs=0.05)


def test_unique_samples_differ(in_child: Any) -> None:
    found = in_child(_all_of_them)
    assert sorted(found) == list(range(CLASSES))


def _all_of_them() -> list[int]:
    import tensorflow as tf

    from digits.worker.randomness import candidate_sampling

    numbers = np.random.default_rng(0).uniform(size=2 * CLASSES)
    true = tf.constant([[0]], tf.int64)
    return (
        candidate_sampling.sample(candidate_sampling.log_uniform(CLASSES), numbers, true, CLASSES, True)[0]
        .numpy()
        .tolist()
    )


def test_unigrams_are_read_from_a_list_or_a_file(in_child: Any, tmp_path: Path) -> None:
    (tmp_path / "vocabulary").write_text("a,1\nb,4\nc,9\n")
    for source in ({"unigrams": [1.0, 4.0, 9.0]}, {"vocab_file": str(tmp_path / "vocabulary")}):
        chances = in_child(_unigrams, {"distortion": 0.5, "num_reserved_ids": 1, **source})
        assert chances == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6])
    shard = in_child(_unigrams, {"unigrams": [1.0, 4.0, 9.0, 4.0], "num_shards": 2, "shard": 1})
    assert shard == pytest.approx([0, 0.5, 0, 0.5])


def _unigrams(settings: dict[str, Any]) -> list[float]:
    from digits.worker.randomness import candidate_sampling

    return candidate_sampling.unigrams(4, **settings).numpy().tolist()
