"""How many labels the order of the product saves, and how many boxes its proposals save: an oracle labels over HTTP.

    python benchmarks/active_learning.py TASK --folder FOLDER [--seeds 5] [--first-seed 0] [--pool 3000]
        [--weights FOLDER]

FOLDER contains a sample as `digits download-data` writes it. TASK is

    fashion-mnist   LeNet is trained from random weights
    cifar10         the head of EfficientNet-Lite0 is trained, on ImageNet weights in the folder of ``--weights``, or
                    downloaded ones
    digits          the small detector is trained on images of 128×128 with 3 to 6 digits of MNIST

A seed determines the pool of images, which are listed without classes. They are answered in the order of ``next.json``,
validation and test images among them; at some numbers of labels, these are frozen, and a model is trained, evaluated on
other images, and proposes labels for the next ones. Other labels of the same images are answered in random order.

For classes, the result is how many labels the order of the product needs for the accuracy that random order reaches
with 1,000: where a monotone curve through its accuracies (isotonic regression) crosses it; and for five seeds the mean
with its upper bound at 95% confidence (Student's t). For boxes, it is the mAP with both orders, and the share of the
objects of the next 40 images for which a box of their class with an IoU of at least 0.8 is proposed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from product import Product, product
from scipy.optimize import isotonic_regression
from scipy.stats import t as student

from digits.data.images import images

TEST_IMAGES = 2000
# Of the listed images, as the product divides them.
TRAINING_SHARE = 0.75
CLASS_COUNTS = (20, 100, 200, 300, 400, 500, 650, 800)
RANDOM = 1000
BOX_COUNTS = (50, 100, 200)
SIDE = 128


class Task(NamedTuple):
    """What is trained: the settings of models, of which each runs this number of steps."""

    kind: str
    steps: int
    settings: dict[str, Any]


_ADAM = {"solver_type": "ADAM", "learning_rate": 0.001, "use_mean": "none", "batch_size": 32}
_HEAD = {"fine_tune": "true", "pretrained": "efficientnetlite"}
_DETECTOR = {"solver_type": "ADAM", "learning_rate": 0.002, "lr_policy": "cosine", "batch_size": 8}
TASKS = {
    "fashion-mnist": Task("classification", 600, {"standard_networks": "lenet", **_ADAM}),
    "cifar10": Task("classification", 200, {"standard_networks": "efficientnetlite", **_ADAM, **_HEAD}),
    "digits": Task("detection", 1500, {"standard_networks": "detector", "use_mean": "pixel", **_DETECTOR}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--weights", type=Path)
    options = parser.parse_args()
    weights = [f"--weights-source={options.weights.resolve()}"] if options.weights else []
    shares = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        with tempfile.TemporaryDirectory() as name, product(Path(name), "--data-root=/", *weights) as server:
            task = TASKS[options.task]
            of_kind = _Digits if task.kind == "detection" else _Classes
            oracle = of_kind(server, task, Path(name), options.folder, options.pool, seed)
            shares += oracle.measure()
    if len(shares) > 1:
        error = statistics.stdev(shares) / len(shares) ** 0.5
        bound = statistics.mean(shares) + student.ppf(0.95, len(shares) - 1) * error
        print(f"{statistics.mean(shares):.0%} of the labels, upper bound {bound:.0%}")


class _Oracle:
    """Knows the ``answers`` for the images of a pool by their names, which do not reveal them."""

    metric = "accuracy"

    def __init__(
        self, server: Product, task: Task, scratch: Path, folder: Path, pool: int, seed: int
    ) -> None:
        self.server, self.task, self.seed, self.chance = server, task, seed, random.Random(seed)
        self.names = sorted(item.name for item in (folder / "train").iterdir())
        self.pool, self.test_folder = scratch / "pool", scratch / "test"
        self.pool.mkdir()
        self.answers = self.write(folder, pool)
        self.test = self.test_dataset(folder)

    def write(self, folder: Path, count: int) -> dict[str, Any]:
        """Write the images of the pool; return the answers."""
        raise NotImplementedError

    def test_dataset(self, folder: Path) -> str:
        """Create a dataset of other images; return its id."""
        raise NotImplementedError

    def measure(self) -> list[float]:
        """Train, print and return the shares of the labels that the order of the product needs."""
        raise NotImplementedError

    def result_of_random_order(self, *counts: int) -> Iterator[float]:
        labels, done = self._begin("Random order"), 0
        order = list(self.server.label_images(labels))
        self.chance.shuffle(order)
        for count in counts:
            self._answer(labels, [(image.n, image.path) for image in order[done:count]])
            done = count
            yield self._result(self._train(labels, count))

    def results_of_product(self, *counts: int) -> Iterator[tuple[str, int, float]]:
        """Yield the id of the labels, how many there are, and the result of the model that was trained with them."""
        labels, done = self._begin("Order of the product"), 0
        for count in counts:
            while done < count:
                found = self.next(labels, min(20, count - done))
                self._answer(labels, [(image["n"], image["path"]) for image in found])
                done += len(found)
            model = self._train(labels, count)
            result = self._result(model)
            self.server.propose(labels, model)
            yield labels, count, result

    def next(self, labels: str, count: int, split: str = "", client: str = "oracle") -> list[dict[str, Any]]:
        path = f"/labels/{labels}/next.json?client={client}&count={count}&split={split}"
        return list(self.server.json("GET", path)["images"])

    def _begin(self, name: str) -> str:
        job = self.server.create_labels(name, f"images/{self.task.kind}", self.pool, self.names)
        self.server.wait(job.id)
        return str(job.id)

    def _answer(self, labels: str, listed: list[tuple[int, str]]) -> None:
        for number, path in listed:
            self.server.save_label(labels, number, 0, state="labeled", **self.answers[path])

    def _train(self, labels: str, count: int) -> str:
        frozen = self.server.freeze(labels, "Labels so far")
        self.server.wait(frozen.id)
        settings = dict(self.task.settings)
        epochs = max(1, round(self.task.steps * settings["batch_size"] / (TRAINING_SHARE * count)))
        if "fine_tune" in settings:
            settings["head_epochs"] = epochs
        settings |= {"method": "standard", "train_epochs": epochs, "val_interval": epochs}
        model = self.server.create_model("Benchmark", frozen.id, random_seed=self.seed, **settings)
        return self.server.finished(model)

    def _result(self, model: str) -> float:
        return float(self.server.evaluate(model, "val", dataset=self.test).metrics[self.metric])

    def say(self, text: str) -> None:
        print(f"seed {self.seed}, {text}", flush=True)


class _Classes(_Oracle):
    def write(self, folder: Path, count: int) -> dict[str, Any]:
        answers = {}
        for path in self.chance.sample(sorted((folder / "train").glob("*/*")), count):
            name = f"{len(answers):06}{path.suffix}"
            shutil.copy(path, self.pool / name)
            answers[name] = {"label": self.names.index(path.parent.name)}
        return answers

    def test_dataset(self, folder: Path) -> str:
        side, channels = (28, 1) if self.task.settings["standard_networks"] == "lenet" else (32, 3)
        limits = {"folder_train_max_per_class": TEST_IMAGES // len(self.names), "folder_pct_val": 90}
        return self.server.dataset_of(folder / "test", side, channels, **limits)

    def measure(self) -> list[float]:
        (reached,) = self.result_of_random_order(RANDOM)
        self.say(f"random order, {RANDOM} labels: {reached:.1%}")
        accuracies = []
        for _, count, accuracy in self.results_of_product(*CLASS_COUNTS):
            self.say(f"order of the product, {count} labels: {accuracy:.1%}")
            accuracies.append(accuracy)
        share = labels_needed(accuracies, reached) / RANDOM
        self.say(f"{share:.0%} of the labels")
        return [share]


def labels_needed(accuracies: list[float], reached: float) -> float:
    """Return where the curve through the accuracies at `CLASS_COUNTS` reaches one; `RANDOM` if it does not."""
    curve = isotonic_regression(accuracies).x
    if curve[-1] < reached:
        return RANDOM
    place = int(np.argmax(curve >= reached))
    if place == 0:
        return CLASS_COUNTS[0]
    share = (reached - curve[place - 1]) / (curve[place] - curve[place - 1])
    return float(CLASS_COUNTS[place - 1] + share * (CLASS_COUNTS[place] - CLASS_COUNTS[place - 1]))


class _Digits(_Oracle):
    metric = "map50"

    def write(self, folder: Path, count: int) -> dict[str, Any]:
        return self._scenes(folder / "train", self.pool, count)

    def test_dataset(self, folder: Path) -> str:
        self.test_folder.mkdir()
        listed, boxes = [], []
        for name, answer in self._scenes(folder / "test", self.test_folder, 400).items():
            listed.append({"id": len(listed), "file_name": name, "width": SIDE, "height": SIDE})
            for item in answer["objects"]:
                left, top, right, bottom = item["box"]
                box = {"image_id": listed[-1]["id"], "bbox": [left, top, right - left, bottom - top]}
                boxes.append({"id": len(boxes), "category_id": item["class"], "iscrowd": 0, **box})
        classes = [{"id": number, "name": name} for number, name in enumerate(self.names)]
        file = self.test_folder / "annotations.json"
        file.write_text(json.dumps({"images": listed, "annotations": boxes, "categories": classes}))
        size = {"resize_image_width": SIDE, "resize_image_height": SIDE}
        source = {"train_image_folder": self.test_folder, "train_label_folder": file, "pct_val": 75}
        return self.server.finished(self.server.create_dataset("images/detection", "Test", **source, **size))

    def _scenes(self, digits: Path, target: Path, count: int) -> dict[str, Any]:
        """Write images with digits in random places, which do not overlap; return their boxes."""
        paths, answers = sorted(digits.glob("*/*")), {}
        for number in range(count):
            scene, objects = np.zeros((SIDE, SIDE, 1), np.uint8), []
            cells = self.chance.sample(range(16), self.chance.randint(3, 6))
            for cell, path in zip(cells, self.chance.sample(paths, len(cells)), strict=True):
                pixels = images.load(path, 1)
                top, left = (
                    (cell // 4) * 32 + self.chance.randrange(5),
                    (cell % 4) * 32 + self.chance.randrange(5),
                )
                scene[top : top + 28, left : left + 28] = pixels
                rows, columns = (np.flatnonzero((pixels > 60).any(axis=(axis, 2))) for axis in (1, 0))
                box = [left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1]
                objects.append(
                    {"class": self.names.index(path.parent.name), "box": [int(edge) for edge in box]}
                )
            name = f"{number:06}.png"
            (target / name).write_bytes(images.encode(scene, "png"))
            answers[name] = {"objects": objects}
        return answers

    def measure(self) -> list[float]:
        results = list(self.result_of_random_order(*BOX_COUNTS))
        for (labels, count, result), other in zip(self.results_of_product(*BOX_COUNTS), results, strict=True):
            shares = self._proposed(labels)
            self.say(f"{count} labels: mAP {result:.3f}, in random order {other:.3f}; {shares}")
        return []

    def _proposed(self, labels: str) -> str:
        """Compare the proposals for the next training images with the answers."""
        found = objects = proposed = 0
        # A client gets at most 20 images at once, and others than those before.
        asked = [self.next(labels, 20, "train", client) for client in ("first", "second")]
        for image in itertools.chain(*asked):
            described = self.server.json("GET", f"/labels/{labels}/images/{image['n']}.json")
            boxes = described["predicted"]["objects"] if "predicted" in described else []
            true = self.answers[image["path"]]["objects"]
            found += sum(
                any(
                    box["class"] == item["class"] and _overlap(box["box"], item["box"]) >= 0.8
                    for box in boxes
                )
                for item in true
            )
            objects, proposed = objects + len(true), proposed + len(boxes)
        return (
            f"{found / objects:.0%} of {objects} objects of the next images proposed, with {proposed} boxes"
        )


def _overlap(a: list[float], b: list[float]) -> float:
    """Return the intersection of two boxes over their union."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width * height / (areas - width * height)


if __name__ == "__main__":
    main()
