"""Train on records of a slow file system, with and without copies of them on the local disk.

    python benchmarks/node_cache.py [--milliseconds N] [--records N] [--shards N] [--epochs N]

A library that is loaded before all others delays every opening and reading of a file of the dataset, by Python as well
as by TensorFlow, as a network file system with this latency would. It needs a C compiler. Prints the duration of each
epoch in seconds and as a multiple of that of the last epoch on the local disk, once with images that are streamed and
once with images that are decoded once. The first epoch includes the start of the training. The first training through
copies makes them, the second one finds them. Without copies, streamed records are read one or several at a time. Also
prints whether all trainings have the same curve.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
from product import classification_manifest, record, write_split

from digits.core.events import Measured, Progressed, Saved, read
from digits.core.recipe import Train
from digits.data import manifest
from digits.data.records import READERS, encode_example

SIDE = 64
NETWORK = """class UserModel(Tower):
    @model_property
    def inference(self):
        return slim.fully_connected(slim.flatten(self.x * 0.01), self.nclasses, activation_fn=None)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
DELAY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char slow[1 << 16];

static void delay(void) { usleep(1000 * atoi(getenv("SLOW_MILLISECONDS"))); }

static int opened(int file) {
    char link[64], path[4096];
    const char *folder = getenv("SLOW_FOLDER");
    if (file < 0 || file >= (int)sizeof slow || !folder) return file;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if ((slow[file] = !strncmp(path, folder, strlen(folder)))) delay();
    return file;
}

#define CREATES (O_CREAT | O_TMPFILE)
#define MODE va_list rest; va_start(rest, flags); int mode = flags & CREATES ? va_arg(rest, int) : 0; va_end(rest);
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int open(const char *path, int flags, ...) { MODE return opened(NEXT(open)(path, flags, mode)); }
int open64(const char *path, int flags, ...) { MODE return opened(NEXT(open64)(path, flags, mode)); }
int openat(int at, const char *path, int flags, ...) { MODE return opened(NEXT(openat)(at, path, flags, mode)); }
int openat64(int at, const char *path, int flags, ...) { MODE return opened(NEXT(openat64)(at, path, flags, mode)); }

static void reading(int file) { if (file >= 0 && file < (int)sizeof slow && slow[file]) delay(); }
ssize_t read(int file, void *to, size_t size) { reading(file); return NEXT(read)(file, to, size); }
ssize_t pread(int file, void *to, size_t size, off_t at) { reading(file); return NEXT(pread)(file, to, size, at); }
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
    reading(file);
    return NEXT(pread64)(file, to, size, at);
}
int close(int file) { if (file >= 0 && file < (int)sizeof slow) slow[file] = 0; return NEXT(close)(file); }
"""
# A worker for which the folder is on a network file system, with a share of the memory for decoded images and a number
# of records that are read at the same time.
WORKER = """
import sys
from pathlib import Path
from digits.core import file_systems
from digits.data import records
from digits.worker import __main__, run
from digits.worker.input import memory

task, folder, memory.RESIDENT_SHARE = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
records.READERS = int(sys.argv[4])
file_systems.is_network = lambda path: path.is_relative_to(folder)
sys.argv[1:] = [task]
sys.exit(__main__.main())
"""


class Trainings:
    """Trains on a dataset in ``folder``, each read of which is delayed by ``milliseconds`` if asked to."""

    def __init__(self, folder: Path, asked: argparse.Namespace) -> None:
        self._folder, self._asked = folder, asked
        self._dataset = draw_dataset(folder / "dataset", asked.records, asked.shards)
        self._library = folder / "delay.so"
        (folder / "delay.c").write_text(DELAY)
        command = ["cc", "-O1", "-w", "-shared", "-fPIC", "-o", self._library, folder / "delay.c", "-ldl"]
        subprocess.run(command, check=True)
        self.curves: list[list[float]] = []

    def train(
        self, name: str, share: float, *, is_slow: bool, cache: str = "off", readers: int = READERS
    ) -> list[float]:
        """Train; return the duration of each epoch in seconds."""
        task = self._folder / name / "train"
        task.mkdir(parents=True)
        (task.parent / "network.py").write_text(NETWORK)
        settings = {"dataset": str(self._dataset), "batch_size": 32, "seed": 1, "val_interval": 0}
        Train(**settings, epochs=self._asked.epochs, snapshot_interval=1).save(task)
        environment = os.environ | {"DIGITS_NODE_CACHE": cache}
        if is_slow:
            environment |= {
                "LD_PRELOAD": str(self._library),
                "SLOW_FOLDER": str(self._dataset),
                "SLOW_MILLISECONDS": str(self._asked.milliseconds),
            }
        command = [sys.executable, "-c", WORKER, task, self._dataset, str(share), str(readers)]
        with open(task / "output.log", "w") as output:
            done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
        assert done.returncode == 0, (task / "output.log").read_text()
        events = read(task / "events.jsonl")[0]
        self.curves.append([event.values["loss"] for event in events if isinstance(event, Measured)])
        began = [
            event.at for event in events if isinstance(event, Progressed) and event.doing == "Decoding images"
        ]
        times = [began[0], *(event.at for event in events if isinstance(event, Saved))]
        return [after - before for before, after in itertools.pairwise(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--milliseconds", type=int, default=20)
    parser.add_argument("--records", type=int, default=1500)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        trainings = Trainings(Path(name), asked)
        for how, share in {"streamed": 0.0, "resident": 0.4}.items():
            cache = Path(name) / f"cache-{how}"
            cache.mkdir()
            local = trainings.train(f"{how}-local", share, is_slow=False)
            show(f"{how}, local", local, local)
            ways: list[tuple[str, dict[str, Any]]] = [
                ("no copies, one read at a time", {"readers": 1}),
                ("no copies", {}),
                ("makes copies", {"cache": str(cache)}),
                ("finds copies", {"cache": str(cache)}),
            ]
            for title, settings in ways[share > 0 :]:
                epochs = trainings.train(f"{how}-{title}", share, is_slow=True, **settings)
                show(f"{how}, slow, {title}", epochs, local)
        print(f"same curves: {all(curve == trainings.curves[0] for curve in trainings.curves)}")


def show(title: str, epochs: list[float], local: list[float]) -> None:
    numbers = ", ".join(f"{seconds:.2f} s ({seconds / local[-1]:.1f}×)" for seconds in epochs)
    print(f"{title}: {numbers}", flush=True)


def draw_dataset(folder: Path, count: int, shards: int) -> Path:
    """A finished dataset job of noise."""
    folder.mkdir()
    chance, labels = np.random.default_rng(1), ["a", "b", "c", "d"]
    pixels = (chance.integers(0, 256, (SIDE, SIDE, 3), np.uint8) for _ in range(count))
    items = (
        (encode_example(record(image, number % 4, labels)), number % 4, b"")
        for number, image in enumerate(pixels)
    )
    counts = np.bincount(np.arange(count) % 4, minlength=4).tolist()
    splits = {"train": write_split(folder, "train", counts, items, shards)}
    np.save(folder / manifest.MEAN_ARRAY_FILE, np.full((SIDE, SIDE, 3), 127, np.float32))
    classification_manifest(labels, splits, SIDE, 3).save(folder)
    return folder


if __name__ == "__main__":
    main()
