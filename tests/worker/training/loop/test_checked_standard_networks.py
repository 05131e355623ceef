"""The check before a training has nothing to say about the standard networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events
from digits.data import manifest
from digits.data.images import images
from digits.data.records import records
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.kinds.standard_networks import network
from tests.datasets import manifest_of
from tests.worker.conftest import gradient

nightly = pytest.mark.nightly
CLASSES = ["right", "left", "down", "up"]


def target_of(kind: str, size: int) -> Target:
    targets: dict[str, Target] = {
        "image-classification": ClassIndex.of(CLASSES),
        "image-object-detection": Boxes.of(CLASSES, 120),
        "image-segmentation": Mask.of(CLASSES, size, size),
        "image-multilabel": LabelSet.of(CLASSES, [0.5] * 4, [0.5] * 4),
        "image-regression": Numbers.of(["x", "y"], [10.0, 20.0], [5.0, 9.0]),
        "image-processing": TargetImage.of(size, size, 3),
    }
    return targets[kind]


def value_of(kind: str, label: int, pixels: np.ndarray, random: np.random.Generator) -> Any:
    size = len(pixels)
    if kind == "image-object-detection":
        return np.array([[2, 2, size / 2, size / 2, label]], np.float32)
    if kind == "image-segmentation":
        return np.full((size, size), label, np.uint8)
    if kind == "image-multilabel":
        return random.integers(0, 2, 4).astype(float).tolist()
    if kind == "image-regression":
        return [10.0 + 5 * label, 20.0 + 9 * label]
    return pixels if kind == "image-processing" else label


def write(folder: Path, kind: str, size: int) -> Path:
    """Write a dataset of a ``kind`` with 32 images of ``size``, and return its folder."""
    folder.mkdir()
    target, random, splits = target_of(kind, size), np.random.default_rng(1), {}
    for split, count in (("train", 32), ("val", 8)):
        name = records.shard_name(split, 0, 1)
        writer = records.ShardWriter(folder / name)
        for number in range(count):
            pixels = gradient(number % 4, size, 3, random)
            record = records.Record(
                data=images.encode(pixels, "png"), format="png", height=size, width=size, channels=3,
                features=target.encode(value_of(kind, number % 4, pixels, random), size, size),
                source=f"{number}.png".encode(),
            )  # fmt: skip
            writer.add(records.encode_example(record), 0)
        writer.close()
        splits[split] = manifest.SplitRecords(
            count=count, counts=[count], bytes=0, shards=[name], hashes=[writer.sha256]
        )
    np.save(folder / manifest.MEAN_ARRAY_FILE, np.full((size, size, 3), 120, np.float32))
    about = {"kind": kind, "groups": ["all"], "splits": splits, "mean_pixel": [120.0] * 3}
    manifest_of(target, side=size, channels=3, **about).save(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        ("lenet", "image-classification", 28),
        ("resnet32", "image-classification", 32),
        ("detector", "image-object-detection", 64),
        ("unet", "image-segmentation", 32),
        *(
            pytest.param(*each, marks=nightly)
            for each in (
                ("alexnet", "image-classification", 128),
                ("googlenet", "image-classification", 128),
                ("vgg16", "image-classification", 64),
                ("resnet50", "image-classification", 64),
                ("efficientnetlite", "image-classification", 64),
                ("efficientnetv2", "image-classification", 64),
                ("mobilenetv3", "image-classification", 64),
                ("convnext", "image-classification", 64),
                ("resnet50", "image-regression", 64),
                ("lenet", "image-multilabel", 28),
                ("fpn", "image-object-detection", 64),
                ("segmenter", "image-segmentation", 64),
                ("segmenter_resnet50", "image-segmentation", 64),
                ("multilabel", "image-multilabel", 32),
                ("regression", "image-regression", 32),
                ("autoencoder", "image-processing", 32),
                ("dncnn", "image-processing", 32),
                ("gan", "image-classification", 32),
            )
        ),
    ],
)
def test_a_standard_network_causes_no_warning(
    preflight: Any, tmp_path: Path, name: str, kind: str, size: int
) -> None:
    outcome = preflight(
        network(name).text, dataset=str(write(tmp_path / "dataset", kind, size)), epochs=30, batch_size=4,
        solver={"type": "ADAM", "learning_rate": 0.001}, mean="pixel",
    )  # fmt: skip
    assert outcome.code == 0, outcome.output
    assert [event.message for event in outcome.of(events.Warned)] == []
