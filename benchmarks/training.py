"""Measure the throughput and memory of a training, compared with Keras' fit, and the accuracy it reaches.

    python benchmarks/training.py [--network lenet|resnet32|resnet50] [--batch N] [--epochs N] [--turns N]
                                  [--dataset JOB_FOLDER | --sample mnist|fashion|cifar10|pictures] [--records N]
                                  [--device cpu|0] [--precision P] [--streamed]
                                  [--best | --bare | --parts | --gradients | --memory | --accuracy]

JOB_FOLDER is the folder of a finished dataset job; without it, the sample is downloaded and created in a temporary
folder, completely or with N training records. The sample ``pictures`` needs no download: JPEG files of 224×224
pixels (--side) in ten classes. Without --device, the first GPU is used if there is one. The product is measured
completely, from the shards to metrics, validation, TensorBoard files and snapshots. Keras trains the same network
written with Keras layers, with validation, on decoded images in memory and a pipeline that shuffles, batches, casts
and prefetches. Both train alternately in the same run, each in a separate process, from the first step to the end;
the ratio is the result.

--best tries both sides in float32 and bfloat16, with and without XLA, and compares the fastest of each. --bare
compares with the product's own functions for steps and validation, called equally often with one constant batch.
--parts divides the time of a training from the first step to the end among its parts, without those inside them.
--gradients compares steps with and without gradient charts, in turn in one process, without building their graph.
--memory compares the peak memory of both processes. --accuracy trains with the published settings of the network.
--streamed streams images from disk even if they fit into memory.

Targets on a GPU, one command each:

    python benchmarks/training.py --best --epochs 5
    python benchmarks/training.py --best --epochs 5 --network resnet32 --sample cifar10 --batch 128
    python benchmarks/training.py --bare --streamed --network resnet50 --sample pictures \\
        --records 51200 --batch 256 --precision mixed_bfloat16
    python benchmarks/training.py --accuracy --network resnet32 --sample cifar10 --batch 128
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # forking requires a single-threaded process
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from product import NETWORKS, Spent, in_child

from digits.core import events, recipe
from digits.core.recipe import Train
from digits.data import manifest
from digits.data.records.records import SplitReader
from digits.data.samples import samples
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.runtime.devices import CPU, Devices
from digits.runtime.executors.local import devices_environment
from digits.worker import run

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
TARGET_RATIO = {"lenet": 1.2, "resnet32": 1.05}
TARGET_RATIO_ON_GPU = {"lenet": 3.0, "resnet32": 1.5}
TARGET_BARE = {"lenet": 0.95, "resnet32": 0.95, "resnet50": 0.9}
TARGET_MEMORY = 1.15
TARGET_ACCURACY = {"lenet": 0.99, "resnet32": 0.925}

USUAL = {
    "solver": {"type": "MOMENTUM", "learning_rate": 0.01, "momentum": 0.9},
    "lr_policy": {"policy": "step", "size": 33, "gamma": 0.1},
}
# Settings with which these networks reach the published accuracy.
PUBLISHED = {
    "lenet": {**USUAL, "epochs": 5},
    "resnet32": {
        "solver": {"type": "MOMENTUM", "learning_rate": 0.1, "momentum": 0.9},
        "lr_policy": {"policy": "multistep", "values": [50, 75], "gamma": 0.1},
        "augment": {"flip": "fliplr", "pad_crop": 4},
        "epochs": 164,
    },
}


@dataclass(frozen=True)
class Way:
    """Precision and XLA; None means the default of each side."""

    precision: str = "float32"
    xla: bool | None = None

    def __str__(self) -> str:
        return f"{self.precision} {({True: 'with XLA', False: 'without XLA', None: ''})[self.xla]}".strip()


WAYS = [Way(precision, xla) for precision in ("float32", "mixed_bfloat16") for xla in (True, False)]


@dataclass(frozen=True)
class Work:
    """What is trained: a network on the folder of a dataset job, with settings of the recipe."""

    network: str
    dataset: Path
    batch: int
    epochs: int
    device: str = CPU
    way: Way = Way()
    streamed: bool = False
    settings: dict[str, Any] = field(default_factory=lambda: USUAL)

    @property
    def images(self) -> int:
        return manifest.load(self.dataset).splits["train"].count

    def task(self, job: Path) -> Path:
        """Create a model job's task in the new folder ``job``."""
        task = job / "train"
        task.mkdir(parents=True)
        (job / "network.py").write_text((NETWORKS / f"{self.network}.py").read_text())
        Train(
            **{
                "dataset": str(self.dataset),
                "epochs": self.epochs,
                "batch_size": self.batch,
                "seed": 1,
                "devices": [self.device],
                "precision": self.way.precision,
                "xla": self.way.xla,
                "mean": "none" if self.network == "resnet50" else "image",
                **self.settings,
            }
        ).save(task)
        if self.streamed:
            from digits.worker.input import memory

            memory.RESIDENT_SHARE = 0.0
        return task


