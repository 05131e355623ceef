"""What the form of a model learns about a network and a training before it starts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from digits.core.events import Layer
from digits.core.schema import JsonObject


class NetworkSource(Struct):
    """The source code of a network; ``snapshot`` is the path of the weights of a model."""

    network: str
    snapshot: str | None


class Diagnostics(Struct):
    """The findings of the linter."""

    diagnostics: list[JsonObject]


class BuiltNetwork(Struct):
    """A network that was built: its layers, and the URL of its graph."""

    layers: list[Layer]
    parameters: int | None
    tensorboard_url: str
    seconds: float
    ok: bool = True


class CheckedTraining(Struct):
    """The result of the check of a training, with the URL of a picture of its first batch."""

    id: str
    result: JsonObject
    loaded_weights: JsonObject | None
    warnings: list[str]
    batch_url: str
    seconds: float
    ok: bool = True


class CheckStage(Struct):
    """What the check of a training or a download does at present, and its progress in percent."""

    doing: str | None
    progress: float


class ObtainedWeights(Struct):
    """The path of the file with ImageNet weights on the server."""

    path: str
    ok: bool = True


class ScheduleColumns(Struct):
    """A title and the learning rates from 0 to 100% of the training, for each rate of a sweep."""

    columns: list[list[Any]]


class Schedule(Struct):
    data: ScheduleColumns
