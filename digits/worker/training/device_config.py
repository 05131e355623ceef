"""How the steps of a training run: on which devices, how many batches a step, in which precision."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, Warned

DEFAULT_BATCH_SIZE = 16
PRECISIONS: dict[recipes.Precision, tf.DType] = {
    "float32": tf.float32,
    "mixed_float16": tf.float16,
    "mixed_bfloat16": tf.bfloat16,
}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Execution:
    """``devices`` are TensorFlow's names; the weights lie on ``weights_device``, or the first of them.

    ``batches`` batches of ``batch_size`` records make a step. ``compiled`` steps go through XLA.
    """

    devices: tuple[str, ...] = ("",)
    weights_device: str = ""
    batch_size: int = DEFAULT_BATCH_SIZE
    batches: int = 1
    precision: recipes.Precision = "float32"
    compiled: bool = False

    @property
    def compute_type(self) -> tf.DType:
        """The type in which the network computes; its weights are float32 always."""
        return PRECISIONS[self.precision]

    @property
    def scales_loss(self) -> bool:
        """Whether small gradients would vanish in this precision."""
        return self.compute_type == tf.float16

    def wanted_by(self, tower: Any) -> Execution:
        """This, on one device if the network of ``tower`` says disableAutoDataParallelism."""
        if not getattr(tower, "disableAutoDataParallelism", False):
            return self
        return dataclasses.replace(self, devices=self.devices[:1])


def prepare(recipe: recipes.Train, events: EventLog) -> tuple[Execution, list[int]]:
    """Make TensorFlow use the devices of ``recipe``, and say how; also the driver's indexes of GPUs.

    To be called before TensorFlow does anything else. Raises UserFault.
    """
    gpus = _choose_gpus(recipe, events)
    keras.config.set_dtype_policy(recipe.precision)
    devices = tuple(device.name for device in tf.config.list_logical_devices("GPU" if gpus else "CPU"))
    batch_size = recipe.batch_size or DEFAULT_BATCH_SIZE
    devices = devices[:batch_size]  # every device computes a record at least
    central = recipe.strategy == "central" and len(devices) > 1
    compiled = bool(gpus) if recipe.xla is None else recipe.xla
    if compiled and len(devices) > 1:
        compiled = False
        tell_without_xla(recipe, events, "it works on one device only")
    execution = Execution(
        devices=devices,
        weights_device="/device:CPU:0" if central else "",
        batch_size=batch_size,
        batches=recipe.batch_accumulation,
        precision=recipe.precision,
        compiled=compiled,
    )
    return execution, gpus


def tell_without_xla(recipe: recipes.Train, events: EventLog, reason: str) -> None:
    """Say that the network is trained without XLA: as a warning if the recipe asks for it, else in the log."""
    message = f"The network is trained without XLA: {reason}."
    log.info(message)
    if recipe.xla:
        events.append(Warned(message))


def _choose_gpus(recipe: recipes.Train, events: EventLog) -> list[int]:
    """Make TensorFlow see the recipe's GPUs only; the driver's indexes of those that are used."""
    wanted = [int(device) for device in recipe.devices if device.lower() != "cpu"]
    present = tf.config.list_physical_devices("GPU")
    if not wanted or not present:
        if wanted:
            events.append(Warned("TensorFlow sees no GPU; the network is trained on the CPU."))
        tf.config.set_visible_devices([], "GPU")
        return []
    if len(wanted) > len(present):
        events.append(Warned(f"TensorFlow sees {len(present)} of the {len(wanted)} chosen GPUs."))
    if len(present) > len(wanted) and max(wanted) < len(present):
        present = [present[index] for index in wanted]  # nobody narrowed the choice down before
    present = present[: len(wanted)]
    tf.config.set_visible_devices(present, "GPU")
    for gpu in present:
        _limit_memory(gpu, recipe.gpu_memory_mb)
    return wanted[: len(present)]


def _limit_memory(gpu: tf.config.PhysicalDevice, megabytes: int | None) -> None:
    """Let the use of the GPU's memory grow as it is needed, or up to ``megabytes``."""
    if megabytes is None:
        tf.config.experimental.set_memory_growth(gpu, True)
        return
    # The limit alone would be taken whole, and at once.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)
    tf.config.set_logical_device_configuration(gpu, [limit])
