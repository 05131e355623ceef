"""Event files for TensorBoard: scalars, histograms, images, texts, and the network's graph."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core.files import sync_file, sync_folder
from digits.worker.network.summaries import HISTOGRAM, TEXT, Recorded
from digits.worker.network.variables import MODEL_SCOPE

v1 = tf.compat.v1

log = logging.getLogger(__name__)

_FILE_VERSION = "brain.Event:2"
_MAX_BINS = 64

# Time without writing after the disk was full, in seconds.
FULL_SECONDS = 60.0


class TensorBoardLog:
    """One run: a folder with one event file. A context manager; every write reaches the file."""

    def __init__(self, folder: Path, resumed: int | None = None, is_silent: bool = False) -> None:
        """Open the log in ``folder``; ``resumed`` invalidates the existing points of later steps.

        A silent log writes nothing.
        """
        self._is_silent = is_silent
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._files, self._full_until = folder, 0, 0.0
        self._writer: Any = None
        start = []
        if resumed is not None:
            session = v1.SessionLog(status=v1.SessionLog.START)
            start = [v1.Event(wall_time=time.time(), step=resumed + 1, session_log=session)]
        self._write(*start)

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def sync(self) -> None:
        """Make the log durable; log a warning if that fails."""
        if self._writer is not None:
            try:
                sync_file(self._path)
            except OSError as error:
                log.warning("TensorBoard's log could not be synced: %s", error)

    def scalars(self, rows: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Write points of charts: steps, and values by tag."""
        now, events = time.time(), []
        for step, row in rows:
            values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in row.items()]
            events.append(v1.Event(wall_time=now, step=step, summary=v1.Summary(value=values)))
        self._write(*events)

    def pictures(self, step: int, pictures: Sequence[tuple[Recorded, Any]]) -> None:
        """Write the histograms, images and texts of a network, with their values in ``step``."""
        values: list[Any] = []
        for item, value in pictures:
            if item.type == HISTOGRAM:
                values.append(v1.Summary.Value(tag=item.name, histo=_counted(spread(value).numpy())))
            elif item.type == TEXT:
                values += _texts(item, value)
            else:
                values += _images(item, value)
        self._summary(step, values)

    def spreads(self, step: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write histograms computed by `spread`, float64 [5 + bins], by tag."""
        self._summary(
            step, [v1.Summary.Value(tag=tag, histo=_counted(value)) for tag, value in values.items()]
        )

    def graph(self, graph: Any) -> None:
        """Write the graph of a network, a GraphDef."""
        self._write(v1.Event(wall_time=time.time(), graph_def=graph.SerializeToString()))

    def _summary(self, step: int, values: list[Any]) -> None:
        if values:
            self._write(v1.Event(wall_time=time.time(), step=step, summary=v1.Summary(value=values)))

    def _write(self, *events: Any) -> None:
        if self._is_silent or (self._writer is None and time.monotonic() < self._full_until):
            return
        try:
            if self._writer is None:
                self._open()
            for event in events:
                self._writer.write(event.SerializeToString())
            self._writer.flush()
        except tf.errors.ResourceExhaustedError as error:
            # The disk is full and these points are lost. Later points go to a new file, because readers
            # stop at an incomplete record.
            log.warning("TensorBoard's log could not be written: %s", error.message)
            self._full_until = time.monotonic() + FULL_SECONDS
            self._close()

    def _open(self) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{self._files}"
        self._files += 1
        self._path = self._folder / name
        self._writer = tf.io.TFRecordWriter(str(self._path))
        version = v1.Event(wall_time=time.time(), file_version=_FILE_VERSION)
        self._writer.write(version.SerializeToString())
        sync_folder(self._folder)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(tf.errors.ResourceExhaustedError):
                writer.close()


def readable_graph(function: Any) -> Any:
    """The GraphDef of a traced function, with its variables under their own names.

    Without the scope of the model, so that TensorBoard opens with its layers rather than with one closed box.
    """
    variables = {}
    for outer, inner in function.graph.captures:
        variable = next((item for item in function.graph.variables if item.handle is outer), None)
        if variable is not None:
            variables[inner.op.name] = variable.name.removesuffix(":0")
    graph = v1.GraphDef()
    graph.CopyFrom(function.graph.as_graph_def())
    full = {node.name: variables.get(node.name, node.name) for node in graph.node}
    short = {name: words.removeprefix(f"{MODEL_SCOPE}/") for name, words in full.items()}
    names = {name: full[name] if words in full else words for name, words in short.items()}
    for node in graph.node:
        node.input[:] = [_renamed(name, names) for name in node.input]
        if node.name in variables:
            node.op = "VarHandleOp"
        node.name = names[node.name]
        for attribute in [name for name in node.attr if name.startswith("_")]:
            if attribute != "_output_shapes":
                del node.attr[attribute]
    return graph


def _renamed(name: str, names: dict[str, str]) -> str:
    control = "^" if name.startswith("^") else ""
    node, colon, output = name.removeprefix("^").partition(":")
    return f"{control}{names[node]}{colon}{output}"


def spread(tensor: tf.Tensor) -> tf.Tensor:
    """The histogram of the finite values of a tensor, float64: min, max, count, sum, sum of squares, bins."""
    values = tf.cast(tf.reshape(tensor, [-1]), tf.float64)
    values = tf.boolean_mask(values, tf.math.is_finite(values))
    ends = tf.stack([tf.reduce_min(values), tf.reduce_max(values)])
    # Bins need a width; without values, the ends are infinite.
    wide = tf.where(ends[1] > ends[0], ends, tf.constant([0.0, 1.0], tf.float64))
    shares = (values - wide[0]) / (wide[1] - wide[0])
    places = tf.clip_by_value(tf.cast(shares * _MAX_BINS, tf.int32), 0, _MAX_BINS - 1)
    bins = tf.math.bincount(places, minlength=_MAX_BINS, dtype=tf.float64)
    sums = tf.stack([tf.reduce_sum(values), tf.reduce_sum(values * values)])
    return tf.concat([ends, [tf.cast(tf.size(values), tf.float64)], sums, bins], 0)


def _counted(spread_values: NDArray[Any]) -> Any:
    least, largest, count, total, squares = spread_values[:5].tolist()
    if not count:
        return v1.HistogramProto()
    edges = np.linspace(least, largest, _MAX_BINS + 1)[1:]
    bins = spread_values[5:]
    if largest == least:
        edges, bins = np.array([largest]), np.array([count])
    return v1.HistogramProto(
        min=least, max=largest, num=count, sum=total, sum_squares=squares, bucket_limit=edges, bucket=bins
    )


def _images(item: Recorded, value: Any) -> list[Any]:
    images = np.asarray(value)
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        return []  # TensorFlow 1 accepted such summaries until they were written
    several = min(item.max_images, len(images)) > 1
    return [
        v1.Summary.Value(
            tag=f"{item.name}/image/{number}" if several else f"{item.name}/image", image=_image(pixels)
        )
        for number, pixels in enumerate(images[: item.max_images])
    ]


def _texts(item: Recorded, value: Any) -> list[Any]:
    texts = np.asarray(value, object)
    if not all(isinstance(text, (bytes, str)) for text in texts.flat):
        return []  # as for images
    plugin = v1.SummaryMetadata.PluginData(plugin_name="text")
    tensor = tf.make_tensor_proto(texts, tf.string)
    return [v1.Summary.Value(tag=item.name, metadata=v1.SummaryMetadata(plugin_data=plugin), tensor=tensor)]


def _image(pixels: NDArray[Any]) -> Any:
    from PIL import Image

    shown = _as_bytes(pixels)
    file = io.BytesIO()
    Image.fromarray(shown[:, :, 0] if shown.shape[2] == 1 else shown).save(file, "PNG")
    height, width, channels = shown.shape
    return v1.Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
    )


def _as_bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert pixels of any dtype to uint8: scaled to the largest value; with negative values, 0 becomes gray."""
    if pixels.dtype == np.uint8:
        return pixels
    values = np.nan_to_num(np.asarray(pixels, np.float64))
    largest = np.abs(values).max() or 1.0
    shown = values * (255 / largest) if values.min() >= 0 else 127.5 + values * (127.5 / largest)
    return shown.astype(np.uint8)
