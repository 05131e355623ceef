"""Distributions of ``tf.contrib.distributions`` for variational networks.

``tf.compat.v1.distributions`` still has the basic distributions. This module adds those that were removed with
contrib, and the names and arguments of versions before 1.0. A distribution of vectors has event shape [D]; the axes
before it are the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation

plain = tf.compat.v1.distributions

_Distribution: Any = plain.Distribution


class _OldMethods:
    """Methods of a distribution under their former names."""

    def pdf(self: Any, value: Any, name: str = "pdf") -> tf.Tensor:
        return self.prob(value, name)

    def log_pdf(self: Any, value: Any, name: str = "log_pdf") -> tf.Tensor:
        return self.log_prob(value, name)

    pmf, log_pmf = pdf, log_pdf

    def std(self: Any, name: str = "std") -> tf.Tensor:
        return self.stddev(name)

    def sample_n(self: Any, n: Any, seed: Any = None, name: str = "sample_n") -> tf.Tensor:
        return self.sample(n, seed, name)


def _accept_old_names(cls: Any, **old_names: str) -> Any:
    """Return the distribution ``cls`` with its former argument and method names added."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        renamed = {old_names.get(name, name): value for name, value in kwargs.items()}
        cls.__init__(self, *args, **{"name": cls.__name__, **renamed})

    return type(cls.__name__, (_OldMethods, cls), {"__init__": initialize})


# Any: the classes are created at run time.
Normal: Any = _accept_old_names(plain.Normal, mu="loc", sigma="scale")
Bernoulli: Any = _accept_old_names(plain.Bernoulli, p="probs")
Categorical = _accept_old_names(plain.Categorical, p="probs")
Multinomial = _accept_old_names(plain.Multinomial, n="total_count", p="probs")
Uniform = _accept_old_names(plain.Uniform, a="low", b="high")
Gamma = _accept_old_names(plain.Gamma, alpha="concentration", beta="rate")
Beta = _accept_old_names(plain.Beta, a="concentration1", b="concentration0")
Exponential = _accept_old_names(plain.Exponential, lam="rate")
Laplace = _accept_old_names(plain.Laplace)
StudentT = _accept_old_names(plain.StudentT, mu="loc", sigma="scale")
Dirichlet = _accept_old_names(plain.Dirichlet, alpha="concentration")


class NormalWithSoftplusScale(Normal):
    """A normal distribution whose standard deviation is ``softplus(scale)``."""

    def __init__(self, loc: Any, scale: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(loc, tf.nn.softplus(scale), *args, **kwargs)


class BernoulliWithSigmoidProbs(Bernoulli):
    """A Bernoulli distribution with probability ``sigmoid(logits)``."""

    def __init__(self, logits: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(logits, *args, **kwargs)


class _VectorDistribution(_OldMethods, _Distribution):
    """Base class of distributions of vectors. ``like`` has the shape of one sample, batch and event."""

    def __init__(self, like: tf.Tensor, is_reparameterized: bool, parameters: dict[str, Any], name: str):
        self._like = like
        reparameterization = plain.FULLY_REPARAMETERIZED if is_reparameterized else plain.NOT_REPARAMETERIZED
        super().__init__(
            dtype=like.dtype,
            reparameterization_type=reparameterization,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            graph_parents=[like],
            name=name,
        )

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self._like)[:-1]

    def _batch_shape(self) -> tf.TensorShape:
        return self._like.shape[:-1]

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self._like)[-1:]

    def _event_shape(self) -> tf.TensorShape:
        return self._like.shape[-1:]

    def _samples_shape(self, n: Any) -> tf.Tensor:
        return tf.concat([[n], tf.shape(self._like)], 0)


