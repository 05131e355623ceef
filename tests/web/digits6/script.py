"""A script for DIGITS 6: the fields that it sends, and images for them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.site import Site

CLASSES = ("blue", "green", "red")
EACH = 10
SIDE = 16
# As DIGITS' own tests send it.
SEED = 0xCAFEBABE

# Starts at zero, so one epoch suffices for classes that differ in color.
CLASSIFIER = """
class UserModel(Tower):
    @model_property
    def inference(self):
        pixels = tf.reshape(self.x, [-1, self.input_shape[0] * self.input_shape[1] * self.input_shape[2]])
        zero = tf.constant_initializer(0.0)
        weights = tf.get_variable("weights", [pixels.shape[1], self.nclasses], initializer=zero)
        return tf.matmul(pixels, weights)

    @model_property
    def loss(self):
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return digits.classification_loss(self.inference, self.y)
"""
REGRESSOR = """
class UserModel(Tower):
    @model_property
    def inference(self):
        pixels = tf.reshape(self.x, [-1, self.input_shape[0] * self.input_shape[1] * self.input_shape[2]])
        zero = tf.constant_initializer(0.0)
        weights = tf.get_variable("weights", [pixels.shape[1], 2], initializer=zero)
        bias = tf.get_variable("bias", [2], initializer=zero)
        return tf.matmul(pixels * 0.004, weights) + bias

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference, tf.reshape(self.y, [-1, 2]))
"""


@dataclass(frozen=True)
class Script:
    """Sends requests without an ``Accept`` header, as most scripts do."""

    site: Site

    def dataset(self, **fields: Any) -> str:
        """Start creating a dataset of `class_folders`, and return its id."""
        wanted = {
            "dataset_name": "colors",
            "method": "folder",
            "folder_train": str(self.site.data / "colors"),
            "resize_channels": 3,
            "resize_width": SIDE,
            "resize_height": SIDE,
            "backend": "lmdb",
            "encoding": "png",
            "compression": "none",
        }
        return self.create("/datasets/images/classification.json", {**wanted, **fields})

    def model(self, dataset: str, route: str = "images/classification", **fields: Any) -> str:
        """Start a training with the fields that DIGITS' own tests send, and return its id."""
        wanted = {
            "model_name": "classifier",
            "group_name": "scripts",
            "dataset": dataset,
            "method": "custom",
            "custom_network": CLASSIFIER,
            "batch_size": 10,
            "train_epochs": 1,
            "framework": "tensorflow",
            "random_seed": SEED,
            "shuffle": "true",
        }
        return self.create(f"/models/{route}.json", {**wanted, **fields})

    def create(self, path: str, fields: dict[str, Any]) -> str:
        sent = {name: value for name, value in fields.items() if value is not None}
        answer = self.site.client.post(path, data=sent)
        assert answer.status_code == 200, answer.get_json()
        return str(answer.get_json()["id"])

    def finish(self, job_id: str) -> str:
        """Wait until a job is done, and return its id."""
        return self.site.wait_until_done(job_id)

    def picture(self, name: str, number: int = 0) -> Path:
        return self.site.data / "colors" / name / f"{number}.png"


def class_folders(folder: Path) -> None:
    """Create a folder of small images for each class, all in noisy shades of its color."""
    random = np.random.default_rng(0)
    for place, name in enumerate(reversed(CLASSES)):
        (folder / name).mkdir(parents=True)
        for number in range(EACH):
            pixels = random.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
            pixels[..., place] += 180
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def upload(content: str | bytes, name: str = "list.txt") -> tuple[io.BytesIO, str]:
    """Return a file for Flask's test client."""
    return io.BytesIO(content.encode() if isinstance(content, str) else content), name
