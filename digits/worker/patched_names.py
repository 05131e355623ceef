"""The names of TensorFlow, Keras and tf_slim that the worker patches, and the private ones that it uses.

A release of these libraries may change them without notice. ``tests/worker/test_patched_names.py`` compares the table
with the installed release.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# What the worker needs names for, and the names by their modules or classes: ``owner: name name(signature)``, without a
# signature if it does not matter. Those after a plus are added. ``tf_slim.*`` are all modules of tf_slim.
REGISTER = {
    "Random numbers depend on the seed and the step, so that a resumed training draws the same.": """
        tensorflow.python.ops.gen_random_ops: random_uniform(shape, dtype, seed=..., seed2=..., name=...)
            random_uniform_int(shape, minval, maxval, seed=..., seed2=..., name=...)
            random_standard_normal(shape, dtype, seed=..., seed2=..., name=...)
            truncated_normal(shape, dtype, seed=..., seed2=..., name=...)
            random_gamma(shape, alpha, seed=..., seed2=..., name=...)
            random_poisson_v2(shape, rate, seed=..., seed2=..., dtype=..., name=...)
            random_shuffle(value, seed=..., seed2=..., name=...) parameterized_truncated_normal multinomial
        tensorflow._api.v2.raw_ops: RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal
            ParameterizedTruncatedNormal RandomGamma RandomPoissonV2 Multinomial RandomShuffle
        tensorflow.python.framework.random_seed: get_seed(op_seed)
        tensorflow.python.ops.while_v2: while_loop
        tensorflow.python.ops.stateful_random_ops: global_generator
        tensorflow.python.ops.stateful_random_ops.Generator: skip(self, delta) state
        keras.src.random.seed_generator.SeedGenerator: next(self, ordered=...) get_config(self)
        tensorflow.python.framework.ops.Operation: _set_attr(self, attr_name, attr_value)
        tensorflow.core.framework.attr_value_pb2: AttrValue
    """,
    "The calls of layers, their losses and their regularization belong to one trace of the network.": """
        keras.src.layers.layer.Layer: _get_regularization_losses(self)
            _flatten_layers(self, include_self=..., recursive=...) __call__ _losses _loss_ids
        tensorflow.python.keras.legacy_tf_layers.base.Layer: __call__
        keras.src.backend.common.global_state: get_global_attribute(name, default=..., set_to_default=...)
            set_global_attribute(name, value)
    """,
    "A Keras model is not trained while the network is built.": """
        keras.src.models.model.Model: fit train_on_batch evaluate test_on_batch predict predict_on_batch
    """,
    "All traces of a network share its variables, which have the names of TensorFlow 1.": """
        keras.src.backend.tensorflow.core: Variable
        keras.src.backend.tensorflow.core.Variable: assign(self, value) _initialize(self, value) _value
        tensorflow.python.ops.resource_variable_ops: ResourceVariable UninitializedVariable
        tensorflow.python.ops.resource_variable_ops.BaseResourceVariable: _constraint
        tensorflow.python.eager.lift_to_graph: lift_to_graph UnliftableError
        tensorflow.python.util.object_identity: ObjectIdentityDictionary
        tensorflow.python.framework.ops.Graph: _collections
    """,
    "A placeholder has the value that a network feeds.": """
        tensorflow.python.framework.ops.Operation: _update_input(self, index, tensor)
    """,
    "Workers that share a training average the moving averages that a step has changed.": """
        tensorflow.python.framework.auto_control_deps_utils: get_read_write_resource_inputs(op)
    """,
    "Batch normalization of Keras uses the fused operation, or moments that several workers share.": """
        keras.src.layers.normalization.batch_normalization.BatchNormalization: call _moments(self, inputs, mask)
    """,
    "Keras layers accept tensors, initializers and regularizers of TensorFlow 1, and its operations between them.": """
        keras.src.initializers: get(identifier)
        keras.src.regularizers: get(identifier)
        keras.src.layers: Input
        keras._tf_keras.keras.layers: Input
        keras.layers: Input
        keras: Input
        keras._tf_keras.keras: Input
        keras.src.backend.common.keras_tensor: KerasTensor
        keras.src.backend: compute_output_spec
        tensorflow.python.ops.init_ops: Initializer
        tensorflow.python.util.dispatch: GlobalOpDispatcher
    """,
    "The functions of a network that is exported to Keras become layers.": """
        keras.src.backend.common.keras_tensor.KerasTensor: +__array_ufunc__ __add__ __radd__ __sub__ __rsub__ __mul__
            __rmul__ __matmul__ __rmatmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __floordiv__ __rfloordiv__
            __mod__ __rmod__ __lt__ __le__ __gt__ __ge__ __ne__
        keras.src.ops.node.Node: _keras_history
        keras.src.ops.operation.Operation: _inbound_nodes
    """,
    "tf_slim and tf.layers run on TensorFlow 2: modules that lack names, collections, sizes computed by NumPy.": """
        tf_slim.*: ops framework_ops control_flow_ops array_ops variable_scope six normalization_layers
            nn
        tensorflow.python.ops: array_ops control_flow_ops nn variable_scope
        tf_slim.layers.layers: _add_variable_to_collections(variable, collections_set, collections_name)
        tf_slim.layers.utils: two_element_tuple(int_or_tuple)
        tf_slim.ops.variables: add_model_variable(var)
        tensorflow.python.keras.utils.conv_utils: normalize_tuple(value, n, name)
        tensorflow.python.keras.legacy_tf_layers.base: Layer
        tensorflow.python.keras.legacy_tf_layers.base.Layer: _handle_weight_regularization
        tensorflow.python.layers.layers: conv2d dense
        tensorflow.python.framework.ops: add_to_collection(name, value) get_collection(key, scope=...)
            get_default_graph() GraphKeys
    """,
    "Tensors are keys of dicts.": """
        tensorflow.python.framework.ops: SymbolicTensor
        tensorflow.python.framework.ops.SymbolicTensor: __hash__
    """,
    "Operations that yield NaN or infinity are found.": """
        tensorflow.python.framework.op_callbacks: add_op_callback(callback_fn) remove_op_callback(op_callback)
    """,
    "Steps of TensorFlow 1 run eagerly.": """
        tensorflow.python.eager.context: eager_mode()
        tensorflow.python.ops.variable_scope: EagerVariableStore
        tensorflow.python.ops.gradients_util: _GradientsHelper
        tensorflow.python.ops.losses.util: add_loss(loss, loss_collection=...)
        tensorflow.python.keras.legacy_tf_layers.base: Layer
        tensorflow.python.keras.legacy_tf_layers.base.Layer: add_loss(self, losses, inputs=...)
        tensorflow.python.framework.ops: EagerTensor
        tensorflow.python.framework.ops.EagerTensor: op name __hash__
    """,
    "Names of TensorFlow 1 that its public modules lack.": """
        tensorflow.python.ops.rnn_cell: BasicRNNCell GRUCell BasicLSTMCell LSTMCell DeviceWrapper DropoutWrapper
            LSTMStateTuple RNNCell ResidualWrapper MultiRNNCell
        tensorflow.python.ops.rnn_cell.MultiRNNCell: _cells
    """,
    "The graph of a step is cut where trained layers begin.": """
        tensorflow.core.framework.graph_pb2: GraphDef
        tensorflow.python.framework: op_def_registry
        tensorflow.python.framework.op_def_registry: get(name)
    """,
    "Files of other programs are read and written.": """
        tensorflow.python.framework.convert_to_constants: convert_variables_to_constants_v2
        tensorflow.core.protobuf.trackable_object_graph_pb2: TrackableObjectGraph
        tensorflow.python.util.deprecation: silence()
    """,
}


class RegisteredName(NamedTuple):
    """A name of the module or class ``owner``; its ``signature`` is empty if it does not matter."""

    owner: str
    name: str
    signature: str = ""
    is_added: bool = False


def registered_names() -> Iterator[RegisteredName]:
    """Yield all names of the register."""
    for text in REGISTER.values():
        _, *parts = re.split(r"(\S+):\s", text)
        for owner, names in zip(parts[::2], parts[1::2], strict=True):
            for plus, name, signature in re.findall(r"(\+?)(\w+)(\(.*?\))?", names):
                yield RegisteredName(owner, name, signature, bool(plus))


@functools.cache
def _registered() -> frozenset[tuple[str, str]]:
    return frozenset((each.owner, each.name) for each in registered_names())


def install(owner: Any, name: str, replacement: Any) -> None:
    """Replace or add the attribute ``name`` of a class or module; raises LookupError if it is not registered."""
    path = f"{owner.__module__}.{owner.__qualname__}" if inspect.isclass(owner) else owner.__name__
    wildcard = f"{path.partition('.')[0]}.*"
    if not path.startswith("digits.") and not {(path, name), (wildcard, name)} & _registered():
        raise LookupError(f"{path}.{name} is not in the register of patched names.")
    setattr(owner, name, replacement)


@contextmanager
def replace(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Like `install`, inside the block."""
    is_own, original = name in vars(owner), getattr(owner, name, None)
    install(owner, name, replacement)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)  # reveals the inherited attribute again, if there is one