class MultivariateNormalDiag(_VectorDistribution):
    """A normal distribution of vectors with a diagonal covariance matrix."""

    def __init__(
        self,
        loc: Any = None,
        scale_diag: Any = None,
        scale_identity_multiplier: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiag",
        mu: Any = None,
        diag_stdev: Any = None,
    ) -> None:
        loc, scale = (mu if loc is None else loc), (diag_stdev if scale_diag is None else scale_diag)
        if loc is None and scale is None:
            raise ValueError("MultivariateNormalDiag requires loc or scale_diag, which determine its size")
        scale = tf.ones_like(tf.convert_to_tensor(loc)) if scale is None else tf.convert_to_tensor(scale)
        if scale_identity_multiplier is not None:
            factor = tf.convert_to_tensor(scale_identity_multiplier, scale.dtype)[..., None]
            scale = scale * factor if scale_diag is None and diag_stdev is None else scale + factor
        loc = tf.zeros_like(scale) if loc is None else tf.convert_to_tensor(loc)
        self.loc, self._scale = loc + tf.zeros_like(scale), scale + tf.zeros_like(loc)
        super().__init__(self.loc, True, {"loc": loc, "scale_diag": scale}, name)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        noise = tf.compat.v1.random_normal(self._samples_shape(n), dtype=self.dtype, seed=seed)
        return self.loc + noise * self._scale

    def _log_prob(self, x: Any) -> tf.Tensor:
        each = tf.square((x - self.loc) / self._scale) + math.log(2 * math.pi)
        return -0.5 * tf.reduce_sum(each, -1) - self._log_volume()

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _entropy(self) -> tf.Tensor:
        size = tf.cast(tf.shape(self.loc)[-1], self.dtype)
        return 0.5 * size * (1 + math.log(2 * math.pi)) + self._log_volume()

    def _log_volume(self) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(tf.abs(self._scale)), -1)

    def _mean(self) -> tf.Tensor:
        return self.loc

    def _mode(self) -> tf.Tensor:
        return self.loc

    def _stddev(self) -> tf.Tensor:
        return tf.abs(self._scale)

    def _variance(self) -> tf.Tensor:
        return tf.square(self._scale)

    def _covariance(self) -> tf.Tensor:
        return tf.linalg.diag(tf.square(self._scale))


class MultivariateNormalDiagWithSoftplusScale(MultivariateNormalDiag):
    """`MultivariateNormalDiag` with standard deviations ``softplus(scale_diag)``."""

    def __init__(self, loc: Any, scale_diag: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(loc, tf.nn.softplus(scale_diag), *args, **kwargs)


def _kl_normals(one: MultivariateNormalDiag, other: MultivariateNormalDiag, name: Any = None) -> tf.Tensor:
    ratio = tf.square(one._scale / other._scale)
    distance = tf.square((one.loc - other.loc) / other._scale)
    return 0.5 * tf.reduce_sum(ratio + distance - 1 - tf.math.log(ratio), -1)


class MultivariateNormalTriL(_VectorDistribution):
    """A normal distribution of vectors with the lower-triangular scale matrix ``scale_tril`` [..., D, D]."""

    def __init__(
        self,
        loc: Any = None,
        scale_tril: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MultivariateNormalTriL",
    ) -> None:
        if scale_tril is None:
            raise ValueError(f"{name} requires a scale")
        self._scale = tf.linalg.band_part(tf.convert_to_tensor(scale_tril), -1, 0)
        zeros = tf.zeros_like(self._scale[..., 0])
        self.loc = zeros if loc is None else tf.convert_to_tensor(loc) + zeros
        super().__init__(self.loc, True, {"loc": self.loc, "scale_tril": self._scale}, name)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        noise = tf.compat.v1.random_normal(self._samples_shape(n), dtype=self.dtype, seed=seed)
        return self.loc + tf.linalg.matvec(self._scale, noise)

    def _log_prob(self, x: Any) -> tf.Tensor:
        difference = (x - self.loc)[..., None]
        scale = tf.broadcast_to(
            self._scale, tf.concat([tf.shape(difference)[:-1], tf.shape(self.loc)[-1:]], 0)
        )
        noise = tf.linalg.triangular_solve(scale, difference)[..., 0]
        size = tf.cast(tf.shape(self.loc)[-1], self.dtype)
        return (
            -0.5 * (tf.reduce_sum(tf.square(noise), -1) + size * math.log(2 * math.pi)) - self._log_volume()
        )

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _entropy(self) -> tf.Tensor:
        size = tf.cast(tf.shape(self.loc)[-1], self.dtype)
        return 0.5 * size * (1 + math.log(2 * math.pi)) + self._log_volume()

    def _log_volume(self) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self._scale))), -1)

    def _mean(self) -> tf.Tensor:
        return self.loc

    def _mode(self) -> tf.Tensor:
        return self.loc

    def _covariance(self) -> tf.Tensor:
        return tf.matmul(self._scale, self._scale, transpose_b=True)

    def _variance(self) -> tf.Tensor:
        return tf.linalg.diag_part(self._covariance())


