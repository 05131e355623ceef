"""Variables by name: one set that all traces of a network share.

Networks create variables while a graph is built. A network is traced several times (for training, validation,
inference, and each replica), and every trace must use the same variables. A `VariableStore` answers all
requests for variables, whichever API makes them, by the variable's full name.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.core import Variable as KerasVariable
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.ops.resource_variable_ops import ResourceVariable, UninitializedVariable
from tensorflow.python.util.object_identity import ObjectIdentityDictionary

from digits.worker import build_context
from digits.worker.failure import UserFault
from digits.worker.patched_names import replace
from digits.worker.randomness import streams

MODEL_SCOPE = "model"
LOSS_SCOPE = "loss"


@dataclass(frozen=True)
class _Counter:
    """A variable of a Keras metric, which is reset to its ``initial`` value for every batch."""

    variable: tf.Variable
    initial: Any

    def begin(self) -> None:
        self.variable.assign(self.initial() if callable(self.initial) else self.initial)


@dataclass
class Own:
    """Variables and layer names that a network's text creates outside of its class.

    ``variables`` and ``counters``, the variables of Keras metrics, are by name; ``layer_names`` are Keras' counts
    of automatic names.
    """

    variables: dict[str, tf.Variable] = field(default_factory=dict)
    counters: dict[str, _Counter] = field(default_factory=dict)
    layer_names: dict[str, int] = field(default_factory=dict)


@contextmanager
def record_outside_variables() -> Iterator[Own]:
    """Collect the variables that are created inside, outside of any trace, for all traces to share."""
    own = Own()
    asked_for: dict[str, int] = {}

    def make(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        name = _make_unique(asked_for, _full_name(kwargs.get("name") or "Variable", ""))
        made = _make(name, kwargs)
        if _is_counter():
            own.counters[name] = _Counter(made, kwargs["initial_value"])
        else:
            own.variables[name] = made
        return made

    _name_layers_from({})
    with _keras_paths(), tf.variable_creator_scope(make):
        yield own
    own.layer_names.update(global_state.get_global_attribute("object_name_uids") or {})


def _name_layers_from(counts: dict[str, int]) -> None:
    """Reset the counts of Keras' automatic layer names, so that every trace gets the same names."""
    global_state.set_global_attribute("object_name_uids", defaultdict(int, counts))


