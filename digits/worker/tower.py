"""The class that a user's network derives from."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

TRAIN, VALIDATION, INFERENCE = "train", "val", "inf"


def cache_name(name: str) -> str:
    """The attribute that keeps the value of the property ``name``."""
    return f"_cache_{name}"


def model_property(function: Callable[[Any], Any]) -> property:
    """A property that is computed once and then kept."""
    attribute = cache_name(function.__name__)

    @functools.wraps(function)
    def cached(self: Any) -> Any:
        if not hasattr(self, attribute):
            setattr(self, attribute, function(self))
        return getattr(self, attribute)

    return property(cached)


class Tower:
    """One copy of a network, in one graph. A network is a ``class UserModel(Tower)``.

    It defines ``inference`` (the output) and ``loss`` (a scalar tensor, or a list of
    ``{"loss": tensor, "vars": [variables]}``), each under ``@model_property``. It finds

    - ``x``: the batch, float32 [N, H, W, C], 0 to 255 less the dataset's mean;
    - ``y``: the labels, int64 [N]; None for inference;
    - ``input_shape``: ``[H, W, C]``, after cropping;
    - ``nclasses``: the number of classes;
    - ``is_training``, ``is_inference``: both False for validation;
    - ``summaries``: a list for ``tf.summary.scalar(...)``, ``histogram`` and ``image``.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        input_shape: list[int],
        nclasses: int,
        is_training: bool,
        is_inference: bool,
    ) -> None:
        self.x = x
        self.y = y
        self.input_shape = input_shape
        self.nclasses = nclasses
        self.is_training = is_training
        self.is_inference = is_inference
        self.summaries: list[Any] = []
        self.train: Any = None

    def gradientUpdate(self, grad: Any) -> Any:  # noqa: N802 - the name that networks override
        """Called with the (gradient, variable) pairs of each loss; returns those to apply."""
        return grad


_being_built: list[Any] = []


def being_built() -> Any:
    """The tower whose properties are being computed, or None."""
    return _being_built[-1] if _being_built else None


@contextlib.contextmanager
def building(tower: Any) -> Iterator[None]:
    """Makes ``tower`` the one that `being_built` answers."""
    _being_built.append(tower)
    try:
        yield
    finally:
        _being_built.pop()