class MultivariateNormalFullCovariance(MultivariateNormalTriL):
    """A normal distribution of vectors with a ``covariance_matrix`` [..., D, D]."""

    def __init__(self, loc: Any = None, covariance_matrix: Any = None, *args: Any, **kwargs: Any) -> None:
        name = {"name": "MultivariateNormalFullCovariance"}
        super().__init__(loc, tf.linalg.cholesky(covariance_matrix), *args, **{**name, **kwargs})


class Independent(_OldMethods, _Distribution):
    """Reinterpret the last batch axes of ``distribution`` as event axes."""

    def __init__(
        self,
        distribution: Any,
        reinterpreted_batch_ndims: int | None = None,
        validate_args: bool = False,
        name: str = "Independent",
    ) -> None:
        self.distribution = distribution
        rank = distribution.batch_shape.rank
        self._count = rank - 1 if reinterpreted_batch_ndims is None else reinterpreted_batch_ndims
        _inherit_dtype(self, [distribution], name)

    def _batch_shape(self) -> tf.TensorShape:
        shape = self.distribution.batch_shape
        return shape[: shape.rank - self._count]

    def _event_shape(self) -> tf.TensorShape:
        shape = self.distribution.batch_shape
        return shape[shape.rank - self._count :].concatenate(self.distribution.event_shape)

    def _batch_shape_tensor(self) -> tf.Tensor:
        shape = self.distribution.batch_shape_tensor()
        return shape[: tf.size(shape) - self._count]

    def _event_shape_tensor(self) -> tf.Tensor:
        shape = self.distribution.batch_shape_tensor()
        inner = self.distribution.event_shape_tensor()
        return tf.concat([shape[tf.size(shape) - self._count :], inner], 0)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        return self.distribution.sample(n, seed)

    def _log_prob(self, x: Any) -> tf.Tensor:
        return self._sum_event(self.distribution.log_prob(x))

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _entropy(self) -> tf.Tensor:
        return self._sum_event(self.distribution.entropy())

    def _mean(self) -> tf.Tensor:
        return self.distribution.mean()

    def _mode(self) -> tf.Tensor:
        return self.distribution.mode()

    def _variance(self) -> tf.Tensor:
        return self.distribution.variance()

    def _stddev(self) -> tf.Tensor:
        return self.distribution.stddev()

    def _sum_event(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(values, list(range(-self._count, 0)))


class Mixture(_OldMethods, _Distribution):
    """A mixture of ``components``, distributions of equal shape, selected by the categorical ``cat``."""

    def __init__(
        self,
        cat: Any,
        components: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        use_static_graph: bool = False,
        name: str = "Mixture",
    ) -> None:
        self.cat, self.components = cat, list(components)
        _inherit_dtype(self, self.components, name)

    def _batch_shape(self) -> tf.TensorShape:
        return self.components[0].batch_shape

    def _event_shape(self) -> tf.TensorShape:
        return self.components[0].event_shape

    def _batch_shape_tensor(self) -> tf.Tensor:
        return self.components[0].batch_shape_tensor()

    def _event_shape_tensor(self) -> tf.Tensor:
        return self.components[0].event_shape_tensor()

    def _mixture_weights(self, logits: tf.Tensor, above: int) -> tf.Tensor:
        """Expand ``logits`` [..., K] to the ``above`` axes of an event, components last."""
        shape = tf.shape(logits)
        ones = tf.ones([above], tf.int32)
        return tf.reshape(logits, tf.concat([shape[:-1], ones, shape[-1:]], 0))

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        drawn = tf.stack([component.sample(n, seed) for component in self.components], -1)
        chosen = tf.one_hot(self.cat.sample(n, seed), len(self.components), dtype=drawn.dtype)
        return tf.reduce_sum(drawn * self._mixture_weights(chosen, self.event_shape.rank), -1)

    def _log_prob(self, x: Any) -> tf.Tensor:
        each = tf.stack([component.log_prob(x) for component in self.components], -1)
        return tf.reduce_logsumexp(each + tf.nn.log_softmax(self.cat.logits), -1)

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _mean(self) -> tf.Tensor:
        means = tf.stack([component.mean() for component in self.components], -1)
        return tf.reduce_sum(
            means * self._mixture_weights(tf.nn.softmax(self.cat.logits), self.event_shape.rank), -1
        )


class MixtureSameFamily(_OldMethods, _Distribution):
    """A mixture of K distributions of one class, along the last batch axis of ``components_distribution``."""

    def __init__(
        self,
        mixture_distribution: Any,
        components_distribution: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MixtureSameFamily",
    ) -> None:
        self.mixture_distribution, self.components_distribution = (
            mixture_distribution,
            components_distribution,
        )
        _inherit_dtype(self, [components_distribution], name)

    def _batch_shape(self) -> tf.TensorShape:
        return self.components_distribution.batch_shape[:-1]

    def _event_shape(self) -> tf.TensorShape:
        return self.components_distribution.event_shape

    def _batch_shape_tensor(self) -> tf.Tensor:
        return self.components_distribution.batch_shape_tensor()[:-1]

    def _event_shape_tensor(self) -> tf.Tensor:
        return self.components_distribution.event_shape_tensor()

    def _spread(self, shares: tf.Tensor) -> tf.Tensor:
        return tf.reshape(
            shares, tf.concat([tf.shape(shares), tf.ones([self.event_shape.rank], tf.int32)], 0)
        )

    def _components_axis(self) -> int:
        return -1 - self.event_shape.rank

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        drawn = self.components_distribution.sample(n, seed)
        count = self.components_distribution.batch_shape[-1]
        # The mixture weights may have fewer batch axes than the components.
        logits = self.mixture_distribution.logits + tf.zeros(
            self.components_distribution.batch_shape_tensor()
        )
        chosen = Categorical(logits=logits).sample(n, seed)
        shares = self._spread(tf.one_hot(chosen, count, dtype=drawn.dtype))
        return tf.reduce_sum(drawn * shares, self._components_axis())

    def _log_prob(self, x: Any) -> tf.Tensor:
        each = self.components_distribution.log_prob(tf.expand_dims(x, self._components_axis()))
        return tf.reduce_logsumexp(each + tf.nn.log_softmax(self.mixture_distribution.logits), -1)

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _mean(self) -> tf.Tensor:
        shares = self._spread(tf.nn.softmax(self.mixture_distribution.logits))
        return tf.reduce_sum(self.components_distribution.mean() * shares, self._components_axis())


def _inherit_dtype(self: Any, others: list[Any], name: str) -> None:
    """Give ``self`` the dtype of the ``others`` that it is composed of."""
    plain.Distribution.__init__(
        self,
        dtype=others[0].dtype,
        reparameterization_type=plain.NOT_REPARAMETERIZED,
        validate_args=False,
        allow_nan_stats=True,
        parameters={},
        name=name,
    )


def _logits_of(logits: Any, probs: Any) -> tf.Tensor:
    if (logits is None) == (probs is None):
        raise ValueError("pass either logits or probs")
    return tf.math.log(tf.convert_to_tensor(probs)) if logits is None else tf.convert_to_tensor(logits)


class OneHotCategorical(_VectorDistribution):
    """A categorical distribution over K classes by ``logits`` or ``probs`` [..., K]; samples are one-hot,
    int32 by default.
    """

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = tf.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "OneHotCategorical",
    ) -> None:
        self.logits = _logits_of(logits, probs)
        self.probs = tf.nn.softmax(self.logits)
        super().__init__(self.logits, False, {"logits": self.logits}, name)
        self._dtype = tf.as_dtype(dtype)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        count = tf.shape(self.logits)[-1]
        flat = tf.reshape(self.logits, [-1, count])
        drawn = tf.transpose(tf.compat.v1.multinomial(flat, n, seed=seed))
        return tf.reshape(tf.one_hot(drawn, count, dtype=self.dtype), self._samples_shape(n))

    def _log_prob(self, x: Any) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(x, self.logits.dtype) * tf.nn.log_softmax(self.logits), -1)

    def _prob(self, x: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(x))

    def _entropy(self) -> tf.Tensor:
        return -tf.reduce_sum(self.probs * tf.nn.log_softmax(self.logits), -1)

    def _mean(self) -> tf.Tensor:
        return self.probs

    def _mode(self) -> tf.Tensor:
        return tf.one_hot(tf.argmax(self.logits, -1), tf.shape(self.logits)[-1], dtype=self.dtype)