class VariableStore:
    """Owns the variables of a network. A variable is created once and reused by name.

    A locked store creates no more variables: a trace that requests a new one gets a UserFault, because that
    variable would never be trained. With ``empty``, variables have shapes but no values, which is faster.
    Variables named in ``frozen`` are not trainable. Variables are on ``device``. ``local`` contains the variables of
    single stages, such as counters, by name. ``trunk`` contains the names of the variables of pretrained layers, whose
    batch normalization uses its moving averages. ``pretrained`` collects the pretrained models that the network
    requests.
    """

    def __init__(self, empty: bool = False, frozen: Container[str] = (), device: str = "") -> None:
        self._variables: dict[str, tf.Variable] = {}
        self.local: dict[str, tf.Variable] = {}
        self._counters: dict[str, _Counter] = {}
        self._frozen = frozen
        self.trunk: Container[str] = ()
        self.pretrained = build_context.PretrainedParts()
        self._locked_for = ""
        self._make = _make_empty if empty else _make
        self._device = device
        self._copies: dict[str, VariableCopies] = {}

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables by full name, such as ``model/conv1/weights``, in order of creation."""
        return dict(self._variables)

    @property
    def parameters(self) -> int:
        """The number of parameters: floating-point values of all variables."""
        return sum(count(variable) for variable in self._variables.values())

    def copies_on(self, device: str) -> VariableCopies:
        """Return the copies of these variables for a replica on ``device``."""
        if device not in self._copies:
            self._copies[device] = VariableCopies(self, device)
        return self._copies[device]

    def own(self, variable: tf.Variable) -> tf.Variable:
        """Return the variable that a trace with this store uses for ``variable`` of the training."""
        return variable

    def is_frozen(self, variable: tf.Variable) -> bool:
        """Whether ``variable`` is frozen."""
        return plain_name(variable) in self._frozen

    def lock(self, reason: str) -> None:
        """Create no more variables. ``reason`` completes the error message “The network requests the variable
        …”.
        """
        self._locked_for = reason

    @contextmanager
    def trace(self, own: Own | None = None, stage: str = "") -> Iterator[None]:
        """Answer requests for variables inside, in the current graph, from this store.

        ``own`` contains what the network's text created before. Local variables are shared with the other traces
        of ``stage``.
        """
        graph = tf.compat.v1.get_default_graph()
        _forget_collections(graph)
        own = own or Own()
        _name_layers_from(own.layer_names)
        creator = _Creator(self, graph, stage)
        for name, variable in own.variables.items():
            creator.take(name, self._variables.setdefault(name, variable))
        self._counters.update(own.counters)
        for name, counter in self._counters.items():
            self.local.setdefault(name, counter.variable)
            counter.begin()
        with (
            _keras_paths(),
            tf.variable_creator_scope(creator),
            build_context.extend(trunk=self.trunk, pretrained=self.pretrained),
        ):
            yield

    @contextmanager
    def continue_trace(self) -> Iterator[None]:
        """Continue the latest trace in the current graph."""
        graph = tf.compat.v1.get_default_graph()
        creators = _creators_of(graph)
        with _keras_paths(), tf.variable_creator_scope(creators[-1] if creators else _Creator(self, graph)):
            yield

    def get_or_create(self, name: str, request: dict[str, Any]) -> tf.Variable:
        """Return the variable called ``name``; create it from ``request``, the arguments of a variable creator, if
        it is new.
        """
        if name not in self._variables:
            if self._locked_for:
                raise UserFault(
                    f"The network requests the variable {name!r} {self._locked_for}.",
                    "Create the same variables whether or not the network is being trained.",
                )
            if name in self._frozen:
                request = {**request, "trainable": False}
            with tf.device(self._device or None):
                self._variables[name] = self._make(name, request)
        return self._variables[name]

    def get_or_create_local(self, name: str, request: dict[str, Any]) -> tf.Variable:
        """Return a variable of one stage, such as the counters of ``tf.metrics``."""
        if name not in self.local:
            with tf.device(self._device or None):
                self.local[name] = self._make(name, {**request, "trainable": False})
        return self.local[name]

    def make_counter(self, name: str, request: dict[str, Any]) -> tf.Variable:
        """Return a variable of a Keras metric, which is reset before every batch."""
        variable = self.get_or_create_local(name, request)
        counter = self._counters[plain_name(variable)] = _Counter(variable, request["initial_value"])
        counter.begin()
        return variable


class VariableCopies(VariableStore):
    """Copies of the variables of ``originals``, by the same names, in the memory of ``device``.

    A replica of the network on another device reads and changes them; local variables are its own anyway.
    """

    def __init__(self, originals: VariableStore, device: str) -> None:
        super().__init__(device=device)
        self._originals, self.local = originals, originals.local

    def refresh(self) -> None:
        """Copy the values of all originals, in the current graph."""
        self.trunk, self.pretrained = self._originals.trunk, self._originals.pretrained
        for name, original in self._originals.variables.items():
            copy = self.get_or_create(name, {})
            if copy is not original:
                copy.assign(original.read_value())

    def get_or_create(self, name: str, request: dict[str, Any]) -> tf.Variable:
        """Return the copy of the variable called ``name``, which is created with it if it is new."""
        if name not in self._variables:
            original = self._originals.get_or_create(name, request)
            with tf.device(self._device), _outside():
                self._variables[name] = _Variable(
                    original.read_value(),
                    trainable=original.trainable,
                    name=name,
                    constraint=original.constraint,
                )
        return self._variables[name]

    def own(self, variable: tf.Variable) -> tf.Variable:
        return self._variables.get(plain_name(variable), variable)

    def is_frozen(self, variable: tf.Variable) -> bool:
        return self._originals.is_frozen(variable)


def plain(variable: Any) -> tf.Variable:
    """The TensorFlow variable behind a Keras variable; others are returned unchanged."""
    return variable if isinstance(variable, tf.Variable) else variable.value


@contextmanager
def set_once(variable: tf.Variable) -> Iterator[bool]:
    """Yield whether a value that the network loads into ``variable`` must be assigned: True only the first time."""
    with tf.init_scope():
        yield not getattr(variable, "digits_loaded", False)
    variable.digits_loaded = True


def plain_name(variable: tf.Variable) -> str:
    """The full name of ``variable`` in the store."""
    return str(variable.name).removesuffix(":0")


def count(variable: tf.Variable) -> int:
    """The number of parameters in ``variable``; 0 for integers, such as the states of random generators."""
    return int(variable.shape.num_elements()) if variable.dtype.is_floating else 0


class _Creator:
    """The variable creator of one trace."""

    def __init__(self, store: VariableStore, graph: tf.Graph, stage: str = "") -> None:
        creators = _creators_of(graph)
        # The copies of a network for several devices are in one graph.
        self._local = f"local/{stage}/{len(creators)}"
        creators.append(self)
        self._store = store
        self._graph = graph
        self._around = graph.get_name_scope()
        self._asked_for: dict[str, int] = {}

    def take(self, name: str, variable: tf.Variable) -> None:
        """Register a variable that was created before."""
        self._asked_for[name] = 1
        if not self._store.is_frozen(variable):
            remember(self._graph, variable)

    def __call__(self, next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        name = _make_unique(self._asked_for, _full_name(kwargs.get("name") or "Variable", self._around))
        if _is_counter():
            kwargs["collections"] = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
            variable = self._store.make_counter(f"{self._local}/{name}", kwargs)
        elif tf.compat.v1.GraphKeys.LOCAL_VARIABLES in (kwargs.get("collections") or ()):
            variable = self._store.get_or_create_local(f"{self._local}/{name}", kwargs)
        else:
            variable = self._store.get_or_create(name, kwargs)
        _check_shape(name, variable, kwargs)
        remember(self._graph, variable, kwargs.get("collections"))
        return variable


def _creators_of(graph: tf.Graph) -> list[_Creator]:
    """Return the creators of the traces in ``graph``, in order."""
    if not hasattr(graph, "digits_creators"):
        graph.digits_creators = []
    return graph.digits_creators


def _make_unique(asked_for: dict[str, int], name: str) -> str:
    """Return ``name``, or ``name_1`` for the second variable of this trace with that name."""
    times = asked_for.get(name, 0)
    asked_for[name] = times + 1
    return _make_unique(asked_for, f"{name}_{times}") if times else name


def remember(graph: tf.Graph, variable: tf.Variable, collections: Any = None) -> None:
    """Add the variable to the collections of this trace, as creating it would have done."""
    keys = list(collections or [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES])
    if variable.trainable:
        keys.append(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    for key in set(keys):
        known = graph.get_collection_ref(key)
        if not any(item is variable for item in known):
            known.append(variable)


def _forget_collections(graph: tf.Graph) -> None:
    # The graph of a function inherits the collections of the outer graph and its variable store under an unlisted
    # key. Only the inner references are dropped.
    graph._collections.clear()


# Replicas of a network in one graph have the scopes model, model_1 and so on.
_COPY = re.compile(rf"^({MODEL_SCOPE}|{LOSS_SCOPE})_\d+(?=/|$)")


def _full_name(name: str, around: str) -> str:
    """Return the name of a variable with its scopes.

    `get_variable` clears the name scope and passes the full name; `tf.Variable` depends on the name scope; Keras
    layers use their own path. The scope ``around`` the network, such as a loop over steps, and the number of a
    replica are not part of the name, not even of one derived from a tensor's name: all traces share the variable.
    """
    if path := build_context.current().keras_path:
        scope = tf.compat.v1.get_variable_scope().name
        return f"{scope}/{path}" if scope else path
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    full = f"{scope}/{name}" if scope else name
    return _COPY.sub(r"\1", full.removeprefix(f"{around}/" if around else ""))


def _is_counter() -> bool:
    """Return whether the variable being created belongs to a Keras metric."""
    if not build_context.current().keras_path:
        return False
    scopes = global_state.get_global_attribute("name_scope_stack")
    return bool(scopes) and isinstance(scopes[-1].caller, keras.metrics.Metric)


def _keras_paths() -> AbstractContextManager[None]:
    """Make the path of Keras variables available, some of which are created long after the layer requested them."""
    original = KerasVariable._initialize

    @functools.wraps(original)
    def initialize(self: Any, value: Any) -> None:
        with build_context.extend(keras_path=self.path):
            original(self, value)

    return replace(KerasVariable, "_initialize", initialize)


class _Operation:
    """The ``op`` of a variable, for networks that read its name."""

    type = "VarHandleOp"

    def __init__(self, variable: tf.Variable) -> None:
        self.name = variable.name.removesuffix(":0")
        self.device = variable.device
        self.graph = tf.compat.v1.get_default_graph()


class _V1Behavior:
    """The behavior of variables in TensorFlow 1: comparable, hashable, and with an ``op``, for ``w.op.name``."""

    read_value: Callable[[], tf.Tensor]

    @property
    def op(self) -> _Operation:
        return _Operation(self)

    def __eq__(self, other: Any) -> Any:
        return self is other if isinstance(other, tf.Variable) else super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        return self is not other if isinstance(other, tf.Variable) else super().__ne__(other)

    def __hash__(self) -> int:
        return id(self)

    def initialized_value(self) -> tf.Tensor:
        return self.read_value()

    def eval(self, session: Any = None) -> Any:
        raise UserFault(
            "A variable cannot be evaluated while the network is being built.",
            "There are no sessions: compute with the variable itself.",
        )


class _Variable(_V1Behavior, ResourceVariable):
    """A variable of a network."""


class _EmptyVariable(_V1Behavior, UninitializedVariable):
    """A variable of a network without a value."""


def _make(name: str, kwargs: dict[str, Any]) -> tf.Variable:
    initial = kwargs["initial_value"]
    if _is_symbolic(initial):
        initial = tf.function(lambda: _lift(name, kwargs["initial_value"]), autograph=False)
    # Created directly: `tf.Variable` would call the creators of the outer graph, including this one.
    with _outside():
        return _Variable(
            initial() if callable(initial) else initial,
            trainable=_is_trainable(kwargs),
            name=name,
            dtype=kwargs.get("dtype"),
            constraint=kwargs.get("constraint"),
            shape=kwargs.get("shape"),
        )


def _make_empty(name: str, kwargs: dict[str, Any]) -> tf.Variable:
    initial = kwargs["initial_value"]
    with tf.Graph().as_default():
        if _is_symbolic(initial):
            initial = _lift(name, initial)
        value = tf.convert_to_tensor(initial() if callable(initial) else initial, kwargs.get("dtype"))
        shape, dtype = kwargs.get("shape") or value.shape, value.dtype
    with _outside():
        return _EmptyVariable(shape=shape, dtype=dtype, trainable=_is_trainable(kwargs), name=name)


def _is_trainable(kwargs: dict[str, Any]) -> bool:
    trainable = kwargs.get("trainable")
    return True if trainable is None else bool(trainable)


def _is_symbolic(initial: Any) -> bool:
    return bool(tf.is_symbolic_tensor(initial))


def _lift(name: str, initial: tf.Tensor) -> tf.Tensor:
    """Copy the computation of ``initial``, a tensor of the graph being built, to the current graph."""
    graph = tf.compat.v1.get_default_graph()
    step = streams.step_in(initial.graph)
    try:
        if step is None:
            return lift_to_graph.lift_to_graph([initial], graph)[initial]
        # Random values are those of the first step.
        known = _CopyMap(step, tf.zeros([], step.dtype))
        return lift_to_graph.lift_to_graph([initial], graph, sources=[step], op_map=known)[initial]
    except lift_to_graph.UnliftableError as error:
        raise UserFault(
            f"The initial value of the variable {name!r} depends on the input.",
            "Use an initial value that does not depend on the batch.",
        ) from error


class _CopyMap(ObjectIdentityDictionary):
    """The tensors copied by lifting; the copy of ``tensor`` is predefined and final."""

    def __init__(self, tensor: tf.Tensor, copy: tf.Tensor) -> None:
        super().__init__()
        super().__setitem__(tensor, copy)
        self._tensor = tensor

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not self._tensor:
            super().__setitem__(key, value)


def _check_shape(name: str, variable: tf.Variable, kwargs: dict[str, Any]) -> None:
    shape = kwargs.get("shape")
    if shape is not None and not variable.shape.is_compatible_with(shape):
        raise UserFault(f"The variable {name!r} has shape {variable.shape}, not {shape}.")


@contextmanager
def _outside() -> Iterator[None]:
    """Leave the graph being built and its name scopes, because names are complete."""
    with tf.init_scope(), tf.compat.v1.name_scope(None):
        yield


def make_state(name: str, shape: Any, value: float = 0.0, dtype: tf.DType = tf.float32) -> tf.Variable:
    """Create a variable of the trainer itself, filled with ``value`` and not trainable."""
    with _outside():
        initial = tf.fill(tf.TensorShape(shape).as_list(), tf.cast(value, dtype))
        return ResourceVariable(initial, trainable=False, name=name)
