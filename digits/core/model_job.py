"""The model job: one task that trains a network on a dataset."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from digits.core import snapshot_list
from digits.core.compute import LOCAL, Compute
from digits.core.errors import BadRequest
from digits.core.files import read_bytes
from digits.core.job import ID, DeviceRequest, Job
from digits.core.recipe import Train
from digits.core.resume_point import resume_point
from digits.core.snapshot_list import SnapshotList
from digits.core.status import Status
from digits.core.task import Task

NETWORK_FILE = "network.py"
TENSORBOARD_FOLDER = "tb"
_TRACE = re.compile(r"timeline_([0-9]{1,18})\.json", re.ASCII)
POOL = "training"
MAX_NETWORK_BYTES = 4 * 1024 * 1024
# The longest call of a network's code. Building the largest networks of Keras, such as EfficientNetV2-L, takes 11 s.
NETWORK_SECONDS = 120.0
DEVICE = r"cpu|next(:\d{1,3})?|\d{1,4}(,\d{1,4})*"


class ModelJob(Job, kw_only=True, eq=False):
    """Trains a network on the dataset ``dataset_id``; once done, it is the trained model.

    The ``dataset_id`` of an imported model, which was trained elsewhere, is its own id: its folder also contains the
    description of the images and the mean image of its dataset.

    ``device`` is ``cpu``, ``next`` (the next free GPU for each worker, or the CPU if there is none), ``next:N`` for N
    GPUs, or GPU indexes joined by commas. The workers on this machine divide the GPUs; on a cluster, each gets N.
    """

    type: ClassVar[str] = "model"

    dataset_id: Annotated[str, Meta(pattern=rf"^(?a:{ID})\Z")]
    recipe: Train
    device: Annotated[str, Meta(pattern=rf"^(?a:{DEVICE})\Z")] = "cpu"

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="train", title="Train the network")]

    @property
    def is_imported(self) -> bool:
        return self.dataset_id == self.id

    @property
    def dataset_folder(self) -> Path:
        """The folder of the dataset: a sibling of this job, wherever the jobs folder has been moved to."""
        return self.folder.with_name(self.dataset_id)

    def needs(self) -> Sequence[str]:
        return () if self.is_imported else (self.dataset_id,)

    def recipe_for(self, task: Task) -> Train:
        self.recipe.devices = task.devices or ["cpu"]
        self.recipe.dataset = str(self.dataset_folder)
        return self.recipe

    def device_request(self, task: Task) -> DeviceRequest:
        return request_devices(self.device, self.compute)

    @property
    def can_resume(self) -> bool:
        return self.status in (Status.ABORT, Status.ERROR) and not self.is_imported

    def resume(self) -> None:
        super().resume()
        self.recipe.resume = True

    @property
    def epochs_done(self) -> float:
        """The number of epochs after which the training can continue, 0 if there is no resume point."""
        point = None if self.is_imported else resume_point(self.folder)
        return point.epoch if point else 0.0

    def train_until(self, epochs: float) -> None:
        """Prepare the training, which has ended, to continue until ``epochs`` epochs in all.

        One that early stopping ended continues without it.
        """
        if self.status is Status.DONE and self.epochs_done < self.recipe.epochs:
            self.recipe.early_stopping = None
        self._restart(self.tasks)
        self.recipe.epochs, self.recipe.resume = epochs, True

    @property
    def network_path(self) -> Path:
        return self.folder / NETWORK_FILE

    def network_text(self) -> str:
        """Return the source code of the network; raises UnreadableFile."""
        return read_bytes(self.network_path, MAX_NETWORK_BYTES, below=self.folder).decode(errors="replace")

    @property
    def tensorboard_folder(self) -> Path:
        return self.folder / TENSORBOARD_FOLDER

    def snapshots(self) -> SnapshotList:
        """Return the complete snapshots, newest first."""
        return snapshot_list.read(self.folder)


def request_devices(device: str, compute: Compute = Compute()) -> DeviceRequest:  # noqa: B008 (immutable)
    """Return the request for a ``device`` in the notation of `ModelJob`; raises BadRequest for any other text."""
    if not re.fullmatch(DEVICE, device, re.ASCII):
        raise BadRequest(
            f"“{device[:40]}” is not a device.",
            "Choose the CPU, the next free GPU, or GPUs by their numbers.",
        )
    if device == "cpu":
        return DeviceRequest(POOL, compute=compute)
    if device.startswith("next"):
        count, is_local = device.partition(":")[2], compute.target == LOCAL
        total = int(count) if count and is_local else int(count or 1) * compute.workers
        return DeviceRequest(POOL, total, compute=compute)
    return DeviceRequest(POOL, gpus=tuple(dict.fromkeys(device.split(","))), compute=compute)


def trace_name(step: int) -> str:
    """Return the name of the file with the trace of ``step``, counted from 1, in the folder of a job, as in DIGITS 6.

    It lists the operations of the step in Chrome's format: the threads of the CPU and the streams of the GPUs that ran
    them, and when.
    """
    return f"timeline_{step}.json"


def traced_steps(job_folder: Path) -> list[int]:
    """Return the steps that have a trace, in order."""
    with contextlib.suppress(OSError), os.scandir(job_folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _TRACE.fullmatch(entry.name)))
    return []


def epoch_label(epoch: float) -> str:
    """Return an epoch as snapshots display it: ``3`` or ``0.5``."""
    return f"{epoch:g}"
