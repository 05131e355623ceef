"""The class that a user's network derives from."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from digits.worker import build_context

TRAIN, VALIDATION, INFERENCE = "train", "val", "inf"


def cache_name(name: str) -> str:
    """Return the attribute that caches the value of the property ``name``."""
    return f"_cache_{name}"


def model_property(function: Callable[[Any], Any]) -> property:
    """A property that is computed once per instance and cached."""
    attribute = cache_name(function.__name__)

    @functools.wraps(function)
    def cached(self: Any) -> Any:
        if not hasattr(self, attribute):
            setattr(self, attribute, function(self))
        return getattr(self, attribute)

    return property(cached)


class _RecordedAttribute:
    """An attribute of a tower whose reads are recorded in the build context."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, tower: Any, owner: type) -> Any:
        if tower is None:
            return self
        accessed = build_context.current().accessed
        if accessed is not None:
            accessed.add(self._name)
        try:
            return vars(tower)[self._name]
        except KeyError:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}") from None

    def __set__(self, tower: Any, value: Any) -> None:
        vars(tower)[self._name] = value

    def __delete__(self, tower: Any) -> None:
        del vars(tower)[self._name]


class Tower:
    """One copy of a network, in one graph. A network is a ``class UserModel(Tower)``.

    It defines ``inference`` (the output) and ``loss`` (a scalar tensor, or a list of ``{"loss": tensor, "vars":
    [variables]}``), each decorated with ``@model_property``, and uses

    - ``x``: the batch, float32 [N, H, W, C], 0 to 255 minus the dataset's mean;
    - ``y``: the targets: labels, int64 [N], or numbers, float32 [N, numbers]; None for inference;
    - ``input_shape``: ``[H, W, C]``, after cropping;
    - ``nclasses``: the number of classes, or of numbers to predict;
    - ``target``: the dataset's `Target`: the ``names`` of the classes or numbers, and the ``mean`` and ``std``
      of the numbers over the training split;
    - ``is_training``, ``is_inference``: both False for validation;
    - ``summaries``: a list for ``tf.summary.scalar(...)``, ``histogram`` and ``image``.

    It may define ``gradientUpdate`` and ``fineTuneHook``, and set ``disableAutoDataParallelism``.
    """

    # A network that reads neither of these is built identically for validation and inference.
    y = _RecordedAttribute()
    is_inference = _RecordedAttribute()

    def __init__(
        self, x: Any, y: Any, input_shape: list[int], nclasses: int, is_training: bool, is_inference: bool
    ) -> None:
        self.x = x
        self.y = y
        self.input_shape = input_shape
        self.nclasses = nclasses
        self.is_training = is_training
        self.is_inference = is_inference
        self.summaries: list[Any] = []
        self.train: Any = None

    # Set by networks that must not be replicated; the batch is then processed on one device as a whole.
    disableAutoDataParallelism = False  # noqa: N815 - the name that networks set

    def fineTuneHook(self, net: Any) -> Any:  # noqa: N802 - the name that networks override
        """Replace the output ``net`` of ``inference``."""
        return net

    def gradientUpdate(self, grad: Any) -> Any:  # noqa: N802 - the name that networks override
        """Replace the (gradient, variable) pairs of a loss."""
        return grad


def from_function(build_model: Callable[[dict[str, Any]], dict[str, Any]]) -> type[Tower]:
    """Create a network from a function ``build_model(params)``, the interface of DIGITS' first TensorFlow version.

    It returns the output as ``model`` and a function of the labels as ``loss``, and optionally the values of its
    placeholders in training and otherwise as ``feed_dict_train`` and ``feed_dict_val``. Its summaries are those in
    the collections for training and validation.
    """

    class UserModel(Tower):
        @model_property
        def built(self) -> dict[str, Any]:
            names = ("x", "y", "input_shape", "nclasses", "is_training", "is_inference")
            return build_model({name: getattr(self, name) for name in names})

        @model_property
        def inference(self) -> Any:
            model = self.built["model"]
            self._feed()
            return model

        @model_property
        def loss(self) -> Any:
            loss = self.built["loss"](self.y)
            self._feed()
            collection = "summaries_train" if self.is_training else "summaries_val"
            self.summaries += tf.compat.v1.get_collection(collection)
            return loss

        def _feed(self) -> None:
            """Replace a fed placeholder by its value for all consumers."""
            feeds = self.built.get("feed_dict_train" if self.is_training else "feed_dict_val") or {}
            for placeholder, value in feeds.items():
                constant = tf.constant(value, placeholder.dtype)
                for operation in placeholder.consumers():
                    for index, tensor in enumerate(operation.inputs):
                        if tensor is placeholder:
                            operation._update_input(index, constant)

    return UserModel


@dataclass
class Step:
    """The number of the training step, for networks that read it.

    The variable is created when a network first reads it; every training step updates it.
    """

    variable: tf.Variable | None = None

    def set(self, number: int) -> None:
        """Set the number that the network reads, if it reads one."""
        if self.variable is not None:
            self.variable.assign(number)

    def read(self, number: tf.Tensor | None) -> tf.Variable:
        """The variable; assigns ``number`` first, unless it is None."""
        if self.variable is None:
            with tf.init_scope(), tf.compat.v1.name_scope(None):
                # Created directly: `tf.Variable` would call the variable creators of the build.
                self.variable = ResourceVariable(0, trainable=False, name="global_step", dtype=tf.int64)
        if number is not None:
            self.variable.assign(tf.cast(number, tf.int64))
        return self.variable


class _StepReader:
    """Returns the variable with the number of the training step; the first call in a build sets it."""

    def __init__(self, step: Step, number: tf.Tensor | None) -> None:
        self._step, self._number = step, number

    def __call__(self) -> tf.Variable:
        number, self._number = self._number, None
        return self._step.read(number)


def current_tower() -> Any:
    """The tower whose properties are being computed, or None."""
    return build_context.current().tower


def global_step() -> tf.Variable:
    """The number of the training step, as a variable that the trainer updates."""
    read = build_context.current().global_step
    return read() if read else Step().read(None)


@contextlib.contextmanager
def building(
    tower: Any, step: Step, number: tf.Tensor | None = None, accessed: set[str] | None = None
) -> Iterator[None]:
    """Make ``tower`` the one that is built inside; ``number`` is that of the training step.

    ``accessed`` collects those of ``y`` and ``is_inference`` that are read.
    """
    with build_context.extend(
        tower=tower, global_step=_StepReader(step, number), accessed=set() if accessed is None else accessed
    ):
        yield
