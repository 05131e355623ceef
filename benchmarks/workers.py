"""Compare trainings with several workers on this machine with those of one worker.

    python benchmarks/workers.py [--steps N] [--batch N] [--workers N…]

Prints how long all-reduces take; how far the weights and the rows of the curves of several workers are from those of
one, and whether a repetition has the same bits; and the throughput of two workers with one core each against one worker
with two, for a network whose steps take far longer than its all-reduce.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
from repeatability import draw_dataset

from digits.core import events
from digits.core.recipe import Train
from digits.core.task import RANK_VARIABLE, WORKERS_VARIABLE

CLASSIFIER = """class UserModel(Tower):
    @model_property
    def inference(self):
        x = self.x * 0.0125
{lines}
        return slim.fully_connected(slim.flatten(x), self.nclasses, activation_fn=None)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
# LeNet without dropout, of which every worker would draw its own: 5 MB of gradients, which is much for so little work.
LENET = """        x = slim.max_pool2d(slim.conv2d(x, 20, [5, 5]), [2, 2])
        x = slim.max_pool2d(slim.conv2d(x, 50, [5, 5]), [2, 2])
        x = slim.fully_connected(slim.flatten(x), 500)"""
# Convolutions only: much work for few parameters.
CONVOLUTIONS = """        x = slim.conv2d(x, 32, [3, 3])
        x = slim.conv2d(x, 32, [3, 3])
        x = slim.max_pool2d(slim.conv2d(x, 32, [3, 3]), [4, 4])"""
WARM_UP_ROWS = 5


@dataclass
class Trained:
    """The rows of the curves and the last weights of a training, and its throughput in images per second."""

    rows: list[dict[str, float]]
    weights: dict[str, Any]
    throughput: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    asked = parser.parse_args()
    for size in (1_000, 1_000_000, 5_000_000, 25_000_000, 100_000_000):
        print(f"all-reduce of {size / 1e6:g} MB by 2 workers: {1000 * all_reduce(size):.2f} ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        dataset, scratch = draw_dataset(Path(folder) / "dataset"), Path(folder)
        epochs = asked.steps * asked.batch / 1500
        settings = {"dataset": str(dataset), "batch_size": asked.batch, "epochs": epochs, "seed": 1}
        one = train(scratch / "1", LENET, 1, **settings)
        for workers in asked.workers:
            several = train(scratch / f"{workers}", LENET, workers, **settings)
            again = train(scratch / f"{workers}-again", LENET, workers, **settings)
            same = several.rows == again.rows and all(
                np.array_equal(value, again.weights[name]) for name, value in several.weights.items()
            )
            print(
                f"{workers} workers, {len(several.rows)} rows: weights differ by {weights_differ(one, several):.1e}, "
                f"metrics by {rows_differ(one, several):.1e}; a repetition has the same bits: {same}",
                flush=True,
            )
        settings |= {"epochs": 40 * asked.batch / 1500, "val_interval": 0}
        of_one = train(scratch / "cores-1", CONVOLUTIONS, 1, **settings).throughput
        of_two = train(scratch / "cores-2", CONVOLUTIONS, 2, one_core_each=True, **settings).throughput
        print(
            f"1 worker with 2 cores: {of_one:.0f} images/s; 2 workers with 1 core each: {of_two:.0f} images/s"
        )
        print(f"ratio {of_two / of_one:.2f}")
    return 0


def train(job: Path, lines: str, workers: int, one_core_each: bool = False, **settings: Any) -> Trained:
    """Train a network with several workers, each a process of its own."""
    task = job / "train"
    task.mkdir(parents=True)
    (job / "network.py").write_text(CLASSIFIER.format(lines=lines))
    Train(**settings).save(task)
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for rank in range(workers):
        environment = os.environ | {RANK_VARIABLE: str(rank), WORKERS_VARIABLE: str(workers)}
        command = [sys.executable, "-m", "digits.worker", str(task)]
        if one_core_each:
            command = ["taskset", "--cpu-list", str(cores[rank]), *command]
        with open(task / f"output-{rank}.log", "w") as output:
            processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
    codes = [process.wait() for process in processes]
    assert codes == [0] * workers, (task / "output-0.log").read_text()
    found = events.read(task / "events.jsonl")[0]
    rows = [event for event in found if isinstance(event, events.Measured)]
    speeds = [row.values["images_per_second"] for row in rows if "images_per_second" in row.values]
    last = [event.path for event in found if isinstance(event, events.Saved)][-1]
    return Trained(
        [{k: v for k, v in row.values.items() if k != "images_per_second"} for row in rows],
        weights_of(job / last),
        statistics.median(speeds[WARM_UP_ROWS:]),
    )


def weights_of(snapshot: Path) -> dict[str, Any]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(snapshot))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def weights_differ(one: Trained, other: Trained) -> float:
    return max(float(np.abs(value - other.weights[name]).max()) for name, value in one.weights.items())


def rows_differ(one: Trained, other: Trained) -> float:
    pairs = zip(one.rows, other.rows, strict=True)
    return max(abs(value - theirs[name]) for mine, theirs in pairs for name, value in mine.items())


def all_reduce(size: int, repetitions: int = 10) -> float:
    """Return the median duration of an all-reduce of ``size`` bytes by two processes of this machine, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        other = os.fork()
        os.environ |= {RANK_VARIABLE: str(int(other == 0)), WORKERS_VARIABLE: "2"}
        try:
            from digits.worker.gang.rendezvous import Rendezvous
            from digits.worker.gang.ring import connect

            ring, values, taken = connect(Rendezvous(Path(folder))), np.ones(size // 4, np.float32), []
            for _ in range(repetitions):
                began = time.perf_counter()
                ring.reduce(values)
                taken.append(time.perf_counter() - began)
        finally:
            if other == 0:
                os._exit(0)
            os.waitpid(other, 0)
            del os.environ[RANK_VARIABLE], os.environ[WORKERS_VARIABLE]
        return statistics.median(taken)


if __name__ == "__main__":
    sys.exit(main())
