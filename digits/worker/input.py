"""Batches for the network: from the shards of a dataset to float32 tensors.

The order of the records is a pure function of (seed, epoch), whether the decoded
images are kept in memory or read again for every batch. So a run can be repeated,
and taken up again in the middle of an epoch.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil
import tensorflow as tf
from numpy.typing import NDArray

from digits.dataset import manifest as manifests
from digits.dataset.manifest import MEAN_ARRAY_FILE, Manifest
from digits.dataset.records import SplitReader
from digits.files import UnreadableFile
from digits.worker.failure import UserFault

# The share of the free memory that decoded images may take.
RESIDENT_SHARE = 0.4

_DECODE_BYTES = 8 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024 * 1024

Order = Iterator[NDArray[np.int64]]
Chunk = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def training_order(count: int, batch: int, seed: int, shuffle: bool, first_step: int = 0) -> Order:
    """Indexes of ``batch`` records for each step from ``first_step`` on, without end.

    Epoch after epoch, each record once; a batch may hold the end of one epoch and
    the beginning of the next.
    """
    epoch, skip = divmod(first_step * batch, count)
    rest = _epoch_order(count, seed, epoch, shuffle)[skip:]
    while True:
        while len(rest) < batch:
            epoch += 1
            rest = np.concatenate([rest, _epoch_order(count, seed, epoch, shuffle)])
        yield rest[:batch]
        rest = rest[batch:]


def evaluation_order(count: int, batch: int) -> Order:
    """Indexes of each record once, in their order; the last batch may be smaller."""
    for start in range(0, count, batch):
        yield np.arange(start, min(start + batch, count))


def _epoch_order(count: int, seed: int, epoch: int, shuffle: bool) -> NDArray[np.int64]:
    if not shuffle:
        return np.arange(count)
    return np.random.Generator(np.random.Philox([seed, epoch])).permutation(count)


@dataclass(frozen=True)
class Preparation:
    """What is done to images before the network sees them: the mean is taken off, then they are cut.

    Training cuts windows of ``crop`` pixels at random places, all else the central
    one; what lies outside of the image is zero.
    """

    mean: NDArray[np.float32]
    crop: int | None
    image_shape: tuple[int, int, int]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of what the network gets."""
        height, width, channels = self.image_shape
        return (self.crop, self.crop, channels) if self.crop else (height, width, channels)

    def __call__(self, images: tf.Tensor, window_seed: tf.Tensor | None = None) -> tf.Tensor:
        """uint8 [N, H, W, C] as float32 of `shape`. With ``window_seed``, int32 [2], at random windows."""
        batch = tf.cast(images, tf.float32)
        if np.any(self.mean):
            batch = batch - self.mean
        if self.crop is None:
            return batch
        if window_seed is None or min(self.image_shape[:2]) < self.crop:
            return tf.image.resize_with_crop_or_pad(batch, self.crop, self.crop)
        return self._random_windows(batch, window_seed)

    def _random_windows(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        count = tf.shape(batch)[0]
        for axis, side in ((1, self.image_shape[0]), (2, self.image_shape[1])):
            starts = tf.random.stateless_uniform([count], seed + axis, 0, side - self.crop + 1, tf.int32)
            places = starts[:, None] + tf.range(self.crop)[None, :]
            batch = tf.gather(batch, places, axis=axis, batch_dims=1)
        return tf.ensure_shape(batch, (None, *self.shape))


def load_manifest(dataset: Path) -> Manifest:
    """What is in the dataset job's folder ``dataset``; raises UserFault when it is not finished."""
    try:
        return manifests.load(dataset)
    except UnreadableFile as error:
        raise UserFault(
            f"The dataset cannot be read: {error}",
            "Wait until the dataset is finished, or create it anew if it failed.",
        ) from error


def preparation(manifest: Manifest, dataset: Path, mean: str, crop: int | None) -> Preparation:
    """The preparation for a dataset, with its mean ``image``, ``pixel`` or ``none``; raises UserFault."""
    return Preparation(_mean(manifest, dataset, mean), crop or None, manifest.shape)


def _mean(manifest: Manifest, dataset: Path, mean: str) -> NDArray[np.float32]:
    if mean == "none":
        return np.zeros(1, np.float32)
    if mean == "pixel":
        return np.asarray(manifest.mean_pixel, np.float32)
    if mean != "image":
        raise UserFault(f"The mean {mean!r} is not one of image, pixel and none.")
    try:
        image = np.load(dataset / MEAN_ARRAY_FILE, allow_pickle=False).astype(np.float32)
    except (OSError, ValueError) as error:
        raise UserFault("The dataset's mean image cannot be read.", "Train without mean.") from error
    if image.shape != manifest.shape:
        raise UserFault(f"The dataset's mean image has shape {image.shape}, its images {manifest.shape}.")
    return image


class Feed(Protocol):
    """Hands out the batches of an order, several at a time."""

    def take(self, batches: int) -> Chunk:
        """Images, labels, and the positions [batches, size] of the next batches in them."""

    def close(self) -> None: ...


class Records:
    """The images and labels of one split: in memory if they fit, else read when they are asked for."""

    def __init__(
        self, dataset: Path, manifest: Manifest, split: str, budget_bytes: float | None = None
    ) -> None:
        self._reader = SplitReader(dataset, manifest.splits[split])
        self._decoder = _Decoder(manifest)
        self.labels = self._reader.labels
        budget = free_bytes() * RESIDENT_SHARE if budget_bytes is None else budget_bytes
        self.is_resident = len(self) * self._decoder.image_bytes <= budget
        self._images: tf.Tensor | None = None

    def __len__(self) -> int:
        return len(self._reader)

    def feed(self, order: Order) -> Feed:
        """A feed of the records in ``order``."""
        if not self.is_resident:
            return _StreamedFeed(self._reader, self._decoder, self.labels, order)
        if self._images is None:
            self._images = self._decoder.decode_all(self._reader)
        return _ResidentFeed(self._images, self.labels, order)

    def close(self) -> None:
        self._reader.close()
        self._images = None


def free_bytes() -> int:
    """Memory that can be used without swapping."""
    return int(psutil.virtual_memory().available)


class _Decoder:
    """Decodes the payloads of records to uint8 [N, H, W, C]."""

    def __init__(self, manifest: Manifest) -> None:
        self._shape = manifest.shape
        self._encoding = manifest.encoding
        self.image_bytes = int(np.prod(self._shape))
        self.decode = tf.function(
            self._decode, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
        )

    def decode_all(self, reader: SplitReader) -> tf.Tensor:
        """All images of a split."""
        images = np.empty((len(reader), *self._shape), np.uint8)
        size = max(1, min(1024, _DECODE_BYTES // self.image_bytes))
        payloads = tf.data.TFRecordDataset([str(path) for path in reader.shards]).batch(size)
        options = tf.data.Options()
        options.threading.max_intra_op_parallelism = 1
        decoded = payloads.map(self._decode, tf.data.AUTOTUNE, deterministic=True).with_options(options)
        start = 0
        for batch in decoded:
            images[start : start + len(batch)] = batch
            start += len(batch)
        return tf.convert_to_tensor(images)

    def _decode(self, payloads: tf.Tensor) -> tf.Tensor:
        feature = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_example(payloads, feature)["image/encoded"]
        if self._encoding == "none":
            flat = tf.io.decode_raw(encoded, tf.uint8, fixed_length=None)
            return tf.reshape(flat, (-1, *self._shape))
        return tf.map_fn(
            self._decode_image, encoded, fn_output_signature=tf.TensorSpec(self._shape, tf.uint8)
        )

    def _decode_image(self, data: tf.Tensor) -> tf.Tensor:
        channels = self._shape[2]
        if self._encoding == "png":
            image = tf.io.decode_png(data, channels)
        else:
            # As exact as the decoder that inference reads its images with.
            image = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(image, self._shape)


class _ResidentFeed:
    def __init__(self, images: tf.Tensor, labels: NDArray[np.int32], order: Order) -> None:
        self._images = images
        self._labels = tf.constant(labels, tf.int64)
        self._order = order

    def take(self, batches: int) -> Chunk:
        positions = np.stack(list(itertools.islice(self._order, batches)))
        return self._images, self._labels, tf.constant(positions, tf.int64)

    def close(self) -> None:
        pass


class _StreamedFeed:
    """Reads and decodes ahead in a thread."""

    def __init__(
        self, reader: SplitReader, decoder: _Decoder, labels: NDArray[np.int32], order: Order
    ) -> None:
        self._reader, self._decoder, self._labels, self._order = reader, decoder, labels, order
        self._queue: queue.Queue[Any] = queue.Queue()
        self._room = threading.Semaphore(0)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_ahead, name="records", daemon=True)
        first = next(order, np.arange(0))
        self._order = itertools.chain([first], order)
        batches_ahead = max(2, _AHEAD_BYTES // max(1, len(first) * decoder.image_bytes))
        self._room.release(batches_ahead)
        self._thread.start()

    def take(self, batches: int) -> Chunk:
        parts = [self._next() for _ in range(batches)]
        images = tf.concat([part[0] for part in parts], 0) if batches > 1 else parts[0][0]
        labels = np.concatenate([part[1] for part in parts])
        positions = np.arange(len(labels)).reshape(batches, -1)
        return images, tf.constant(labels, tf.int64), tf.constant(positions, tf.int64)

    def close(self) -> None:
        self._closed.set()
        self._room.release()
        self._thread.join()

    def _next(self) -> tuple[tf.Tensor, NDArray[np.int32]]:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        self._room.release()
        return item

    def _read_ahead(self) -> None:
        try:
            for indexes in self._order:
                self._room.acquire()
                if self._closed.is_set():
                    return
                payloads = tf.constant([self._reader.payload(int(index)) for index in indexes])
                self._queue.put((self._decoder.decode(payloads), self._labels[indexes]))
            self._queue.put(IndexError("the order has no more batches"))
        except Exception as error:  # told to the thread that waits for a batch
            self._queue.put(error)