def _kl_categoricals(one: OneHotCategorical, other: OneHotCategorical, name: Any = None) -> tf.Tensor:
    difference = tf.nn.log_softmax(one.logits) - tf.nn.log_softmax(other.logits)
    return tf.reduce_sum(one.probs * difference, -1)


class ExpRelaxedOneHotCategorical(_VectorDistribution):
    """The logarithm of a `RelaxedOneHotCategorical`."""

    def __init__(
        self,
        temperature: Any,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "ExpRelaxedOneHotCategorical",
    ) -> None:
        self.logits = _logits_of(logits, probs)
        self.probs = tf.nn.softmax(self.logits)
        self.temperature = tf.convert_to_tensor(temperature, self.logits.dtype)
        super().__init__(self.logits, True, {"temperature": temperature, "logits": self.logits}, name)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        smallest = np.finfo(self.dtype.as_numpy_dtype).tiny  # log(0) is undefined
        uniform = tf.compat.v1.random_uniform(
            self._samples_shape(n), smallest, 1, dtype=self.dtype, seed=seed
        )
        gumbel = -tf.math.log(-tf.math.log(uniform))
        return tf.nn.log_softmax((self.logits + gumbel) / self._spread_temperature())

    def _log_prob(self, y: Any) -> tf.Tensor:
        # Density of the logarithms: Maddison, Mnih and Teh (2017), appendix C,
        # https://arxiv.org/abs/1611.00712.
        count = tf.cast(tf.shape(self.logits)[-1], self.dtype)
        score = tf.reduce_sum(tf.nn.log_softmax(self.logits - y * self._spread_temperature()), -1)
        return tf.math.lgamma(count) + (count - 1) * tf.math.log(self.temperature) + score

    def _prob(self, y: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(y))

    def _spread_temperature(self) -> tf.Tensor:
        return self.temperature if self.temperature.shape.rank == 0 else self.temperature[..., None]


