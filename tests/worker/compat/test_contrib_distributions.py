"""Distributions of tf.contrib, compared with their formulas."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


def test_densities_and_divergences(in_child: Any) -> None:
    found = in_child(_numbers)
    assert found["log_prob"] == pytest.approx(-log(2 * pi) - 0.5 * (4 + 0.25))
    assert found["entropy"] == pytest.approx(1 + log(2 * pi))
    assert found["distance"] == pytest.approx(0.5 * (0.25 + 1 - 1 - log(0.25) + 4 + 4 - 1 - log(4)))
    assert found["old names"] == pytest.approx([0.3989423 / 2, log(0.25), log(2), 0.75], rel=1e-5)
    assert found["classes"] == pytest.approx(0.2 * log(0.2 / 0.5) + 0.8 * log(0.8 / 0.5))
    assert found["relaxed"] == pytest.approx(1, abs=0.005)


def _numbers() -> dict[str, Any]:
    import tensorflow as tf

    from digits.worker.compat import contrib_distributions as ds

    kl = ds.plain.kl_divergence
    vectors = ds.MultivariateNormalDiag([1.0, 2.0], scale_diag=[0.5, 2.0])
    assert vectors.event_shape == [2] and vectors.batch_shape == []
    classes, even = ds.OneHotCategorical(probs=[0.2, 0.8]), ds.OneHotCategorical(logits=[3.0, 3.0])
    relaxed = ds.RelaxedOneHotCategorical(0.7, probs=[0.2, 0.8])
    places = np.linspace(1e-6, 1 - 1e-6, 400001)
    density = relaxed.prob(np.stack([places, 1 - places], 1).astype(np.float32)).numpy()
    old = (
        ds.Normal(mu=1.0, sigma=2.0).pdf(1.0),
        ds.Bernoulli(p=0.25).log_pmf(1),
        ds.NormalWithSoftplusScale(0.0, 0.0).std(),
        ds.Bernoulli(p=0.25).prob(0),
    )
    return {
        "log_prob": float(vectors.log_prob([2.0, 1.0])),
        "entropy": float(vectors.entropy()),
        "distance": float(kl(vectors, ds.MultivariateNormalDiag(tf.zeros(2)))),
        "old names": [float(value) for value in old],
        "classes": float(kl(classes, even)),
        "relaxed": float(np.trapezoid(density, places)),
    }


def test_samples(in_child: Any) -> None:
    normal, one_hot, relaxed, shapes = in_child(_samples)
    assert np.allclose(normal.mean(0), [1, 2], atol=0.1) and np.allclose(normal.std(0), [0.5, 2], atol=0.1)
    assert one_hot.dtype == np.int32 and set(one_hot.sum(1)) == {1}
    assert one_hot.mean(0) == pytest.approx([0.2, 0.8], abs=0.04)
    assert np.allclose(relaxed.sum(1), 1, atol=1e-5) and (relaxed.argmax(1) == 1).mean() == pytest.approx(
        0.8, abs=0.04
    )
    assert shapes == [[4, 3], [2, 5, 4, 3]]


def _samples() -> Any:
    import tensorflow as tf

    from digits.worker.compat import contrib_distributions as ds

    tf.random.set_seed(1)
    drawn = (
        ds.MultivariateNormalDiag([1.0, 2.0], [0.5, 2.0]).sample_n(2000),
        ds.OneHotCategorical(probs=[0.2, 0.8]).sample(2000),
        ds.RelaxedOneHotCategorical(0.5, probs=[0.2, 0.8]).sample(2000),
    )
    batch = ds.OneHotCategorical(tf.zeros((4, 3)))
    return *(sample.numpy() for sample in drawn), [batch.sample(n).shape.as_list() for n in ((), (2, 5))]


def test_composed_distributions(in_child: Any) -> None:
    found = in_child(_composed)
    difference = np.array([0.3, -1.0]) - [1, 2]
    exponent = -0.5 * difference @ np.linalg.inv(COVARIANCE) @ difference
    wanted = exponent - log(2 * pi) - 0.5 * log(np.linalg.det(COVARIANCE))
    assert found["vectors"] == pytest.approx([wanted, wanted], rel=1e-5)
    assert np.allclose(found["covariance"], COVARIANCE, atol=0.4)
    mixed = 0.25 * _bell(1) + 0.75 * _bell((1 - 2) / 0.5) / 0.5
    assert found["mixtures"] == pytest.approx([mixed, mixed], rel=1e-5)
    assert found["means"] == pytest.approx([1.5] * 4, abs=0.06)
    assert found["independent"] == pytest.approx(log(_bell(0)) * 3)
    assert found["shapes"] == [[4, 6, 2], [6], [4, 6, 2], [6], [4, 6, 2], [6]]


COVARIANCE = np.array([[4.0, 2.0], [2.0, 1.25]])


def _bell(x: float) -> float:
    return float(np.exp(-0.5 * x * x) / (2 * pi) ** 0.5)


def _composed() -> dict[str, Any]:
    import tensorflow as tf

    from digits.worker.compat import contrib_distributions as ds

    tf.random.set_seed(1)
    place = tf.constant([0.3, -1.0])
    triangle = ds.MultivariateNormalTriL([1.0, 2.0], [[2.0, 0.0], [1.0, 0.5]])
    full = ds.MultivariateNormalFullCovariance([1.0, 2.0], COVARIANCE.astype(np.float32))
    shares = ds.Categorical(probs=[0.25, 0.75])
    mixture = ds.Mixture(shares, [ds.Normal(0.0, 1.0), ds.Normal(2.0, 0.5)])
    family = ds.MixtureSameFamily(shares, ds.Normal([0.0, 2.0], [1.0, 0.5]))
    batch = ds.Categorical(logits=tf.zeros([6, 3]))
    vectors = ds.MultivariateNormalDiag(tf.zeros([6, 2]), tf.ones([6, 2]))
    of_batches = (
        ds.Mixture(batch, [vectors] * 3),
        ds.MixtureSameFamily(batch, ds.MultivariateNormalDiag(tf.zeros([6, 3, 2]), tf.ones([6, 3, 2]))),
        ds.MultivariateNormalTriL(tf.zeros([6, 2]), tf.eye(2, batch_shape=[6])),
    )
    return {
        "vectors": [float(kind.log_prob(place)) for kind in (triangle, full)],
        "covariance": np.cov(triangle.sample(2000).numpy().T),
        "mixtures": [float(kind.prob(1.0)) for kind in (mixture, family)],
        "means": [
            *(float(kind.mean()) for kind in (mixture, family)),
            *(float(tf.reduce_mean(kind.sample(4000))) for kind in (mixture, family)),
        ],
        "independent": float(ds.Independent(ds.Normal(tf.zeros([2, 3]), 1.0)).log_prob(tf.zeros([2, 3]))[0]),
        "shapes": [
            value.shape.as_list()
            for kind in of_batches
            for value in (kind.sample(4), kind.log_prob(tf.zeros([6, 2])))
        ],
    }
