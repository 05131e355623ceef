"""The functions of ``tf.summary`` for networks, which record tensors instead of writing files.

A network appends summaries to ``self.summaries``. A scalar becomes a chart, with a value in every step;
histograms, images and texts are computed only in steps that write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.worker.failure import UserFault

SCALAR, HISTOGRAM, IMAGE, TEXT = "scalar", "histogram", "image", "text"


@dataclass(frozen=True, eq=False)
class Recorded:
    """A summary of the network. ``tensor`` belongs to the graph in which it was made."""

    type: str
    name: str
    tensor: Any
    max_images: int = 3

    @property
    def chart(self) -> str:
        """The name of the chart: the last part of the summary's path."""
        return self.name.rsplit("/", 1)[-1]


class SummaryFunctions:
    """Stands in for the module ``tf.summary``."""

    def scalar(
        self, name: str, tensor: Any = None, collections: Any = None, family: Any = None, *, data: Any = None
    ) -> Recorded:
        return _record(SCALAR, name, data if tensor is None else tensor, collections, family)

    def histogram(
        self, name: str, values: Any = None, collections: Any = None, family: Any = None, *, data: Any = None
    ) -> Recorded:
        return _record(HISTOGRAM, name, data if values is None else values, collections, family)

    def image(
        self,
        name: str,
        tensor: Any = None,
        max_outputs: int = 3,
        collections: Any = None,
        family: Any = None,
        *,
        data: Any = None,
    ) -> Recorded:
        return _record(IMAGE, name, data if tensor is None else tensor, collections, family, int(max_outputs))

    def text(self, name: str, tensor: Any = None, collections: Any = None, *, data: Any = None) -> Recorded:
        return _record(TEXT, name, data if tensor is None else tensor, collections)

    def merge(self, inputs: Any) -> list[Recorded]:
        return list(inputs)

    def merge_all(self) -> None:
        """Return None, as TensorFlow does if no summary is in its collection."""

    class FileWriter:
        """Does nothing: DIGITS writes the event files itself."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    SummaryWriter = FileWriter


def _record(
    type: str, name: Any, tensor: Any, collections: Any, family: Any = None, max_images: int = 3
) -> Recorded:
    recorded = Recorded(type, f"{family}/{name}" if family else str(name), tensor, max_images)
    for collection in collections or ():
        tf.compat.v1.add_to_collection(collection, recorded)
    return recorded


def flatten(summaries: Any) -> list[Recorded]:
    """Flatten a list of summaries and merged summaries; other items are ignored."""
    recorded: list[Recorded] = []
    for item in summaries or []:
        if isinstance(item, Recorded):
            recorded.append(item)
        elif isinstance(item, (list, tuple)):
            recorded += flatten(item)
    return recorded


def charts(recorded: list[Recorded]) -> dict[str, tf.Tensor]:
    """A float32 scalar for every chart, by name; summaries with the same name are averaged."""
    groups: dict[str, list[tf.Tensor]] = {}
    for item in recorded:
        if item.type == SCALAR:
            groups.setdefault(item.chart, []).append(_number(item))
    return {name: tf.add_n(values) / len(values) for name, values in groups.items()}


def pictures(recorded: list[Recorded]) -> list[Recorded]:
    """The histograms, images and texts among ``recorded``."""
    return [item for item in recorded if item.type != SCALAR]


def _number(item: Recorded) -> tf.Tensor:
    tensor = tf.convert_to_tensor(item.tensor)
    if tensor.shape.rank not in (0, None) and tensor.shape.num_elements() != 1:
        raise UserFault(
            f"The summary {item.chart!r} is not a number: its shape is {tensor.shape}.",
            "Pass a scalar to tf.summary.scalar, for example tf.reduce_mean(...) of the values.",
        )
    return tf.cast(tf.reshape(tensor, []), tf.float32)
