"""Models in production, as pages and programs see them."""

from __future__ import annotations

from msgspec import Struct


class ProductionModel(Struct):
    """A production name: its URL, the model behind it, and whether its snapshot exists. ``since`` is a Unix time."""

    name: str
    url: str
    since: float
    epoch: str
    model: str
    model_url: str
    metric: str
    is_available: bool


class ProductionModels(Struct):
    models: list[ProductionModel]


class Promoted(Struct):
    name: str
    url: str


class Tensor(Struct):
    name: str
    datatype: str
    shape: list[int]


class ServedModel(Struct):
    """The inputs, outputs and labels of a production model, as model metadata of KServe."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    labels: list[str]
    model: str
    snapshot: str
