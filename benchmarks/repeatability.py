"""Test whether the same seed reproduces a run on a loaded machine: train a network many times and compare every bit.

    python benchmarks/repeatability.py [--network NAME] [--dataset JOB_FOLDER] [--runs N] [--epochs N]
                                       [--batch N] [--burners N] [--at-once N]

Without JOB_FOLDER, records are generated: gray squares of 28×28 pixels in four shades with noise. In addition to the
trainings, --burners niced processes generate load; --at-once trainings run in parallel. All log rows, except for
their timing, and all tensors of every snapshot are compared. If a run differs, the exit code is 1 and the first
different row and tensor are printed. Environment variables such as TF_DETERMINISTIC_OPS apply to all runs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fork requires a single-threaded process
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
from product import NETWORKS, classification_manifest, record, write_split

from digits.core import events
from digits.core.recipe import Train
from digits.data import manifest
from digits.data.records.records import encode_example
from digits.worker import run

# The location of a number in a run, and the number or the checksum of several.
Numbers = dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--dataset", type=Path)
    for name, default in {"runs": 20, "epochs": 2, "batch": 64, "burners": 2, "at-once": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    run.import_programs()
    with tempfile.TemporaryDirectory() as scratch, load(asked.burners):
        dataset = asked.dataset or draw_dataset(Path(scratch) / "dataset")
        first: Numbers = {}
        differing = 0
        for number, job in enumerate(trained(Path(scratch), dataset, asked)):
            found = json.loads((job / "numbers.json").read_text())
            first = first or found
            where = [place for place, value in first.items() if found.get(place) != value]
            differing += bool(where)
            print(
                f"run {number + 1}: {'differs first at ' + where[0] if where else 'the same'}"
                f"   load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    print(f"{differing} of {asked.runs} runs differ from the first")
    return int(differing > 0)


def trained(scratch: Path, dataset: Path, asked: argparse.Namespace) -> Iterator[Path]:
    """Train ``asked.runs`` times; yield the folder of each job when it is done."""
    active: dict[int, Path] = {}
    started = 0
    while started < asked.runs or active:
        while started < asked.runs and len(active) < asked.at_once:
            job = scratch / f"run-{started}"
            active[start(job, dataset, asked)] = job
            started += 1
        for pid in list(active):
            ended, status = os.waitpid(pid, 0)
            assert status == 0, (active[pid] / "train" / "output.log").read_text()
            yield active.pop(ended)
            break


def start(job: Path, dataset: Path, asked: argparse.Namespace) -> int:
    """Train in a forked process; return its id."""
    task = job / "train"
    task.mkdir(parents=True)
    (job / "network.py").write_text((NETWORKS / f"{asked.network}.py").read_text())
    Train(dataset=str(dataset), epochs=asked.epochs, batch_size=asked.batch, seed=1).save(task)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            output = os.open(task / "output.log", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = run.run_task(task)
            (job / "numbers.json").write_text(json.dumps(numbers_of(job)))
        finally:
            os._exit(code)
    return pid


def numbers_of(job: Path) -> Numbers:
    """All numbers of a run, in chronological order."""
    found: Numbers = {}
    for event in events.read(job / "train" / "events.jsonl")[0]:
        if isinstance(event, events.Measured):
            values = {name: value for name, value in event.values.items() if name != "images_per_second"}
            found |= {
                f"{name} ({event.stage}) after step {event.step}": value.hex()
                for name, value in values.items()
            }
        elif isinstance(event, events.Saved):
            found |= tensors_of(job / event.path)
    return found


def tensors_of(snapshot: Path) -> Numbers:
    """A checksum of each tensor."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(snapshot))
    return {
        f"{name} in {snapshot.name}": hashlib.sha256(
            np.asarray(reader.get_tensor(name)).tobytes()
        ).hexdigest()
        for name in sorted(reader.get_variable_to_shape_map())
    }


@contextlib.contextmanager
def load(burners: int) -> Iterator[None]:
    """Processes that generate CPU load."""
    busy = [
        subprocess.Popen(["nice", "-n", "5", sys.executable, "-c", "while True: pass"])
        for _ in range(burners)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def draw_dataset(folder: Path) -> Path:
    """A finished dataset job of gray squares."""
    folder.mkdir()
    chance, splits, labels = np.random.default_rng(1), {}, ["a", "b", "c", "d"]

    def item(label: int) -> tuple[bytes, int, bytes]:
        pixels = chance.normal(50 * label + 50, 40, (28, 28, 1)).clip(0, 255).astype(np.uint8)
        return encode_example(record(pixels, label, labels)), label, b""

    for split, each in {"train": 375, "val": 75}.items():
        items = (item(number % 4) for number in range(4 * each))
        splits[split] = write_split(folder, split, [each] * 4, items, shards=1)
    np.save(folder / manifest.MEAN_ARRAY_FILE, np.full((28, 28, 1), 125, np.float32))
    classification_manifest(labels, splits).save(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
