"""What is inside a network, as pages and programs see it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from digits.core.events import Layer


class OfImage(Struct):
    """An ``image`` as the network receives it, as a data URI; ``snapshot`` is the title of the snapshot."""

    image: str
    snapshot: str
    milliseconds: float


class InspectedLayers(OfImage):
    """The activations and weights of layers for an image."""

    layers: list[dict[str, Any]]


class Explanation(OfImage):
    """A heat map of the pixels that an output depends on."""

    heat_map: dict[str, Any]


class LayerChoices(Struct):
    """The layers that can be inspected, those with ``maps``, the default one of these, and the outputs."""

    layers: list[Layer]
    maps: list[str]
    default: str
    outputs: list[str]


class SnapshotFilters(Struct):
    """The filters of a snapshot; ``snapshot`` is the prefix of its files."""

    epoch: str
    snapshot: str
    picture: dict[str, Any]
    statistics: dict[str, Any]


class Filters(Struct):
    """The filters of the first convolution in several snapshots; ``shape`` is the one of its kernel."""

    layer: str
    shape: list[int]
    filters: list[SnapshotFilters]
