"""Previews of augmentations: the records as a training would see them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import recipe
from digits.core.recipe import Augment
from digits.core.results import augmentation_preview
from digits.core.results.augmentation_preview import AugmentationPreview
from tests.worker.conftest import Outcome


@pytest.fixture
def preview(tmp_path: Path, gradients: Path, perform: Any) -> Callable[..., Outcome]:
    """Return a function that previews an augmentation of the gradients."""

    def preview(**settings: Any) -> Outcome:
        task = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}" / "preview-augmentation"
        task.mkdir(parents=True)
        recipe.PreviewAugmentation(dataset=str(gradients), **settings).save(task)
        return perform(task)

    return preview


def load(outcome: Outcome) -> AugmentationPreview:
    assert outcome.code == 0, outcome.output
    return augmentation_preview.load(outcome.job_folder)


def decoded(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_variants_are_augmented_records_and_depend_on_the_seed(preview: Callable[..., Outcome]) -> None:
    flips = Augment(flip="fliplr")
    first, again, other = (load(preview(augment=flips, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first.records != other.records
    assert first.shape == (12, 12, 1)
    assert first.low < 0 < first.high  # the mean image is subtracted
    assert len(first.records) == 4
    found = set()
    for record in first.records:
        original = decoded(record.original.url)
        for variant in record.variants:
            pixels = decoded(variant.url)
            is_plain = np.array_equal(pixels, original)
            assert is_plain or np.array_equal(pixels, original[:, ::-1])
            assert variant.label == record.original.label
            found.add(is_plain)
    assert found == {True, False}


def test_crops_have_the_size_of_the_input_and_blended_labels_are_named(
    preview: Callable[..., Outcome],
) -> None:
    found = load(preview(mean="none", crop_size=9, augment=Augment(mixup=1.0), records=2, variants=3))
    assert found.shape == (9, 9, 1)
    labels = set()
    for record in found.records:
        assert (record.original.width, record.original.height) == (12, 12)
        assert [(item.width, item.height) for item in record.variants] == [(9, 9)] * 3
        labels |= {item.label for item in record.variants}
    assert all("%" in label for label in labels)


def test_an_impossible_augmentation_fails_with_the_message_of_a_training(
    preview: Callable[..., Outcome],
) -> None:
    outcome = preview(augment=Augment(cutout=13))
    assert "cutout is 13 pixels, more than the image has" in outcome.failure.message
