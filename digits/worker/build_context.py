"""The context of the network build in progress.

A network calls functions of `tf` and `digits` without saying for which build, so what these functions need
cannot be passed as arguments. It is here, and nowhere else: one context variable that holds one `BuildContext`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class PretrainedParts:
    """The pretrained models that a network requests with ``digits.pretrained``; false if there are none.

    - ``imagenet``: the names of ImageNet weights, which the training loads.
    - ``variables``: the sources of the variables that the network loads itself, by the name of the variable.
    - ``frozen``: the names of models that cannot be trained, because their variables are not the network's.
    """

    imagenet: set[str] = field(default_factory=set)
    variables: dict[str, str] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.imagenet or self.variables or self.frozen)


@dataclass(frozen=True)
class BuildContext:
    """What the functions that a network calls need to know about its build.

    - ``tower``: the tower whose properties are being computed (`digits.worker.network.tower.Tower`), or None.
    - ``accessed``: collects those of ``y`` and ``is_inference`` that the tower's code reads, or None.
    - ``global_step``: returns the variable with the number of the training step, or None outside of a build.
    - ``keras_path``: the path of the Keras variable that is being created, such as ``conv2d_1/kernel``, or "".
    - ``targets``: what the records count in the loss (see `digits.worker.input.target_tensors`), or None.
    - ``trunk``: the names of the variables of pretrained layers, whose batch normalization uses its moving averages
      in training, too.
    - ``frozen_layers``: the paths of the Keras layers that behave as in inference (`layer_calls.Call`).
    - ``pretrained``: collects the pretrained models that the network requests, or None.
    - ``folder``, ``dataset``: the folders of the network's file and of its dataset, or None outside of a build.
    - ``reduction``: averages statistics of the batch over the workers that share it
      (`digits.worker.training.step.replication.Reduction`), or None if each worker normalizes by its own records.
    - ``draw``: the source of reproducible random numbers (see `digits.worker.randomness.streams`), or None.
    """

    tower: Any = None
    accessed: set[str] | None = None
    global_step: Callable[[], Any] | None = None
    keras_path: str = ""
    targets: Any = None
    trunk: Container[str] = ()
    frozen_layers: Container[tuple[str, ...]] = ()
    pretrained: PretrainedParts | None = None
    folder: Path | None = None
    dataset: Path | None = None
    reduction: Any = None
    draw: Any = None


_OUTSIDE = BuildContext()
_current: ContextVar[BuildContext] = ContextVar("build_context")


def current() -> BuildContext:
    """The context of the innermost build in this thread; an empty one outside of builds."""
    return _current.get(_OUTSIDE)


@contextmanager
def extend(**changes: Any) -> Iterator[None]:
    """Replace some fields of the current context inside the block."""
    token = _current.set(dataclasses.replace(current(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
