"""The configuration of a training's steps: devices, batches, precision, and XLA."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, Warned
from digits.data.sources.plan import count_of
from digits.worker.failure import UserFault
from digits.worker.gang.gang import ALONE, Gang
from digits.worker.gang.share import Share, bounds

# Overrides the number of threads of an operation.
_THREADS_VARIABLE = "TF_NUM_INTRAOP_THREADS"
_GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeviceConfig:
    """How the steps of a training run.

    ``devices`` are TensorFlow's device names; the weights are on ``weights_device``, or the first device if it is
    empty. A step consists of ``batches`` batches of ``batch_size`` records. ``precision`` is
    Keras' dtype policy. ``compiled`` steps are compiled by XLA. The workers of ``gang`` share each batch,
    and average their gradients in each step, or their weights after ``averaging_interval`` steps if that is above 1.
    With ``synchronized_batch_norm``, they normalize by the records of all workers.
    """

    devices: tuple[str, ...] = ("",)
    weights_device: str = ""
    batch_size: int = recipes.DEFAULT_BATCH_SIZE
    batches: int = 1
    precision: recipes.Precision = "float32"
    compiled: bool = False
    gang: Gang = ALONE
    averaging_interval: int = 1
    synchronized_batch_norm: bool = False

    def share(self, blends: bool) -> Share | None:
        """The records of a step that this worker computes, if there are several; ``blends`` is that of `Share`."""
        if self.gang.workers == 1:
            return None
        first, last = bounds(self.batch_size, self.gang.rank, self.gang.workers)
        return Share(first * self.batches, last * self.batches, self.batch_size * self.batches, blends)

    @property
    def scales_loss(self) -> bool:
        """Whether the loss must be scaled, because small gradients underflow in this precision."""
        return self.precision == "mixed_float16"

    def supported_by(self, tower: Any) -> DeviceConfig:
        """This configuration, on one device if ``tower`` sets disableAutoDataParallelism.

        Raises UserFault if several workers share its batches.
        """
        if not getattr(tower, "disableAutoDataParallelism", False):
            return self
        if self.gang.workers > 1:
            raise UserFault(
                f"{self.gang.workers} workers cannot train this network: it sets disableAutoDataParallelism, so its "
                "batches cannot be divided.",
                "Train with one worker.",
            )
        return dataclasses.replace(self, devices=self.devices[:1])


def batch_size(recipe: recipes.Train) -> int:
    """The number of records in a batch: that of ``recipe``, or the default."""
    return recipe.batch_size or recipes.DEFAULT_BATCH_SIZE


def check_division(size: int, workers: int) -> None:
    """Raise UserFault if a batch of ``size`` records has none for some of the ``workers``."""
    if size < workers:
        raise UserFault(
            f"A batch of {count_of(size, 'record')} cannot be divided among {workers} workers.",
            "Choose a larger batch size or fewer workers.",
        )


def limit_threads(threads: int) -> None:
    """Compute each operation with this many threads, unless the environment sets their number.

    Must be called before TensorFlow runs any operation.
    """
    if not os.environ.get(_THREADS_VARIABLE):
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def configure(recipe: recipes.Train, events: EventLog, gang: Gang = ALONE) -> tuple[DeviceConfig, list[str]]:
    """Configure TensorFlow for the devices of ``recipe``, and for this worker of ``gang``.

    Returns the configuration of the steps and the driver's indexes or UUIDs of the GPUs in use. Must be called before
    TensorFlow runs any operation. Raises UserFault for unknown settings.
    """
    size = batch_size(recipe)
    check_division(size, gang.workers)
    gpus = _choose_gpus(recipe, events)
    if gang.neighbors > 1 and not gpus:
        limit_threads(max(1, len(os.sched_getaffinity(0)) // gang.neighbors))
    devices = tuple(device.name for device in tf.config.list_logical_devices("GPU" if gpus else "CPU"))
    devices = devices[: size // gang.workers]  # every device computes at least one record
    if recipe.synchronized_batch_norm and len(devices) > 1:
        raise UserFault(
            f"Batch normalization cannot be synchronized with {len(devices)} GPUs per worker.",
            "Choose as many workers as GPUs, or do not synchronize it.",
        )
    central = recipe.weights_on == "cpu" and len(devices) > 1
    # Compiled steps of several GPUs have not been measured.
    compiled = bool(gpus) and len(devices) == 1 if recipe.xla is None else recipe.xla
    if compiled and central:
        compiled = False
        report_no_xla(recipe, events, "it needs the weights on the GPUs")
    config = DeviceConfig(
        devices=devices,
        weights_device="/device:CPU:0" if central else "",
        batch_size=size,
        batches=recipe.batch_accumulation,
        precision=recipe.precision,
        compiled=compiled,
        gang=gang,
        averaging_interval=recipe.averaging_interval if gang.workers > 1 else 1,
        synchronized_batch_norm=recipe.synchronized_batch_norm,
    )
    return config, gpus


def report_no_xla(recipe: recipes.Train, events: EventLog, reason: str) -> None:
    """Log that the network is trained without XLA; warn if the recipe requests XLA."""
    message = f"The network is trained without XLA: {reason}."
    log.info(message)
    if recipe.xla:
        events.append(Warned(message))


def _choose_gpus(recipe: recipes.Train, events: EventLog) -> list[str]:
    """Hide all GPUs from TensorFlow except those of this process; return the driver's names of those in use.

    They are the ones in the environment, which the supervisor or the scheduler of a cluster has chosen: the recipe
    lists those of all workers on this machine, and on a cluster only their number.
    """
    wanted = chosen = [device for device in recipe.devices if device.lower() != "cpu"]
    present = tf.config.list_physical_devices("GPU")
    assigned = os.environ.get(_GPUS_VARIABLE)
    if assigned is not None:
        wanted = [gpu.strip() for gpu in assigned.split(",") if gpu.strip()][: len(chosen)]
    elif wanted and len(present) > len(wanted) and max(map(int, wanted)) < len(present):
        present = [present[int(index)] for index in wanted]
    if not wanted or not present:
        if chosen:
            events.append(Warned("TensorFlow sees no GPU; the network is trained on the CPU."))
        tf.config.set_visible_devices([], "GPU")
        return []
    if len(wanted) > len(present):
        events.append(Warned(f"TensorFlow sees {len(present)} of the {len(wanted)} chosen GPUs."))
    present = present[: len(wanted)]
    tf.config.set_visible_devices(present, "GPU")
    for gpu in present:
        _limit_memory(gpu, recipe.gpu_memory_mb)
    return wanted[: len(present)]


def _limit_memory(gpu: tf.config.PhysicalDevice, megabytes: int | None) -> None:
    """Allocate the GPU's memory as needed, up to ``megabytes`` if that is given."""
    if megabytes is None:
        tf.config.experimental.set_memory_growth(gpu, True)
        return
    # Without this, TensorFlow allocates the whole limit at once.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)
    tf.config.set_logical_device_configuration(gpu, [limit])
