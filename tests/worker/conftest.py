"""Small datasets and networks, and tasks run in forked processes.

TensorFlow is imported once, by the first test that needs it. Tasks run in forks of the test process, as in
production, which must therefore not run any operation: call functions that do with `in_child`. Tasks that a test only
waits for share a fork with the other tests of its module (see `perform`), because TensorFlow takes a third of a
second of CPU time for the first task of a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events, recipe
from digits.data import manifest
from digits.data.images import images
from digits.data.records import records
from digits.data.targets.class_index import ClassIndex
from digits.worker.input import memory
from tests import once
from tests.datasets import manifest_of

# A task that takes longer hangs, however busy the machine is.
SECONDS_ALLOWED = 300


@dataclass
class Outcome:
    """The outcome of a task: exit code, events and output."""

    code: int
    events: list[events.Event]
    output: str
    job_folder: Path

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def failure(self) -> events.Failed:
        return self.of(events.Failed)[0]

    def values(self, stage: str, name: str) -> list[float]:
        """Return all values of a metric, in order."""
        return [row.values[name] for row in self.of(events.Measured) if row.stage == stage]


@dataclass
class Running:
    """A task in a forked process."""

    pid: int
    task_folder: Path
    ended: int | None = field(default=None)

    def events(self) -> list[events.Event]:
        return events.read(self.task_folder / "events.jsonl")[0]

    def wait_for(self, kind: type, seconds: float = SECONDS_ALLOWED) -> Any:
        """Wait for the first event of type ``kind``, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = [event for event in self.events() if isinstance(event, kind)]
            if found:
                return found[0]
            assert self.poll() is None, f"the task ended before a {kind.__name__}: {self.output()}"
            time.sleep(0.01)
        raise AssertionError(f"no {kind.__name__} within {seconds} s")

    def poll(self) -> int | None:
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ended = os.waitstatus_to_exitcode(status) if pid else None
        return self.ended

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def output(self) -> str:
        return (self.task_folder / "output.log").read_text(errors="replace")

    def wait(self, seconds: float = SECONDS_ALLOWED) -> Outcome:
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the task still runs after {seconds} s: {self.output()}")
            time.sleep(0.01)
        return Outcome(self.ended, self.events(), self.output(), self.task_folder.parent)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture(autouse=True, scope="session")
def memory_of_its_own() -> None:
    """Hide the memory that trainings of other test processes have claimed."""
    memory.NAMESPACE = f"digits-test-{os.getpid()}"


@pytest.fixture
def start(tensorflow: None, tmp_path: Path) -> Any:
    """Return a function that starts the task in a folder; tasks still running after the test are killed."""
    started: list[Running] = []

    def start(task_folder: Path) -> Running:
        (task_folder / "output.log").touch()
        pid = os.fork()
        if pid == 0:
            _be_the_task(task_folder)
        started.append(Running(pid, task_folder))
        return started[-1]

    yield start
    for task in started:
        task.kill()


def _be_the_task(task_folder: Path) -> None:
    code = 99
    try:
        code = _run_task(task_folder)
    finally:
        os._exit(code)


