"""The recommended settings of standard networks on small datasets of their kinds: the loss falls within a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask import Flask
from PIL import Image

from digits.core.events import Finished
from digits.data.models.pretrained import WeightsPlaces
from digits.kinds.advice.recommendation import Resources, facts_in, recommend
from digits.web.models.network_settings import save_recommended
from tests.kinds.dataset_forms import Forms
from tests.worker.conftest import SECONDS_ALLOWED

STEPS = 100


def _squares(folder: Path) -> None:
    """Write 24 noisy images of a bright square, the same ones without noise, and masks of the squares."""
    random = np.random.default_rng(1)
    for number in range(24):
        top, left = random.integers(0, 44, 2)
        mask = np.zeros((64, 64), np.uint8)
        mask[top : top + 20, left : left + 20] = 255
        clean = 60 + mask // 2
        noisy = (clean + random.normal(0, 20, clean.shape)).clip(0, 255).astype(np.uint8)
        for name, pixels in (("images", noisy), ("clean", clean), ("masks", mask)):
            (folder / name).mkdir(exist_ok=True)
            Image.fromarray(pixels).convert("L" if name == "masks" else "RGB").save(
                folder / name / f"{number}.png"
            )


def _bars(folder: Path) -> None:
    """Write 20 images of each of two classes: a bright bar that is vertical or horizontal, anywhere."""
    random = np.random.default_rng(1)
    for name, axis in (("vertical", 1), ("horizontal", 0)):
        (folder / name).mkdir()
        for number in range(20):
            pixels = random.normal(40, 10, (28, 28)).clip(0, 255).astype(np.uint8)
            place = [slice(None), slice(None)]
            start = random.integers(0, 22)
            place[axis] = slice(start, start + 6)
            pixels[tuple(place)] = 220
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def _texts(folder: Path) -> None:
    words = {"animal": ("dog", "cat", "sparrow", "whale"), "place": ("village", "river", "city", "lake")}
    random = np.random.default_rng(1)
    rows = [f'{name},"{" ".join(random.choice(words[name], 5))}"' for name in words for _ in range(100)]
    (folder / "texts.csv").write_text("\n".join(["class,text", *rows]))


@dataclass(frozen=True)
class Case:
    """A dataset of a ``kind`` whose form has ``fields``; values that are names of files are in its folder.

    Without a ``network``, the recommended one is trained. Its ``metric`` falls to the fraction ``left`` or less.
    """

    kind: str
    write: Callable[[Path], None]
    fields: dict[str, Any]
    network: str = ""
    metric: str = "loss"
    left: float = 0.7


_MASKS = {"feature_folder": "images", "label_folder": "masks"}
_FOLDER = {"folder_train": "."}
CASES = {
    "unet": Case("image-segmentation", _squares, _MASKS),
    "segmenter": Case("image-segmentation", _squares, _MASKS, "segmenter"),
    "dncnn": Case("image-processing", _squares, {"feature_folder": "images", "label_folder": "clean"}),
    "siamese": Case("image-pairs", _bars, {"pair_source": ".", "pair_count": 200, "resize_channels": 1}),
    "textcnn": Case("text-classification", _texts, {"train_data_file": "texts.csv"}),
    "gan": Case("image-gan", _bars, {"image_folder": "vertical"}, metric="discriminator_loss"),
    "autoencoder": Case("image-classification", _bars, {**_FOLDER, "resize_channels": 1}, "autoencoder"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_the_loss_falls_with_the_recommended_settings(tmp_path: Path, start: Any, name: str) -> None:
    case, data = CASES[name], tmp_path / "data"
    data.mkdir()
    case.write(data)
    side = 64 if case.write is _squares else 28
    size = {} if case.kind == "text-classification" else {"resize_width": side, "resize_height": side}
    fields = {
        key: data / value if isinstance(value, str) and (data / value).exists() else value
        for key, value in case.fields.items()
    }
    made = Forms(case.kind, data).create(**size, **fields)
    best = recommend(facts_in(made.manifest), Resources(), case.network)
    assert best and best.network == name
    train = made.manifest.splits["train"].count
    steps_per_epoch = train / int(best.settings["batch_size"])
    epochs = min(int(best.settings["train_epochs"]), round(STEPS / steps_per_epoch))
    best.settings.update(train_epochs=str(epochs), val_interval="0", snapshot_interval="0")
    places = WeightsPlaces(tmp_path / "weights")
    with Flask("digits").app_context():  # for the form
        save_recommended(tmp_path / "model", best, made.folder, places, Resources())
    outcome = start(tmp_path / "model" / "train").wait(2 * SECONDS_ALLOWED)
    assert isinstance(outcome.events[-1], Finished), outcome.output
    losses = outcome.values("train", case.metric)
    tenth = max(1, len(losses) // 10)
    first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
    assert last < case.left * first, f"{name}: {first:.3f} to {last:.3f} in {epochs} epochs"
