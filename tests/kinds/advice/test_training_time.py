"""The expected duration of a training."""

from __future__ import annotations

import re
from typing import Any

import pytest

from digits.kinds.advice.training_time import (
    COSTS,
    REFERENCE_SPEED,
    TYPICAL_SHARES,
    Cost,
    core_speed,
    shares,
    training_seconds,
    variants,
)
from digits.kinds.standard_networks import every_network, network

SETTINGS = {"train_epochs": "10"}
IMAGES = {"train": 1000, "val": 100}


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COSTS, "some", Cost(5, 1000, 300, 400))


def seconds(settings: dict[str, str] = SETTINGS, cores: int = 1, **changes: Any) -> float | None:
    given: dict[str, Any] = {"network": "some", "images": IMAGES, "size": (100, 100), **changes}
    network, images, size = given["network"], given["images"], given["size"]
    speed = given.get("speed", REFERENCE_SPEED)
    return training_seconds(network, SETTINGS | settings, images, size, cores=cores, speed=speed)


def test_images_pixels_and_epochs_cost_time() -> None:
    # 10,000 images are trained and 1,100 validated, of 10,000 pixels each.
    assert seconds() == pytest.approx(5 + 100 + 3.3)
    assert seconds({"crop_size": "50"}) == pytest.approx(5 + 25 + 0.825)
    assert seconds(images={"train": 1000}) == pytest.approx(5 + 100)
    assert seconds({"val_interval": "5"}) == pytest.approx(5 + 100 + 0.9)
    assert seconds(speed=2 * REFERENCE_SPEED) == pytest.approx((5 + 100 + 3.3) / 2)
    assert 5 + 103.3 / 1.7 < (seconds(cores=2) or 0) < 5 + 103.3 / 1.4
    assert 5 + 103.3 / 4 < (seconds(cores=4) or 0) < 5 + 103.3 / 2


def test_the_head_is_trained_on_features_of_some_variants() -> None:
    tuned = {"fine_tune": "true", "head_epochs": "4"}
    images = {"train": 1000}
    assert seconds(tuned, images=images) == pytest.approx(5 + 16 + 3 + 60)
    assert seconds({**tuned, "aug_flip": "none"}, images=images) == pytest.approx(5 + 16 + 3 + 60)
    assert seconds({**tuned, "aug_flip": "fliplr"}, images=images) == pytest.approx(5 + 16 + 2 * 3 + 60)
    # In a single epoch, there is nothing to save.
    assert seconds({**tuned, "head_epochs": "1"}, images=images) == pytest.approx(5 + 4 + 3 + 90)
    assert [variants(epochs, True) for epochs in (0, 1, 2, 5, 8, 100)] == [1, 1, 1, 2, 4, 4]


def test_each_step_costs_time_whatever_the_size_of_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COSTS, "some", Cost(5, 1000, 300, 400, step=0.5))
    images = {"train": 1000}
    assert seconds({"batch_size": "4"}, images=images) == pytest.approx(5 + 100 + 2500 * 0.5)
    assert seconds({"batch_size": "4"}) == pytest.approx(5 + 100 + 3.3 + 2500 * 0.5 + 275 * 0.25)
    tuned = {"fine_tune": "true", "head_epochs": "4", "batch_size": "10"}
    assert seconds(tuned, images=images) == pytest.approx(5 + 16 + 3 + 60 + 600 * 0.5 + 100 * 0.25)


def test_the_time_of_a_head_is_a_share_of_that_of_all_layers() -> None:
    assert shares("some") == (0.3, 0.4)
    assert shares("custom") == TYPICAL_SHARES


def test_networks_resize_images() -> None:
    assert Cost(0, 0, 0, smallest=128).pixels(32, 64) == 128 * 256
    assert Cost(0, 0, 0, largest=80).pixels(160, 81) == 80 * 40.5
    assert Cost(0, 0, 0, largest=80).pixels(256, 256) == 64 * 64
    assert Cost(0, 0, 0, largest=80, original=0.5).pixels(256, 256) == 64 * 64 + 256 * 256 / 2
    assert Cost(0, 0, 0).pixels(300, 200) == 300 * 200
    for name, constant in (
        ("efficientnetlite", "SMALLEST"),
        *((n, "LARGEST") for n in ("unet", "regression", "multilabel")),
    ):
        found = re.search(rf"^{constant} = (\d+)$", network(name).text, re.MULTILINE)
        assert found and int(found[1]) == getattr(COSTS[name], constant.lower())


def test_what_is_unknown_has_no_duration() -> None:
    assert seconds(network="custom") is None
    assert seconds(images={}) is None


def test_the_costs_of_all_networks_are_known() -> None:
    unmeasured = {"autoencoder", "convnext", "gan", "textcnn", "vgg16", "vit"}
    assert set(every_network()) - set(COSTS) == unmeasured


def test_the_speed_of_a_core_is_measured_once() -> None:
    assert core_speed() == core_speed() > 0
