"""Patches that make tf_slim 1.1 and the layers it uses work on TensorFlow 2.21.

tf_slim uses names inside TensorFlow that have since moved or been removed. `install` gives its modules complete
stand-ins for the modules that lost names; TensorFlow's own modules are not changed. Also patched:

- batch normalization, whose layer class was removed with Keras 2, and whose moments several workers may share;
- membership tests of variables with ``in``, which TensorFlow 2 evaluates element-wise;
- regularization of shared layers, which was added once per call instead of once per variable;
- sizes computed by NumPy, such as ``np.prod(shape)``, which were integers in Python 2.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
import warnings
from typing import Any

import numpy as np
import six
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.keras.legacy_tf_layers import base as legacy_base
from tensorflow.python.keras.utils import conv_utils
from tensorflow.python.layers import layers as core_layers
from tensorflow.python.ops import array_ops, control_flow_ops, nn, variable_scope

from digits.worker.network import batch_norm
from digits.worker.patched_names import install as patch

_REGULARIZED = ("__digits_regularized_variables__",)


class _CompletedModule(types.ModuleType):
    """A module with additional names, for one module that uses them."""

    def __init__(self, module: types.ModuleType, names: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class BatchNormalization(legacy_base.Layer):
    """Batch normalization of ``tf.layers``: any rank, one axis, moving averages.

    Adds its updates to the UPDATE_OPS collection, which runs with the training step. Inputs are floating-point
    tensors of known rank; the moments are float32. See https://arxiv.org/abs/1502.03167, and for ``renorm``
    https://arxiv.org/abs/1702.03275.

    Raises NotImplementedError for ``virtual_batch_size`` and ``adjustment``.
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, name=name, **kwargs)
        if virtual_batch_size or adjustment:
            raise NotImplementedError(
                "batch normalization does not support virtual_batch_size and adjustment"
            )
        self.renorm, self.renorm_momentum = renorm, renorm_momentum
        self.renorm_clipping = renorm_clipping or {}
        self.axis = axis[0] if isinstance(axis, (list, tuple)) else axis
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        zeros, ones = tf.compat.v1.zeros_initializer(), tf.compat.v1.ones_initializer()
        self._initializers = {
            "gamma": gamma_initializer or ones,
            "beta": beta_initializer or zeros,
            "moving_mean": moving_mean_initializer or zeros,
            "moving_variance": moving_variance_initializer or ones,
            "renorm_mean": moving_mean_initializer or zeros,
            "renorm_stddev": moving_variance_initializer or ones,
        }
        self._regularizers = {"gamma": gamma_regularizer, "beta": beta_regularizer}
        self._constraints = {"gamma": gamma_constraint, "beta": beta_constraint}
        self.gamma = self.beta = None

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        channels = shape.as_list()[self.axis]
        if channels is None:
            raise ValueError("batch normalization requires a static size of the normalized axis")
        if self.scale:
            self.gamma = self._parameter("gamma", channels, trainable=True)
        if self.center:
            self.beta = self._parameter("beta", channels, trainable=True)
        self.moving_mean = self._parameter("moving_mean", channels, trainable=False)
        self.moving_variance = self._parameter("moving_variance", channels, trainable=False)
        if self.renorm:
            self.renorm_mean = self._parameter("renorm_mean", channels, trainable=False)
            self.renorm_stddev = self._parameter("renorm_stddev", channels, trainable=False)
        self.built = True

    def _parameter(self, name: str, channels: int, trainable: bool) -> Any:
        return self.add_weight(
            name=name,
            shape=(channels,),
            dtype=tf.float32,
            initializer=self._initializers[name],
            regularizer=self._regularizers.get(name),
            constraint=self._constraints.get(name),
            trainable=trainable,
        )

    def call(self, inputs: tf.Tensor, training: Any = False) -> tf.Tensor:
        if isinstance(training, (bool, int)) or training is None:
            return self._training(inputs) if training else self._inference(inputs)
        return tf.cond(
            tf.cast(training, tf.bool), lambda: self._training(inputs), lambda: self._inference(inputs)
        )

    def _training(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.renorm:
            outputs, mean, variance = self._renormalize(inputs)
        elif self._can_fuse(inputs):
            outputs, mean, variance = batch_norm.fused_batch_norm(
                inputs, *self._scale_and_offset(), epsilon=self.epsilon, data_format=self._format()
            )
        else:
            mean, variance = self._moments(inputs)
            outputs = self._normalize(inputs, mean, variance)
        self._update_average(self.moving_mean, mean, self.momentum)
        self._update_average(self.moving_variance, variance, self.momentum)
        return outputs

    def _moments(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        axes = [axis for axis in range(inputs.shape.rank) if axis != self.axis % inputs.shape.rank]
        return batch_norm.moments(tf.cast(inputs, tf.float32), axes)

    def _update_average(self, average: Any, value: tf.Tensor, momentum: Any) -> None:
        step = (average - tf.cast(value, average.dtype)) * (1 - momentum)
        ops.add_to_collection(ops.GraphKeys.UPDATE_OPS, average.assign_sub(step))

    def _renormalize(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Normalize by the batch, corrected towards the moving averages
        (https://arxiv.org/abs/1702.03275).
        """
        mean, variance = self._moments(inputs)
        stddev = tf.sqrt(variance + self.epsilon)
        known_mean, known_stddev = self.renorm_mean.read_value(), self.renorm_stddev.read_value()
        scale = self._clip(stddev / known_stddev, "rmin", "rmax")
        shift = self._clip((mean - known_mean) / known_stddev, None, "dmax")
        scale, shift = tf.stop_gradient(scale), tf.stop_gradient(shift)
        # (x - mean) / stddev * scale + shift, as one normalization with adjusted moments.
        outputs = self._normalize(
            inputs, mean - shift * stddev / scale, tf.square(stddev / scale) - self.epsilon
        )
        self._update_average(self.renorm_mean, mean, self.renorm_momentum)
        self._update_average(self.renorm_stddev, stddev, self.renorm_momentum)
        return outputs, mean, variance

    def _clip(self, value: tf.Tensor, low: str | None, high: str) -> tf.Tensor:
        most = self.renorm_clipping.get(high)
        least = self.renorm_clipping.get(low) if low else None if most is None else -most
        value = value if least is None else tf.maximum(value, least)
        return value if most is None else tf.minimum(value, most)

    def _inference(self, inputs: tf.Tensor) -> tf.Tensor:
        if not self._can_fuse(inputs):
            return self._normalize(inputs, self.moving_mean, self.moving_variance)
        outputs, _, _ = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            *self._scale_and_offset(),
            mean=self.moving_mean,
            variance=self.moving_variance,
            epsilon=self.epsilon,
            is_training=False,
            data_format=self._format(),
        )
        return outputs

    def _can_fuse(self, inputs: tf.Tensor) -> bool:
        on_gpu = bool(tf.config.list_logical_devices("GPU"))
        return inputs.shape.rank == 4 and (self._format() == "NHWC" or (self.axis == 1 and on_gpu))

    def _format(self) -> str:
        return "NHWC" if self.axis in (-1, 3) else "NCHW"

    def _scale_and_offset(self) -> tuple[Any, Any]:
        shape = self.moving_mean.shape
        return (
            self.gamma if self.gamma is not None else tf.ones(shape),
            self.beta if self.beta is not None else tf.zeros(shape),
        )

    def _normalize(self, inputs: tf.Tensor, mean: Any, variance: Any) -> tf.Tensor:
        shape = [1] * inputs.shape.rank
        shape[self.axis] = -1
        scale, offset = self._scale_and_offset()

        def spread(value: Any) -> tf.Tensor:
            return tf.reshape(tf.cast(value, inputs.dtype), shape)

        return tf.nn.batch_normalization(
            inputs, spread(mean), spread(variance), spread(offset), spread(scale), self.epsilon
        )


def batch_normalization(inputs: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Implement ``tf.layers.batch_normalization`` with `BatchNormalization`."""
    training = kwargs.pop("training", False)
    reuse, name = kwargs.pop("reuse", None), kwargs.pop("name", None)
    kwargs.update(name=name, _reuse=reuse, _scope=name)
    layer = BatchNormalization(*args, **kwargs)
    return layer(inputs, training=training)


def layer_functions() -> types.SimpleNamespace:
    """Return the names of ``tf.layers``."""
    names = {name: value for name, value in vars(core_layers).items() if not name.startswith("_")}
    normalization = {
        "BatchNormalization": BatchNormalization,
        "BatchNorm": BatchNormalization,
        "batch_normalization": batch_normalization,
        "batch_norm": batch_normalization,
    }
    layers = {**names, **normalization}
    return types.SimpleNamespace(**{name: _with_scope(value) for name, value in layers.items()})


def _with_scope(function: Any) -> Any:
    """Return ``function`` with ``scope`` accepted as another name of its argument ``name``."""
    if not isinstance(function, types.FunctionType):
        return function

    @functools.wraps(function)
    def scoped(*args: Any, scope: Any = None, **kwargs: Any) -> Any:
        if scope is not None and kwargs.get("name") is None:
            kwargs["name"] = scope if isinstance(scope, str) else scope.name.rpartition("/")[2]
        return function(*args, **kwargs)

    return scoped


@functools.cache
def install() -> types.ModuleType:
    """Patch tf_slim, once, and return it."""
    import tf_slim

    warnings.filterwarnings("ignore", message=r".*tf\.layers\..*is deprecated")
    warnings.filterwarnings("ignore", message=r".*`layer\..*` (will be removed|is deprecated)")
    for module in _slim_modules():
        _complete(module)
    slim_layers: Any = importlib.import_module("tf_slim.layers.layers")
    slim_utils = slim_layers.utils
    patch(slim_layers, "_add_variable_to_collections", _add_to_collections)
    patch(slim_utils, "two_element_tuple", _accept_numpy_sizes(slim_utils.two_element_tuple))
    patch(conv_utils, "normalize_tuple", _accept_numpy_sizes(conv_utils.normalize_tuple))
    patch(importlib.import_module("tf_slim.ops.variables"), "add_model_variable", _add_model_variable)
    handle = legacy_base.Layer._handle_weight_regularization
    patch(legacy_base.Layer, "_handle_weight_regularization", _once_per_variable(handle))
    return tf_slim


def _slim_modules() -> list[types.ModuleType]:
    importlib.import_module("tf_slim.nets")
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("tf_slim")]


# Attribute of a tf_slim module, the module it refers to, and the names that this module lacks.
_MISSING: dict[str, tuple[types.ModuleType, dict[str, Any]]] = {
    "ops": (ops, {"Tensor": tf.Tensor, "IndexedSlices": tf.IndexedSlices}),
    "framework_ops": (ops, {"Tensor": tf.Tensor, "IndexedSlices": tf.IndexedSlices}),
    "control_flow_ops": (
        control_flow_ops,
        {"cond": tf.compat.v1.cond, "while_loop": tf.compat.v1.while_loop, "Assert": tf.compat.v1.Assert},
    ),
    "nn": (
        nn,
        {name: getattr(batch_norm, name) for name in ("fused_batch_norm", "moments", "weighted_moments")},
    ),
    "array_ops": (array_ops, {"stack": tf.stack, "unstack": tf.unstack}),
    "variable_scope": (variable_scope, {"variable": tf.compat.v1.Variable}),
    "six": (six, {"integer_types": (int, np.integer)}),
}


def _complete(module: Any) -> None:
    for attribute, (behind, names) in _MISSING.items():
        if getattr(module, attribute, None) is behind:
            patch(module, attribute, _CompletedModule(behind, names))
    normalization = getattr(module, "normalization_layers", None)
    if normalization is not None and not isinstance(normalization, _CompletedModule):
        stand_in = _CompletedModule(normalization, {"BatchNormalization": BatchNormalization})
        patch(module, "normalization_layers", stand_in)


def _accept_numpy_sizes(normalize: Any) -> Any:
    @functools.wraps(normalize)
    def convert_size(size: Any, *args: Any, **kwargs: Any) -> Any:
        return normalize(int(size) if isinstance(size, np.integer) else size, *args, **kwargs)

    return convert_size


def _add_to_collections(variable: Any, collections_set: Any, collections_name: str) -> None:
    if isinstance(collections_set, dict):
        collections_set = collections_set.get(collections_name)
    for collection in collections_set or []:
        _add_once(collection, variable)


def _add_model_variable(var: Any) -> None:
    _add_once(ops.GraphKeys.MODEL_VARIABLES, var)


def _add_once(collection: str, variable: Any) -> None:
    if not any(known is variable for known in ops.get_collection(collection)):
        ops.add_to_collection(collection, variable)


def _once_per_variable(handle: Any) -> Any:
    @functools.wraps(handle)
    def handle_once(self: Any, name: str, variable: Any, regularizer: Any) -> None:
        known = ops.get_default_graph().get_collection_ref(_REGULARIZED)
        if not any(seen is variable for seen in known):
            known.append(variable)
            handle(self, name, variable, regularizer)

    return handle_once
