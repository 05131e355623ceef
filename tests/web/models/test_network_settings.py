"""The recommended settings of a network, adapted to a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask

from digits.core.recipe import CreateDataset
from digits.kinds.gradients.recipe import CreateGradients
from digits.kinds.jobs import DatasetJob
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.target_image_recipe import TargetImageFolders
from digits.web.models import network_settings
from digits.web.models.standard_networks import network, networks


@pytest.mark.parametrize(
    ("name", "size", "crop_size", "padding"),
    [
        ("resnet32", (32, 32), "", "4"),
        ("resnet32", (31, 40), "", "0"),
        ("resnet32", (8, 8), "", "0"),
        ("mobilenetv3", (256, 256), "224", "0"),
        ("mobilenetv3", (256, 224), "", "0"),
        ("regression", (64, 64), "", "4"),
        ("regression", (31, 31), "", "0"),
    ],
)
def test_settings_suit_the_size_of_the_images(
    name: str, size: tuple[int, int], crop_size: str, padding: str, tmp_path: Path
) -> None:
    settings = settings_on(name, CreateRegression(table="a.csv", width=size[0], height=size[1]), tmp_path)
    assert (settings["crop_size"], settings["aug_pad_crop"]) == (crop_size, padding)
    assert settings["learning_rate"] == network(name).values["learning_rate"]


def test_no_network_shifts_or_flips_gradients(tmp_path: Path) -> None:
    """Their targets are the slopes of the image, which other transformations change."""
    for name in networks(["image-gradients"]):
        settings = settings_on(name, CreateGradients(width=64, height=64), tmp_path)
        assert (settings["aug_pad_crop"], settings["aug_flip"], settings["crop_size"]) == ("0", "none", "")
    settings = settings_on("regression", CreateGradients(), tmp_path)
    assert settings["use_mean"] == "pixel"  # this is offered


def test_recommended_settings_for_regression_do_not_flip() -> None:
    """The target may be a position or an angle."""
    assert "aug_flip" not in network("regression").values


@pytest.mark.parametrize("name", ["unet", "segmenter"])
def test_segmentation_keeps_flips_and_contrast(name: str, tmp_path: Path) -> None:
    settings = settings_on(
        name,
        CreateSegmentation(train=TargetImageFolders(images="images", targets="masks"), width=128, height=128),
        tmp_path,
    )
    assert (settings["aug_flip"], settings["aug_contrast"]) == ("fliplr", "0.2")


def test_the_form_receives_the_settings_that_a_dataset_changes(tmp_path: Path) -> None:
    dataset = dataset_of(CreateGradients(width=16, height=16), tmp_path)
    with Flask(__name__).test_request_context():
        adapted = network_settings.adaptations(dataset)
        assert set(adapted) == set(networks(["image-gradients"]))
        for name, changes in adapted.items():
            settings = network_settings.settings_of(network(name))
            assert settings | changes == network_settings.settings_on(network(name), dataset)
            assert all(settings[field] != value for field, value in changes.items())
    assert adapted["regression"] == {"aug_pad_crop": "0"}


def settings_on(name: str, recipe: CreateDataset, folder: Path) -> dict[str, str]:
    with Flask(__name__).test_request_context():
        return network_settings.settings_on(network(name), dataset_of(recipe, folder))


def dataset_of(recipe: CreateDataset, folder: Path) -> DatasetJob:
    return DatasetJob(
        id="20260101-000000-abcdef",
        folder=folder,
        name="sizes",
        recipe=recipe,
        tasks=DatasetJob.first_tasks(),
    )
