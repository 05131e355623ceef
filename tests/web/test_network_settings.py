"""The recommended settings of a network, adapted to a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask

from digits.kinds.gradients.recipe import CreateGradients
from digits.kinds.jobs import DatasetJob
from digits.web import network_settings
from digits.web.standard_networks import network


@pytest.mark.parametrize(
    ("name", "size", "crop_size", "padding"),
    [
        ("resnet32", (32, 32), "", "4"),
        ("resnet32", (31, 40), "", "0"),
        ("resnet32", (8, 8), "", "0"),
        ("mobilenetv3", (256, 256), "224", "0"),
        ("mobilenetv3", (256, 224), "", "0"),
        ("regression", (64, 64), "", "4"),
    ],
)
def test_settings_suit_the_size_of_the_images(
    name: str, size: tuple[int, int], crop_size: str, padding: str, tmp_path: Path
) -> None:
    recipe = CreateGradients(width=size[0], height=size[1])
    dataset = DatasetJob(
        id="20260101-000000-abcdef",
        folder=tmp_path,
        name="sizes",
        recipe=recipe,
        tasks=DatasetJob.first_tasks(),
    )
    with Flask(__name__).test_request_context():
        settings = network_settings.settings_on(network(name), dataset)
    assert (settings["crop_size"], settings["aug_pad_crop"]) == (crop_size, padding)
    assert settings["learning_rate"] == network(name).values["learning_rate"]
