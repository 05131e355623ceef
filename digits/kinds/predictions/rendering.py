"""Base classes for views of predictions. Runs in the server only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form

from digits.core.errors import BadRequest
from digits.data.images.images import Geometry
from digits.data.targets.target import Target


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for one input.

    ``predictions`` is what `digits.kinds.network.targets.Targets.describe` returns for the most likely classes, and
    ``all_predictions`` for all of them. ``outputs`` are all outputs of the network by name, each [...], without the
    batch dimension; ``omitted`` names those that were too large. ``picture`` is the image to draw on: its
    ``url``, and its ``width`` and ``height`` in pixels; ``geometry`` maps it to the input of the network. ``pixels`` is
    the input [height, width, channels] of models that do not predict from image files. ``recipe`` and ``target`` are
    those of the dataset.
    """

    kind: str
    predictions: Any
    all_predictions: Any = None
    outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    omitted: Sequence[str] = ()
    picture: Mapping[str, Any] | None = None
    geometry: Geometry | None = None
    pixels: NDArray[Any] | None = None
    recipe: Any = None
    target: Target | None = None

    @property
    def nbytes(self) -> int:
        """The approximate size in memory, in bytes."""
        text = len(self.picture["url"]) if self.picture else 0
        return sum(values.nbytes for values in self.outputs.values()) + text + len(str(self.predictions))


class View:
    """A view of predictions. The module ``view`` of its package defines ``View``, a subclass.

    ``Options`` is a form of its options, which requests contain next to the other fields. Fields that a request lacks
    have their defaults. With ``uses_picture``, predictions have a ``picture``.
    """

    Options: type[Form] = Form
    uses_picture = False

    def fits(self, prediction: Prediction) -> bool:
        """Return whether the view can show a prediction, based on its outputs."""
        return True

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        """Return ``shown``, a variable of the template in addition to ``predictions``, ``picture`` and ``options``.

        It is also in the JSON of the view. Called in a thread. Raises BadRequest.
        """
        return {}


def check_options(form: Form) -> None:
    """Raise BadRequest for the first invalid field of ``form``."""
    if form.validate():
        return
    name, messages = next(iter(form.errors.items()))
    raise bad_option(
        str(name), str(messages[0]), [choice.value for choice in getattr(form[name], "choices", None) or []]
    )


def bad_option(name: str, message: str, choices: Sequence[str] = ()) -> BadRequest:
    """Return the error for the option ``name``, which lists the valid ``choices``."""
    return BadRequest(f"“{name}”: {message}", f"Use {', '.join(map(str, choices))}." if choices else "")


def as_numbers(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return ``values`` as float32, NaN and infinity as zeros."""
    return np.nan_to_num(values.astype(np.float32), copy=False, nan=0.0, posinf=0.0, neginf=0.0)