class RelaxedOneHotCategorical(ExpRelaxedOneHotCategorical):
    """The Gumbel-softmax distribution with a ``temperature`` (https://arxiv.org/abs/1611.01144)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"name": "RelaxedOneHotCategorical", **kwargs})

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        return tf.exp(super()._sample_n(n, seed))

    def _log_prob(self, x: Any) -> tf.Tensor:
        logarithms = tf.math.log(x)
        return super()._log_prob(logarithms) - tf.reduce_sum(logarithms, -1)


# Suppress the deprecation warnings of a module that the network has not used yet.
with deprecation.silence():
    plain.RegisterKL(MultivariateNormalDiag, MultivariateNormalDiag)(_kl_normals)
    plain.RegisterKL(OneHotCategorical, OneHotCategorical)(_kl_categoricals)


def names() -> dict[str, Any]:
    """Return the names of ``tf.contrib.distributions`` and ``tf.distributions``."""
    classes = (
        Normal,
        NormalWithSoftplusScale,
        Bernoulli,
        BernoulliWithSigmoidProbs,
        Categorical,
        Multinomial,
        Uniform,
        Gamma,
        Beta,
        Exponential,
        Laplace,
        StudentT,
        Dirichlet,
        MultivariateNormalDiag,
        MultivariateNormalDiagWithSoftplusScale,
        MultivariateNormalTriL,
        MultivariateNormalFullCovariance,
        Independent,
        Mixture,
        MixtureSameFamily,
        OneHotCategorical,
        ExpRelaxedOneHotCategorical,
        RelaxedOneHotCategorical,
    )
    return {
        **{cls.__name__: cls for cls in classes},
        "kl": plain.kl_divergence,
        "NormalWithSoftplusSigma": NormalWithSoftplusScale,
        "MultivariateNormalDiagWithSoftplusStDev": MultivariateNormalDiagWithSoftplusScale,
    }