def main() -> None:
    arguments = _arguments()
    gpus = Devices().gpus()
    device = arguments.device or (gpus[0] if gpus else CPU)
    os.environ.update(devices_environment([device]))
    run.import_programs()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        dataset = Path(arguments.dataset) if arguments.dataset else create_dataset(scratch, arguments)
        way = Way(arguments.precision)
        work = Work(
            arguments.network,
            dataset,
            arguments.batch,
            arguments.epochs or 2,
            device,
            way,
            arguments.streamed,
        )
        print(f"{work.network}, {work.images:,} images, batches of {work.batch}, on {_named(device)}, {way}")
        if arguments.accuracy:
            settings = dict(PUBLISHED[work.network])
            epochs = arguments.epochs or settings["epochs"]
            accuracy(
                dataclasses.replace(work, epochs=epochs, settings={**settings, "epochs": epochs}), scratch
            )
        elif arguments.bare:
            against_bare(work, scratch, arguments.turns)
        elif arguments.parts:
            parts(work, scratch / "parts")
        elif arguments.gradients:
            with_gradients(work, scratch, arguments.turns)
        elif arguments.memory:
            memory(work, scratch)
        elif arguments.best:
            speed(fastest(product, work, scratch), fastest(keras_fit, work), scratch, arguments.turns)
        else:
            speed(work, work, scratch, arguments.turns)


def _named(device: str) -> str:
    return next(known.name for known in Devices().list() if known.id == device)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--network", choices=list(TARGET_BARE), default="lenet")
    parser.add_argument("--sample", choices=["mnist", "fashion", "cifar10", "pictures"], default="mnist")
    parser.add_argument(
        "--side", type=int, default=224, help="width and height of the sample pictures, pixels"
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dataset", help="folder of a finished dataset job")
    parser.add_argument("--records", type=int, help="use only N training records of the sample")
    parser.add_argument("--device", help="cpu, or the index of a GPU")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--streamed", action="store_true", help="do not cache images in memory")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--best", action="store_true", help="compare the fastest settings of each side")
    what.add_argument("--bare", action="store_true", help="compare with the bare step function")
    what.add_argument("--parts", action="store_true", help="divide the time among the parts of a training")
    what.add_argument("--gradients", action="store_true", help="measure the cost of the gradient charts")
    what.add_argument("--memory", action="store_true", help="compare the peak memory of the processes")
    what.add_argument(
        "--accuracy", action="store_true", help="train with the published settings and print the accuracy"
    )
    parser.add_argument("--epochs", type=int, help="2, or as published with --accuracy")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.accuracy and arguments.network not in PUBLISHED:
        parser.error(f"there are no published settings for {arguments.network}")
    if (
        not (arguments.accuracy or arguments.bare or arguments.parts or arguments.gradients)
        and arguments.network not in TARGET_RATIO
    ):
        parser.error(f"there is no Keras version of {arguments.network} to compare with; use --bare")
    return arguments