def _run_task(task_folder: Path) -> int:
    """Run a task in this process, and return its exit code. Its output goes to a file only meanwhile."""
    from digits.worker import run
    from digits.worker.forkserver import temporary_files

    streams, descriptors, temporary = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2)), tempfile.tempdir
    output = os.open(task_folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    try:
        with contextlib.chdir(task_folder), temporary_files(task_folder):
            return run.run_task(task_folder)
    finally:
        sys.stdout.flush()
        (sys.stdout, sys.stderr), tempfile.tempdir = streams, temporary
        for number, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@pytest.fixture
def own_process() -> None:
    """Have `perform` run each task of a test in a process of its own."""


@pytest.fixture
def perform(
    request: pytest.FixtureRequest, start: Any, in_child: Callable[..., int]
) -> Callable[[Path], Outcome]:
    """Return a function that runs the task in a folder to its end, in a process shared by the tests of a module.

    A test that patches code, or whose network harms its process, gets a process for each task.
    """
    if {"monkeypatch", "own_process"}.intersection(request.fixturenames):
        return lambda task_folder: start(task_folder).wait()  # type: ignore[no-any-return]

    def perform(task_folder: Path) -> Outcome:
        return Running(0, task_folder, ended=in_child(_run_task, task_folder)).wait()

    return perform


@pytest.fixture
def model(tmp_path: Path, gradients: Path) -> Callable[..., Path]:
    """Return a function that creates a model job's folder with a network and a Train recipe, and returns the task's folder."""

    def make(network: str, name: str = "model", **settings: Any) -> Path:
        return write_model(tmp_path / name, network, gradients, **settings)

    return make


def write_model(job: Path, network: str, default_dataset: Path, **settings: Any) -> Path:
    """Write a network and a training recipe to the folder of a job, and return the task's folder."""
    task = job / "train"
    task.mkdir(parents=True)
    (job / "network.py").write_text(network)
    defaults = {"dataset": str(default_dataset), "epochs": 2, "batch_size": 8, "seed": 1}
    recipe.Train(**{**defaults, **settings}).save(task)
    return task


@pytest.fixture
def train(model: Any, perform: Any) -> Callable[..., Outcome]:
    """Return a function that trains a network with the given recipe settings to the end, which succeeds."""

    def train(network: str, **settings: Any) -> Outcome:
        outcome: Outcome = perform(model(network, **settings))
        assert outcome.code == 0, outcome.output
        return outcome

    return train


@pytest.fixture
def fail(model: Any, perform: Any) -> Callable[..., Outcome]:
    """Return a function like that of `train` for a training that ends with an error."""

    def fail(network: str, **settings: Any) -> Outcome:
        outcome: Outcome = perform(model(network, **settings))
        assert outcome.code == 1, outcome.output
        return outcome

    return fail


@pytest.fixture
def trained(
    request: pytest.FixtureRequest, run_folder: Path, tmp_path: Path, gradients: Path, perform: Any
) -> Callable[..., Outcome]:
    """Like `train`, but return a copy of a finished training shared by all tests with the same settings.

    Do not use it in tests that patch the training code, except with the fixture ``often``.
    """

    def trained(network: str, name: str = "model", **settings: Any) -> Outcome:
        is_often = "often" in request.fixturenames
        key = hashlib.sha256(json.dumps([network, settings, is_often], sort_keys=True).encode()).hexdigest()[
            :16
        ]

        def make(folder: Path) -> None:
            outcome = perform(write_model(folder, network, gradients, **settings))
            assert outcome.code == 0, outcome.output

        job = shutil.copytree(once.make_once(run_folder / f"trained-{key}", make), tmp_path / name)
        output = (job / "train" / "output.log").read_text(errors="replace")
        return Outcome(0, events.read(job / "train" / "events.jsonl")[0], output, job)

    return trained


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch, tensorflow: None) -> None:
    """Train in short calls that save a resume point whenever possible."""
    from digits.worker.training.loop import timeline
    from digits.worker.training.weights import checkpoints

    monkeypatch.setattr(checkpoints, "RESUME_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "MAX_TIME_FRACTION", 1.0)
    monkeypatch.setattr(timeline, "MAX_STEPS_PER_CALL", 2)
    monkeypatch.setattr(timeline, "SINGLE_STEPS", 12)  # so that most rows cover several steps


@pytest.fixture
def resume(start: Any) -> Callable[[Path], Running]:
    """Return a function that resumes the task in a folder."""

    def resume(task_folder: Path) -> Running:
        training = recipe.load(task_folder, recipe.Train)
        training.resume = True
        training.save(task_folder)
        return start(task_folder)

    return resume


@pytest.fixture
def visualize(tmp_path: Path, gradients: Path, perform: Any) -> Callable[..., Outcome]:
    """Return a function that builds a network without training it."""

    def visualize(network: str, dataset: Path | None = None, **settings: Any) -> Outcome:
        job = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        task = job / "visualize"
        task.mkdir(parents=True)
        (job / "network.py").write_text(network)
        recipe.Visualize(dataset=str(dataset or gradients), **settings).save(task)
        return perform(task)

    return visualize


@pytest.fixture
def preflight(tmp_path: Path, gradients: Path, perform: Any) -> Callable[..., Outcome]:
    """Return a function that runs the preflight of a network."""

    def preflight(network: str, **settings: Any) -> Outcome:
        job = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        task = job / "preflight"
        task.mkdir(parents=True)
        (job / "network.py").write_text(network)
        defaults = {"dataset": str(gradients), "epochs": 3, "batch_size": 8, "seed": 1}
        recipe.Preflight(**{**defaults, **settings}).save(task)
        return perform(task)

    return preflight


@pytest.fixture(scope="session")
def gradients(run_folder: Path) -> Path:
    """A dataset of 12×12 gray gradients in 4 directions: 64 training and 22 validation records."""

    def make(folder: Path) -> None:
        write_dataset(folder, {"train": 64, "val": 22}, size=12, channels=1)

    return once.make_once(run_folder / "gradients", make)


@pytest.fixture(scope="session")
def colors(run_folder: Path) -> Path:
    """A dataset of 12×12 color gradients in JPEG, 3 classes, without validation records."""

    def make(folder: Path) -> None:
        write_dataset(folder, {"train": 24}, size=12, channels=3, classes=3, encoding="jpg")

    return once.make_once(run_folder / "colors", make)


def gradient(label: int, size: int, channels: int, noise: np.random.Generator) -> np.ndarray:
    """Return an image that gets brighter toward the side with the index ``label``."""
    ramp = np.linspace(20, 220, size)
    sides = (np.tile(ramp, (size, 1)), np.tile(ramp[::-1], (size, 1)))
    picture = (*sides, *(side.T for side in sides))[label][:, :, None]
    picture = picture + noise.normal(0, 8, (size, size, channels))
    return picture.clip(0, 255).astype(np.uint8)


def write_dataset(
    folder: Path,
    counts: dict[str, int],
    size: int,
    channels: int,
    classes: int = 4,
    encoding: str = "png",
    labels_of: Callable[[int], int] | None = None,
    wrong_every: int = 0,
) -> Path:
    """Create a finished dataset job of gradients with two shards per split, and return its folder.

    ``labels_of`` returns the labels of the records; by default, the classes alternate. With ``wrong_every``,
    the label of every record with a multiple of this number is wrong.
    """
    folder.mkdir(parents=True, exist_ok=True)
    label_of = labels_of or (lambda number: number % classes)
    noise = np.random.default_rng(7)
    labels = ["right", "left", "down", "up"][:classes]
    splits = {}
    total = np.zeros((size, size, channels))
    for split, count in counts.items():
        shards = [records.shard_name(split, number, 2) for number in range(2)]
        writers = [records.ShardWriter(folder / shard) for shard in shards]
        for number in range(count):
            label = label_of(number)
            pixels = gradient(label, size, channels, noise)
            if wrong_every and number % wrong_every == 0:
                label = (label + 1) % classes
            total += pixels if split == "train" else 0
            record = records.Record(
                data=images.encode(pixels, encoding),
                format={"png": "png", "jpg": "jpeg", "none": "raw"}[encoding],
                height=size,
                width=size,
                channels=channels,
                features={"image/class/label": [label], "image/class/text": [labels[label].encode()]},
                source=f"{number}.png".encode(),
            )
            writers[number * 2 // count].add(records.encode_example(record), label)
        for writer in writers:
            writer.close()
        of_class = np.bincount([label_of(number) for number in range(count)], minlength=classes).tolist()
        hashes = [writer.sha256 for writer in writers]
        splits[split] = manifest.SplitRecords(
            count=count, counts=of_class, bytes=0, shards=shards, hashes=hashes
        )
    mean = (total / counts["train"]).astype(np.float32)
    np.save(folder / manifest.MEAN_ARRAY_FILE, mean)
    about = {"encoding": encoding, "groups": labels, "mean_pixel": mean.mean((0, 1)).tolist()}
    manifest_of(ClassIndex.of(labels), side=size, channels=channels, splits=splits, **about).save(folder)
    return folder


def snapshot(job_folder: Path, name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a snapshot by name. Reading it runs no operation."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(job_folder / name))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
