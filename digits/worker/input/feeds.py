"""Input pipeline: from the shards of a dataset to float32 batches.

The order of the records is a pure function of (seed, epoch), whether the decoded images are cached in memory or
streamed from disk. A run is therefore reproducible and can be resumed in the middle of an epoch. Random
augmentation depends only on (seed, step).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core.events import InputPrepared
from digits.core.files import UnreadableFile
from digits.core.machine import file_systems
from digits.core.recipe import Augment
from digits.core.splits import Split
from digits.data import manifest as manifests
from digits.data.arrays import load_array
from digits.data.manifest import MEAN_ARRAY_FILE, Manifest
from digits.data.records.records import SplitReader
from digits.worker.failure import UserFault
from digits.worker.input import augment, memory, target_tensors
from digits.worker.input.damage import damaged_records, reporting_damage
from digits.worker.input.preparation import GATHERED, Chunk, Preparation
from digits.worker.input.target_tensors import tensors_of

RESIDENT, STREAMED = "resident", "streamed"

# Small images are decoded in groups of this size.
_GROUP = 16
_SMALL_IMAGE_BYTES = 64 * 64 * 3
_DECODE_BYTES = 8 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024 * 1024

Order = Iterator[NDArray[np.int64]]


def training_order(
    count: int,
    batch: int,
    seed: int,
    shuffle: bool,
    first_step: int = 0,
    balanced: NDArray[np.int32] | None = None,
) -> Order:
    """Yield the indexes of the records of each step, int64 [batch], from ``first_step`` on, endlessly.

    An epoch contains each record once; a batch may contain the end of one epoch and the beginning of the next. If
    ``balanced`` contains the groups of all records, an epoch contains the same number of records of each group,
    shuffled: records of rare groups are repeated, and frequent groups are sampled differently in each epoch.
    """

    def order_of(epoch: int) -> NDArray[np.int64]:
        if balanced is not None:
            return _balanced_epoch(balanced, seed, epoch)
        return _epoch_order(count, seed, epoch, shuffle)

    epoch, skip = divmod(first_step * batch, count)
    rest = order_of(epoch)[skip:]
    while True:
        while len(rest) < batch:
            epoch += 1
            rest = np.concatenate([rest, order_of(epoch)])
        yield rest[:batch]
        rest = rest[batch:]


def evaluation_order(count: int, batch: int) -> Order:
    """Yield the indexes of all records, in order, in batches of `evaluation_sizes`."""
    start = 0
    for size in evaluation_sizes(count, batch):
        yield np.arange(start, start + size)
        start += size


def evaluation_sizes(count: int, batch: int) -> list[int]:
    """Return the batch sizes for evaluating ``count`` records.

    The last batch may be smaller. A single remaining record is added to the batch before it, because networks that
    call ``tf.squeeze(x)`` require more than one.
    """
    full, rest = divmod(count, batch)
    sizes = [batch] * full + [rest] * (rest > 0)
    if rest == 1 and full:
        sizes[-2:] = [batch + 1]
    return sizes


def _epoch_order(count: int, seed: int, epoch: int, shuffle: bool) -> NDArray[np.int64]:
    if not shuffle:
        return np.arange(count)
    return np.random.Generator(np.random.Philox([seed, epoch])).permutation(count)


def _balanced_epoch(groups: NDArray[np.int32], seed: int, epoch: int) -> NDArray[np.int64]:
    chance = np.random.Generator(np.random.Philox([seed, epoch, 1]))
    present = chance.permutation(np.unique(groups))
    each, more = divmod(len(groups), len(present))
    parts = []
    for index, group in enumerate(present):
        members = np.flatnonzero(groups == group)
        wanted = each + (index < more)
        rounds, rest = divmod(wanted, len(members))
        parts += [members] * rounds + [chance.permutation(members)[:rest]]
    return chance.permutation(np.concatenate(parts))


# Alignment of tensor buffers, in bytes.
_ALIGNMENT = 64


def load_manifest(dataset: Path) -> Manifest:
    """Return the manifest of the dataset job in the folder ``dataset``. Raises UserFault if it is not finished."""
    try:
        return manifests.load(dataset)
    except UnreadableFile as error:
        raise UserFault(
            f"The dataset cannot be read: {error}",
            "Wait until the dataset is finished, or create it again if it failed.",
        ) from error


def read_some(dataset: Path, manifest: Manifest, most: int) -> tuple[list[int], tf.Tensor, tf.Tensor]:
    """Return the numbers of at most ``most`` evenly spaced training records, their images and their targets.

    Raises UserFault if there are none, or if they are damaged.
    """
    with reporting_damage(dataset), SplitReader(dataset, manifest.splits["train"]) as reader:
        if not len(reader):
            raise UserFault("The dataset has no training records.")
        numbers = np.linspace(0, len(reader) - 1, min(most, len(reader))).astype(int).tolist()
        payloads = [reader.payload(number) for number in numbers]
    return numbers, *Decoder(manifest).decode(tf.constant(payloads))


def preparation(
    manifest: Manifest,
    dataset: Path,
    mean: str,
    crop: int | None,
    augmentation: Augment = Augment(),  # noqa: B008 - immutable
    class_weights: NDArray[np.float32] | None = None,
) -> Preparation:
    """Return the preprocessing for a dataset; ``mean`` is ``image``, ``pixel`` or ``none``. Raises UserFault."""
    tensors = tensors_of(manifest.target)
    augment.check(augmentation, manifest.shape, tensors.in_image)
    return Preparation(
        _mean(manifest, dataset, mean),
        crop or None,
        manifest.shape,
        augmentation,
        class_weights,
        tensors,
        manifest.dtype,
    )


def balance(
    mode: str, groups: NDArray[np.int32], manifest: Manifest
) -> tuple[NDArray[np.float32] | None, NDArray[np.int32] | None]:
    """Return the class weights and the groups for balanced sampling according to the recipe's ``balance``, or None
    for each.

    Raises UserFault if the dataset does not support it.
    """
    if mode == "class_weights":
        if not manifest.target.classes:
            raise UserFault("Class weights require a dataset with classes.", "Choose oversampling instead.")
        return target_tensors.class_weights(groups, len(manifest.groups)), None
    if mode == "sampling":
        if not manifest.groups:
            raise UserFault(
                "The records of this dataset have no groups to balance.", "Train without balancing."
            )
        return None, groups
    if mode != "none":
        raise UserFault(f"Unknown class balancing {mode!r}: use none, class_weights or sampling.")
    return None, None


def _mean(manifest: Manifest, dataset: Path, mean: str) -> NDArray[np.float32]:
    if mean == "none":
        return np.zeros(1, np.float32)
    if mean == "pixel":
        return np.asarray(manifest.mean_pixel, np.float32)
    if mean != "image":
        raise UserFault(f"Unknown mean subtraction {mean!r}: use image, pixel or none.")
    try:
        image = load_array(dataset / MEAN_ARRAY_FILE, below=dataset, shape=manifest.shape)
    except UnreadableFile as error:
        raise UserFault(
            f"The dataset's mean image cannot be read: {error}.", "Train without mean subtraction."
        ) from error
    return image.astype(np.float32)


class Feed(Protocol):
    """Provides the batches of an order, several at a time."""

    def take(self, batches: int) -> Chunk:
        """Return images, targets, and the positions [batches, size] of the next batches in them."""

    def close(self) -> None: ...


class Records:
    """Images and targets of one split: cached in memory if they fit, otherwise streamed from disk.

    Damaged files raise UserFault: missing and truncated ones at once, others when their records are read.
    """

    def __init__(
        self,
        dataset: Path,
        manifest: Manifest,
        split: Split,
        budget_bytes: float | None = None,
        taken: int = 0,
        decoder: Decoder | None = None,
    ) -> None:
        """``taken``: bytes this process reserved for other images; ignored if ``budget_bytes`` sets the budget.

        Splits that share a ``decoder`` trace it only once.
        """
        self._dataset, self._split = dataset, split
        with reporting_damage(dataset):
            self._reader = SplitReader(
                dataset, manifest.splits[split], is_remote=file_systems.is_network(dataset)
            )
        self._decoder = decoder or Decoder(manifest)
        self.groups = self._reader.groups
        self.bytes = len(self) * self._decoder.record_bytes
        self._claim: memory.Claim | None = None
        if budget_bytes is None:
            free_on_gpu = memory.free_gpu_bytes()  # before the claim, because the driver may hang
            self._claim = memory.Claim(self.bytes)
            self._memory = memory.budget(free_on_gpu, taken)
            if not self.is_resident:
                self._claim.end()
        else:
            self._memory = memory.Budget(budget_bytes, memory.free_bytes())
        self._decoded: tuple[tf.Tensor, tf.Tensor] | None = None

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def is_resident(self) -> bool:
        """Whether all images are cached in memory."""
        return self.bytes <= self._memory.budget

    @property
    def input_prepared(self) -> InputPrepared:
        """How the records reach the network, and the memory this was decided by."""
        return InputPrepared(
            split=self._split,
            how=RESIDENT if self.is_resident else STREAMED,
            records=len(self),
            bytes=self.bytes,
            budget_bytes=int(self._memory.budget),
            free_bytes=self._memory.free,
            place=self._memory.place,
        )

    def feed(self, order: Order) -> Feed:
        """Return a feed of the records in ``order``."""
        if not self.is_resident:
            return self.stream(order)
        if self._decoded is None:
            images, targets = self._decoder.allocate(len(self))
            self.end_claim()
            try:
                self._decoded = self._decoder.decode_all(self._reader.shards, images, targets)
            except tf.errors.OpError as error:
                raise self._explain(error) from None
        return _ResidentFeed(*self._decoded, order)

    def stream(self, order: Order) -> Feed:
        """Return a feed that reads records from disk when they are needed, even if all fit into memory."""
        return _StreamedFeed(self._reader, self._decoder, order, self._explain)

    def read(self, places: NDArray[np.int64]) -> Chunk:
        """Read the records at ``places`` from disk, as a chunk of one batch."""
        with contextlib.closing(self.stream(iter([places]))) as feed:
            return feed.take(1)

    def end_claim(self) -> None:
        """Leave the memory that the images would need to other trainings, unless it has been allocated."""
        if self._claim:
            self._claim.end()

    def close(self) -> None:
        self.end_claim()
        self._reader.close()
        self._decoded = None

    def _explain(self, error: Exception) -> Exception:
        """Return the error to raise after a failed read or decode: a UserFault if the records are damaged."""
        if isinstance(error, UnreadableFile):
            return damaged_records(self._dataset, error)
        if not isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            return error
        # TensorFlow does not name the file.
        for shard in range(len(self._reader.shards)):
            try:
                self._reader.verify(shard)
            except UnreadableFile as damage:
                return damaged_records(self._dataset, damage)
        if isinstance(error, tf.errors.DataLossError):
            return damaged_records(self._dataset, "a record does not match its checksum")
        return error


# Excluded from AutoGraph, which would convert it again in each process.
_as_written = tf.autograph.experimental.do_not_convert


class Decoder:
    """Decodes the payloads of records to images, uint8 or float32 [N, H, W, C], and targets [N, …]."""

    def __init__(self, manifest: Manifest) -> None:
        self._shape = manifest.shape
        self._dtype = manifest.dtype
        self._encoding = manifest.encoding
        self._target = manifest.target
        self._tensors = tensors_of(manifest.target)
        self.image_bytes = int(np.prod(self._shape)) * np.dtype(self._dtype).itemsize
        target_bytes = math.prod(self._target.shape) * np.dtype(self._target.decoded_dtype).itemsize
        self._pictures_bytes = [
            self.image_bytes,
            *([target_bytes] if self._target.decoded_dtype == "uint8" else []),
        ]
        self.record_bytes = self.image_bytes + (target_bytes if self._tensors.in_image else 0)
        self.decode = tf.function(
            self._decode, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
        )

    @property
    def device(self) -> str:
        """The device for decoded images: the first GPU if it can gather them, otherwise the CPU."""
        gpus = tf.config.list_logical_devices("GPU")
        is_for_any_device = all(any(size % width == 0 for width in GATHERED) for size in self._pictures_bytes)
        return gpus[0].name if gpus and is_for_any_device else "/device:CPU:0"

    def allocate(self, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return arrays for ``count`` images and targets, whose memory is in use from now on."""
        images = _allocate_aligned((count, *self._shape), self._dtype)
        return images, _allocate_aligned((count, *self._target.shape), self._target.decoded_dtype)

    def decode_all(
        self, shards: list[Path], images: NDArray[Any], targets: NDArray[Any]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Decode all images and targets of a split into the arrays of `allocate`; return them as tensors."""
        size = max(1, min(1024, _DECODE_BYTES // self.record_bytes))
        payloads = tf.data.TFRecordDataset([str(shard) for shard in shards]).batch(size)
        options = tf.data.Options()
        options.threading.max_intra_op_parallelism = 1
        decoded = payloads.map(self.decode, tf.data.AUTOTUNE, deterministic=True).with_options(options)
        start = 0
        for batch, values in decoded:
            images[start : start + len(batch)] = batch
            targets[start : start + len(batch)] = values
            start += len(batch)
        with tf.device(self.device):
            return tf.identity(tf.experimental.dlpack.from_dlpack(images.__dlpack__())), tf.constant(targets)

    @_as_written
    def _decode(self, payloads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        target = self._target
        features = {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            target.feature: self._tensors.feature(target),
        }
        parsed = tf.io.parse_example(payloads, features)
        values = self._tensors.decode(parsed[target.feature], target)
        return self._decode_images(parsed["image/encoded"]), values

    def _decode_images(self, encoded: tf.Tensor) -> tf.Tensor:
        if self._encoding == "none":
            flat = tf.io.decode_raw(encoded, self._dtype, fixed_length=None)
            return tf.reshape(flat, (-1, *self._shape))
        # An iteration of the loop takes longer than decoding a small image, but not so for a large one, for which
        # filling up the last group would be expensive.
        size = _GROUP if self.image_bytes <= _SMALL_IMAGE_BYTES else 1
        count = tf.shape(encoded)[0]
        filled = tf.concat([encoded, tf.repeat(encoded[-1:], -count % size)], 0)
        signature = tf.TensorSpec((size, *self._shape), tf.uint8)
        groups = tf.map_fn(self._decode_group, tf.reshape(filled, [-1, size]), fn_output_signature=signature)
        return tf.reshape(groups, [-1, *self._shape])[:count]

    @_as_written
    def _decode_group(self, encoded: tf.Tensor) -> tf.Tensor:
        return tf.stack([self._decode_image(data) for data in tf.unstack(encoded)])

    @_as_written
    def _decode_image(self, data: tf.Tensor) -> tf.Tensor:
        channels = self._shape[2]
        if self._encoding == "png":
            image = tf.io.decode_png(data, channels)
        else:
            # Exact DCT, as in the decoder used for inference.
            image = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(image, self._shape)


def _allocate_aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Allocate an array that TensorFlow can use as a tensor without copying; use all its pages."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    memory[:: mmap.PAGESIZE] = 0
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


class _ResidentFeed:
    def __init__(self, images: tf.Tensor, targets: tf.Tensor, order: Order) -> None:
        self._images, self._targets, self._order = images, targets, order

    def take(self, batches: int) -> Chunk:
        positions = np.stack(list(itertools.islice(self._order, batches)))
        return Chunk(self._images, self._targets, tf.constant(positions, tf.int64))

    def close(self) -> None:
        pass


class _StreamedFeed:
    """Reads and decodes ahead in a thread."""

    def __init__(
        self, reader: SplitReader, decoder: Decoder, order: Order, explain: Callable[[Exception], Exception]
    ) -> None:
        self._reader, self._decoder, self._explain = reader, decoder, explain
        self._queue: queue.Queue[Any] = queue.Queue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_ahead, name="records", daemon=True)
        first = next(order, np.arange(0))
        self._order = itertools.chain([first], order)
        batches_ahead = max(2, _AHEAD_BYTES // max(1, len(first) * decoder.record_bytes))
        self._memory = threading.Semaphore(batches_ahead)  # release(n) is a loop of n steps
        self._thread.start()

    def take(self, batches: int) -> Chunk:
        parts = [self._next() for _ in range(batches)]
        with tf.device(self._decoder.device):
            images = tf.concat([part[0] for part in parts], 0) if batches > 1 else parts[0][0]
        targets = tf.concat([part[1] for part in parts], 0)
        positions = np.arange(len(targets)).reshape(batches, -1)
        return Chunk(images, targets, tf.constant(positions, tf.int64))

    def close(self) -> None:
        self._closed.set()
        self._memory.release()
        self._thread.join()

    def _next(self) -> tuple[tf.Tensor, tf.Tensor]:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        self._memory.release()
        return item

    def _read_ahead(self) -> None:
        try:
            for indexes in self._order:
                self._memory.acquire()
                if self._closed.is_set():
                    return
                payloads = self._reader.payloads(indexes)
                with tf.device("/device:CPU:0"):  # keeps the GPU free for training steps
                    images, targets = self._decoder.decode(tf.constant(payloads))
                with tf.device(self._decoder.device):  # copied to a GPU while it computes the previous step
                    images = tf.identity(images)
                self._queue.put((images, targets))
            self._queue.put(IndexError("the order has no more batches"))
        except Exception as error:  # raised in the thread that waits for a batch
            self._queue.put(self._explain(error))