def create_dataset(scratch: Path, asked: argparse.Namespace) -> Path:
    """Create a dataset from a sample; with ``records``, use N to train with and a fifth of that to validate."""
    side, channels = {"cifar10": (32, 3), "pictures": (asked.side, 3)}.get(asked.sample, (28, 1))
    if asked.sample == "pictures":
        folder = scratch / "pictures"
        draw_pictures(folder / "train", asked.records or 5000, side)
        draw_pictures(folder / "test", (asked.records or 5000) // 20, side)
    else:
        folder = samples.download(asked.sample, scratch / asked.sample, lambda fraction, doing: None)
        if asked.records is not None:
            _thin_out(folder / "train", asked.records)
            _thin_out(folder / "test", asked.records // 5)
    task = scratch / "dataset" / "create"
    task.mkdir(parents=True)
    CreateClassification(
        train=FolderSplit(folder=str(folder / "train")),
        val=FolderSplit(folder=str(folder / "test")),
        width=side,
        height=side,
        channels=channels,
        encoding="jpg" if asked.sample == "pictures" else "png",
    ).save(task)
    assert run.run_task(task) == 0
    return task.parent


def draw_pictures(folder: Path, count: int, side: int, different: int = 200) -> None:
    """Create JPEG files of colored clouds with noise, as large as photographs, in ten classes."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(1)
    files = []
    for _ in range(min(count, different)):
        clouds = Image.fromarray(chance.integers(0, 256, (8, 8, 3), np.uint8)).resize((side, side))
        grainy = np.asarray(clouds) + chance.normal(0, 12, (side, side, 3))
        file = io.BytesIO()
        Image.fromarray(grainy.clip(0, 255).astype(np.uint8)).save(file, "jpeg", quality=90)
        files.append(file.getvalue())
    for number in range(count):
        path = folder / str(number % 10) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[number % len(files)])


def _thin_out(folder: Path, records: int) -> None:
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    for path in classes:
        for image in itertools.islice(sorted(path.iterdir()), records // len(classes), None):
            image.unlink()


def fastest(side: Callable[..., float], work: Work, *places: Path) -> Work:
    """Return ``work`` with the fastest precision and XLA setting of ``side``."""
    values = {}
    for number, way in enumerate(WAYS):
        tried = dataclasses.replace(work, way=way)
        values[way] = in_child(side, tried, *(place / f"way-{number}" for place in places)).value
        print(f"{side.__name__} in {way}: {values[way]:,.0f} images/s", flush=True)
    return dataclasses.replace(work, way=max(values, key=values.__getitem__))


def speed(work: Work, keras_work: Work, scratch: Path, turns: int) -> None:
    ratios = []
    for turn in range(turns):
        ours = in_child(product, work, scratch / f"speed-{turn}")
        theirs = in_child(keras_fit, keras_work)
        ratios.append(ours.value / theirs.value)
        print(
            f"{_describe_spent('product', ours)}   {_describe_spent('keras fit', theirs)}   {_ratio(ratios[-1])}",
            flush=True,
        )
    target = (TARGET_RATIO if work.device == CPU else TARGET_RATIO_ON_GPU)[work.network]
    print(f"median ratio {statistics.median(ratios):.2f} (target {target})")


def against_bare(work: Work, scratch: Path, turns: int) -> None:
    ratios = []
    for turn in range(turns):
        ours = in_child(product, work, scratch / f"product-{turn}")
        alone = in_child(bare, work, scratch / f"bare-{turn}")
        ratios.append(ours.value / alone.value)
        print(
            f"{_describe_spent('product', ours)}   {_describe_spent('bare step', alone)}   {_ratio(ratios[-1])}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.2f} (target {TARGET_BARE[work.network]})")


def with_gradients(work: Work, scratch: Path, turns: int) -> None:
    measured = dataclasses.replace(work, settings={**work.settings, "gradient_metrics": True})
    for interval in (32, 4):  # for long and short training runs
        folder = scratch / f"gradients-{interval}"
        ratio = in_child(gradient_charts, measured, folder, turns, interval).value
        print(
            f"every {interval} steps: median ratio {ratio:.3f} by processor time   "
            f"load {os.getloadavg()[0]:.1f}"
        )


def memory(work: Work, scratch: Path) -> None:
    ours, theirs = in_child(product, work, scratch / "memory"), in_child(keras_fit, work)
    ratio = ours.peak / theirs.peak
    print(
        f"product {ours.peak / 1e6:,.0f} MB   keras fit {theirs.peak / 1e6:,.0f} MB   "
        f"ratio {ratio:.2f} (target at most {TARGET_MEMORY})"
    )


def _describe_spent(name: str, spent: Spent) -> str:
    return f"{name} {spent.value:7,.0f} images/s, {spent.processor_seconds:5.1f} s of processor"


def _ratio(ratio: float) -> str:
    return f"ratio {ratio:.2f}   load {os.getloadavg()[0]:.1f}"


def accuracy(work: Work, scratch: Path) -> None:
    began = time.monotonic()
    job = scratch / "accuracy"
    in_child(product, work, job)
    rows = [
        event
        for event in events.read(job / "train" / "events.jsonl")[0]
        if isinstance(event, events.Measured)
    ]
    for row in rows:
        if row.stage == "val":
            print(f"epoch {row.epoch:g}: validation accuracy {row.values['accuracy']:.2%}")
    print(f"target {TARGET_ACCURACY[work.network]:.1%}; {time.monotonic() - began:.1f} seconds in all")


def product(work: Work, job: Path) -> float:
    """Train as a job does; return the images/s from the first step to the last validation and snapshot."""
    task = work.task(job)
    _silence(task)
    assert run.run_task(task) == 0
    happened = events.read(task / "events.jsonl")[0]
    steps = [event for event in happened if isinstance(event, events.Measured) and event.stage == "train"]
    images = (steps[-1].step - steps[0].step) * work.batch
    return images / (happened[-1].at - steps[0].at)


def bare(work: Work, job: Path) -> float:
    """Run the product's steps and validations on one constant batch, equally often; return the images/s."""
    from digits.worker.training.loop import timeline

    resources, functions = _built(work, job)
    calls = min(timeline.MAX_STEPS_PER_CALL, max(1, work.images // work.batch // 8))
    chunk = _constant_chunks(work)(calls)
    rates = [0.0001] * calls
    functions.training.steps(chunk, rates, 0)
    functions.evaluation(chunk)
    validated = len(resources.data.val) // work.batch
    steps, began = 0, time.monotonic()
    for epoch in range(1, work.epochs + 1):
        while steps * work.batch < epoch * work.images:
            functions.training.steps(chunk, rates, steps)
            steps += calls
        for first in range(0, validated, calls):
            count = min(calls, validated - first)
            functions.evaluation(chunk._replace(positions=chunk.positions[:count]))
    return steps * work.batch / (time.monotonic() - began)


def parts(work: Work, job: Path) -> None:
    in_child(measured_parts, work, job)
    spent: dict[str, list[float]] = json.loads((job / "parts.json").read_text())
    total = sum(elapsed for elapsed, _ in spent.values())
    for words, (elapsed, processor) in sorted(spent.items(), key=lambda item: -item[1][0]):
        times = f"{1000 * elapsed / work.epochs:9.1f} ms per epoch, {elapsed / total:6.1%}"
        print(f"{words:20} {times}   {1000 * processor / work.epochs:9.1f} ms of processor")
    print(f"load {os.getloadavg()[0]:.1f}")


def measured_parts(work: Work, job: Path) -> float:
    """Train as a job does; write the elapsed and the processor time of each part of the loop to ``parts.json``.

    Return the images/s.
    """
    from digits.worker.input import feeds
    from digits.worker.training.loop.trainer import Trainer
    from digits.worker.training.loop.validation import Validation
    from digits.worker.training.step.step_function import StepFunction
    from digits.worker.training.weights.checkpoints import Checkpoints

    spent: dict[str, list[float]] = {}
    inside = [[0.0, 0.0]]  # what the parts inside each open part took

    def measure(owner: type, name: str, words: str) -> None:
        call = getattr(owner, name)

        def measured(*given: Any, **named: Any) -> Any:
            began = time.monotonic(), time.process_time()
            inside.append([0.0, 0.0])
            try:
                return call(*given, **named)
            finally:
                took = [time.monotonic() - began[0], time.process_time() - began[1]]
                inner, totals = inside.pop(), spent.setdefault(words, [0.0, 0.0])
                for each in range(2):
                    totals[each] += took[each] - inner[each]
                    inside[-1][each] += took[each]

        setattr(owner, name, measured)

    measure(StepFunction, "steps", "steps")
    measure(Validation, "run", "validation")
    measure(Checkpoints, "save_epoch", "snapshots")
    measure(Trainer, "_report", "metrics and events")
    for kind in (feeds._ResidentFeed, feeds._StreamedFeed):
        measure(kind, "take", "batches")
    measure(Trainer, "_loop", "the rest of the loop")
    rate = product(work, job)
    (job / "parts.json").write_text(json.dumps(spent))
    return rate


def _built(work: Work, job: Path) -> tuple[Any, Any]:
    """Return the resources of a training, and its functions."""
    from digits.worker.training.loop import setup
    from digits.worker.training.loop.resources import Resources
    from digits.worker.training.loop.tensorboard_log import TensorBoardLog
    from digits.worker.training.step import device_config

    task = work.task(job)
    _silence(task)
    asked = recipe.load(task, Train)
    with contextlib.closing(events.EventLog(task / "events.jsonl")) as log:
        resources = Resources(asked, job, log, device_config.configure(asked, log)[0], 1)
        with TensorBoardLog(job / "tb") as board:
            return resources, setup.build(resources, board)


def _constant_chunks(work: Work) -> Callable[[int], Any]:
    """Return a function that repeats one constant batch a given number of times."""
    import numpy as np
    import tensorflow as tf

    from digits.worker.input.preparation import Chunk

    images, labels = _arrays(work.dataset, "train", work.batch)

    def chunk(count: int) -> Any:
        positions = np.tile(np.arange(work.batch), (count, 1))
        return Chunk(tf.constant(images), tf.constant(labels, tf.int64), tf.constant(positions, tf.int64))

    return chunk


def gradient_charts(work: Work, job: Path, turns: int, interval: int) -> float:
    """Run steps on one constant batch, alternately with every ``interval``-th step measured and with none, and return
    the median ratio of their processor times.
    """
    from digits.worker.training.loop.timeline import MAX_INTERVAL

    training, rate = _built(work, job)[1].training, 0.0001
    chunk = _constant_chunks(work)

    def plain() -> None:
        training.steps(chunk(MAX_INTERVAL), [rate] * MAX_INTERVAL, 0)

    def with_charts() -> None:
        for last in range(interval - 1, MAX_INTERVAL, interval):
            training.steps(chunk(interval - 1), [rate] * (interval - 1), last - interval + 1)
            training.extended_step(chunk(1), rate, last)

    ratios = []
    for turn in range(turns + 1):
        spent = {}
        for side in (plain, with_charts) if turn % 2 else (with_charts, plain):
            began = time.process_time()
            side()
            spent[side] = time.process_time() - began
        ratios.append(spent[with_charts] / spent[plain])
    return statistics.median(ratios[1:])  # the first turn builds the graphs


def keras_fit(work: Work) -> float:
    """Train the same network in Keras; return the images/s from the first batch to the end."""
    import keras
    import numpy as np
    import tensorflow as tf

    mean = np.load(work.dataset / "mean.npy")

    def batches(split: str) -> Any:
        images, labels = _arrays(work.dataset, split)
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        if split == "train":
            data = data.shuffle(len(labels), seed=1)
        data = data.batch(work.batch, drop_remainder=split == "train")  # XLA compiles for a single batch size
        data = data.map(lambda x, y: (tf.cast(x, tf.float32) - mean, y), tf.data.AUTOTUNE)
        return data.prefetch(tf.data.AUTOTUNE)

    keras.config.set_dtype_policy(work.way.precision)
    model = {"lenet": _keras_lenet, "resnet32": _keras_resnet32}[work.network](mean.shape)
    model.compile(
        jit_compile="auto" if work.way.xla is None else work.way.xla,
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    first: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not first:
                first.append(time.time())

    train, val = batches("train"), batches("val")
    model.evaluate(val, verbose=0)  # the product also validates before the first step
    model.fit(train, shuffle=False, epochs=work.epochs, validation_data=val, verbose=0, callbacks=[Clock()])
    steps = work.epochs * (work.images // work.batch) - 1
    return steps * work.batch / (time.time() - first[0])


def _keras_lenet(shape: tuple[int, ...]) -> Any:
    import keras
    from keras import layers

    l2 = keras.regularizers.L2(0.00025)  # slim's weight decay is half as strong for the same value
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Rescaling(0.0125),
            layers.Conv2D(20, 5, activation="relu", kernel_regularizer=l2),
            layers.MaxPooling2D(),
            layers.Conv2D(50, 5, activation="relu", kernel_regularizer=l2),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(500, activation="relu", kernel_regularizer=l2),
            layers.Dropout(0.5),
            layers.Dense(10, kernel_regularizer=l2, dtype="float32"),
        ]
    )


def _keras_resnet32(shape: tuple[int, ...]) -> Any:
    import keras
    from keras import layers, ops

    decay = keras.regularizers.L2(0.00005)

    def convolution(net: Any, filters: int, stride: int) -> Any:
        net = layers.Conv2D(
            filters,
            3,
            stride,
            "same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=decay,
        )(net)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(net)

    inputs = keras.Input(shape)
    net = layers.ReLU()(convolution(layers.Rescaling(1 / 64)(inputs), 16, 1))
    for stage, filters in enumerate([16, 32, 64]):
        for block in range(5):
            stride = 2 if stage and not block else 1
            added = layers.ReLU()(convolution(net, filters, stride))
            added = convolution(added, filters, 1)
            if stride > 1:
                new = (filters - net.shape[3]) // 2
                net = ops.pad(net[:, ::2, ::2, :], [[0, 0], [0, 0], [0, 0], [new, new]])
            net = layers.ReLU()(layers.Add()([net, added]))
    net = layers.GlobalAveragePooling2D()(net)
    return keras.Model(inputs, layers.Dense(10, kernel_regularizer=decay, dtype="float32")(net))


def _arrays(dataset: Path, split: str, count: int | None = None) -> tuple[Any, Any]:
    """Return the first ``count`` images of a split, uint8 [N, H, W, C], and their labels."""
    import numpy as np

    found = manifest.load(dataset)
    with SplitReader(dataset, found.splits[split]) as reader:
        images = np.empty((min(count or len(reader), len(reader)), *found.shape), np.uint8)
        for number in range(len(images)):
            images[number] = reader.read(number).as_array().reshape(found.shape)
        return images, reader.groups[: len(images)]


def _silence(task: Path) -> None:
    log = os.open(task / "output.log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


if __name__ == "__main__":
    main()
