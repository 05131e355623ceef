"""The plan of generated gradients."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import Progress
from digits.kinds.gradients.ramps import draw_ramp
from digits.kinds.gradients.reader import DIRECTIONS, read
from digits.kinds.gradients.recipe import CreateGradients


def recipe(**changes: object) -> CreateGradients:
    return CreateGradients(
        **{"train_images": 40, "val_images": 10, "width": 12, "height": 8, "seed": 3} | changes
    )


def test_the_image_of_a_record_has_the_slopes_of_its_target():
    plan = read(recipe(), Progress())
    assert {name: len(split) for name, split in plan.splits.items()} == {"train": 40, "val": 10}
    assert plan.target.names == ["gradient_x", "gradient_y"]
    for split in plan.splits.values():
        for place, name in enumerate(split.files[:10]):
            pixels = np.asarray(Image.open(io.BytesIO(split.images.read(name)))).astype(float)
            assert pixels.shape == (8, 12)
            x, y = split.targets[place]
            across = (pixels[:, -1] - pixels[:, 0]).mean() / 255 * 12 / 11
            down = (pixels[-1] - pixels[0]).mean() / 255 * 8 / 7
            assert [across, down] == pytest.approx([x, y], abs=0.01)
            direction = ("bottom" if y >= 0 else "top") + (" right" if x >= 0 else " left")
            assert DIRECTIONS[split.groups[place]] == direction


def test_the_plan_depends_on_the_seed_only():
    slopes = read(recipe(), Progress()).splits["train"].targets
    assert read(recipe(), Progress()).splits["train"].targets == slopes
    assert read(recipe(seed=4), Progress()).splits["train"].targets != slopes
    assert read(recipe(val_images=0), Progress()).splits.keys() == {"train"}
    assert read(recipe(val_images=40), Progress()).splits["val"].targets != slopes


def test_a_ramp_without_slopes_is_gray_and_one_of_one_pixel_is_possible():
    assert np.unique(draw_ramp(0, 0, 5, 4)).tolist() == [128]
    assert draw_ramp(0.5, -0.5, 1, 1).shape == (1, 1, 1)
