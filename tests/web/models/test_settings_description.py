"""The settings of a training in words."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from digits.core import recipe as recipes
from digits.core.events import InputPrepared
from digits.core.recipe import Augment, EarlyStopping, FineTune, Solver, Train
from digits.core.schedules import Step
from digits.kinds.detection.views import Views
from digits.web.models.settings_description import (
    describe_devices,
    describe_loading,
    describe_preprocessing,
    describe_settings,
)


def described(**settings: Any) -> dict[str, str]:
    return dict(describe_settings(Train(dataset="", **settings), Views()))


def test_settings_that_are_off_have_no_entry() -> None:
    assert described(epochs=2.0, solver=Solver(learning_rate=0.0123456789)) == {
        "Epochs": "2",
        "Batch size": "16",
        "Optimizer": "SGD",
        "Learning rate": "0.0123456789, fixed",
        "Mean subtraction": "image",
        "Precision": "float32",
    }


@pytest.mark.parametrize(
    ("settings", "title", "words"),
    [
        ({"epochs": 2.5}, "Epochs", "2.5"),
        (
            {"early_stopping": EarlyStopping(metric="map50")},
            "Epochs",
            "30; early stopping on mAP@50, patience 5",
        ),
        (
            {"batch_size": 8, "batch_accumulation": 4},
            "Batch size",
            "8, gradients accumulated over 4 batches",
        ),
        ({"solver": Solver(type="NESTEROV")}, "Optimizer", "SGD with Nesterov momentum 0.9"),
        ({"solver": Solver(type="RMSPROP")}, "Optimizer", "RMSProp, momentum 0.9, decay 0.99"),
        ({"solver": Solver(type="ADAM")}, "Optimizer", "Adam, β 0.9 and 0.999"),
        ({"solver": Solver(type="LION")}, "Optimizer", "Lion, β 0.9 and 0.999, weight decay 0.004"),
        ({"lr_policy": Step()}, "Learning rate", "0.01, step decay"),
        ({"weights": "/a/b/snapshot_1.ckpt"}, "Initial weights", "snapshot_1.ckpt"),
        ({"weights": "imagenet:resnet50"}, "Initial weights", "ImageNet, ResNet-50"),
        (
            {"fine_tune": FineTune()},
            "Fine-tuning",
            "Head first for 2 epochs at 0.003, then all layers with trunk factor 0.1",
        ),
        ({"freeze": ["conv1", "conv2"]}, "Frozen layers", "conv1, conv2"),
        ({"mean": "pixel"}, "Mean subtraction", "per channel"),
        ({"crop_size": 32}, "Random crop size", "32 px"),
        ({"balance": "sampling"}, "Class balancing", "oversampling of rare classes"),
        ({"precision": "mixed_bfloat16", "xla": False}, "Precision", "mixed bfloat16, no XLA"),
        ({"seed": 0}, "Seed", "0"),
        (
            {"augment": Augment(flip="fliplr", rotation=7.5, hsv_value=0.25, cutout=8, whitening=True)},
            "Augmentation",
            "horizontal flip, rotation ±7.5°, brightness 0.25, cutout 8 px, per-image standardization",
        ),
    ],
)
def test_a_setting_is_described(settings: dict[str, Any], title: str, words: str) -> None:
    assert described(**settings)[title] == words


def test_every_augmentation_has_words() -> None:
    choices: dict[str, tuple[str, ...]] = {
        "flip": get_args(recipes.Flip),
        "quad_rotation": get_args(recipes.QuadRotation),
    }
    for field in msgspec.structs.fields(Augment):
        for value in choices.get(field.name, (0, 1)):
            augment = Augment(**{field.name: value})
            assert ("Augmentation" in described(augment=augment)) == (augment != Augment()), (field, value)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("resident", "Cached in memory (2.0 kB of 3.0 kB available)"),
        ("streamed", "Streamed from disk (2.0 kB exceeds the 3.0 kB of memory available)"),
    ],
)
def test_the_loading_of_records_is_described(how: Any, words: str) -> None:
    assert describe_loading(InputPrepared("train", how, 5, 2000, 3000, 9000)) == words


def test_the_devices_have_the_numbers_of_the_driver() -> None:
    recipe = Train(dataset="", weights_on="cpu")
    assert describe_devices(recipe, []) == []
    assert describe_devices(recipe, ["cpu"]) == [("Device", "CPU")]
    assert describe_devices(recipe, ["2", "0"]) == [("Devices", "GPU 2, GPU 0; weights on the CPU")]


def test_an_imported_model_has_the_preprocessing_only() -> None:
    recipe = Train(dataset="", mean="none", crop_size=24, epochs=3)
    assert describe_preprocessing(recipe) == [("Mean subtraction", "none"), ("Random crop size", "24 px")]
