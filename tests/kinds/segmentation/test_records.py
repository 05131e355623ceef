"""Masks in TFRecord files: the mapping of features, over HTTP, and records that cannot be used."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.images.images import Geometry, UnusableImage
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageRecords
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import example, picture, write_records

GEOMETRY = Geometry((8, 6), 8, 6, "squash")


def mask(row: int, size: tuple[int, int] = (8, 6)) -> bytes:
    """A mask whose pixels below ``row`` have the class 1."""
    pixels = np.zeros(size[::-1], np.uint8)
    pixels[row:] = 1
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def scenes(count: int = 12) -> list[bytes]:
    return [
        example(photo=picture(), mask=mask(1 + number % 5), raw=bytes(48), name=b"a")
        for number in range(count)
    ]


def plan(path: Path, **features: Any) -> Plan:
    source = TargetImageRecords(train=str(path), **features)
    settings: dict[str, Any] = {"width": 8, "height": 6, "processes": 1, "pct_val": 25.0, "seed": 1}
    return reader.read(CreateSegmentation(records=source, **settings), Progress())


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_masks_are_read_from_the_records_of_their_images(tmp_path: Path, compression: str) -> None:
    found = plan(write_records(tmp_path / "a.tfrecord", scenes(), compression))
    assert found.target.names == ["background", "class 1"]
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 9, "val": 3}
    files = [name for split in found.splits.values() for name in split.files]
    assert sorted(files) == sorted(f"a.tfrecord:{number}" for number in range(12))
    for split in found.splits.values():
        numbers = [int(name.rpartition(":")[2]) for name in split.files]
        assert numbers == sorted(numbers)
        for place, number in enumerate(numbers):
            stored = found.features(split, place, GEOMETRY)[found.target.feature][0]
            pixels = np.asarray(Image.open(io.BytesIO(stored)))  # type: ignore[arg-type]
            assert pixels[:, 0].tolist() == [int(row >= 1 + number % 5) for row in range(6)]


def test_masks_can_be_raw_bytes(tmp_path: Path) -> None:
    found = plan(write_records(tmp_path / "a.tfrecord", scenes()), target_feature="raw", shape=[6, 8])
    split = found.splits["train"]
    stored = found.features(split, 0, GEOMETRY)[found.target.feature][0]
    assert not np.asarray(Image.open(io.BytesIO(stored))).any()  # type: ignore[arg-type]


def test_a_mask_of_another_size_is_skipped_with_its_image(tmp_path: Path) -> None:
    records = [example(photo=picture(), mask=mask(2, (4, 3))), *scenes()]
    found = plan(write_records(tmp_path / "a.tfrecord", records))
    split, place = next(
        (split, split.files.index("a.tfrecord:0"))
        for split in found.splits.values()
        if "a.tfrecord:0" in split.files
    )
    with pytest.raises(UnusableImage, match="tfrecord:0: it has 4×3 pixels, but the image has 8×6"):
        found.features(split, place, GEOMETRY)


@pytest.mark.parametrize(
    ("record", "features", "message"),
    [
        ({"photo": picture()}, {}, r"a\.tfrecord, record 12: it has no feature “mask”"),
        ({}, {"target_feature": "label"}, "The first record has no feature “label”"),
        ({}, {"target_feature": "name"}, "No label image can be used"),
    ],
)
def test_records_without_masks_are_named(
    tmp_path: Path, record: dict[str, Any], features: dict[str, str], message: str
) -> None:
    records = [*scenes(), example(**record)] if record else scenes()
    with pytest.raises(UnusableSource, match=message):
        plan(write_records(tmp_path / "a.tfrecord", records), **features)
    path = write_records(tmp_path / "b.tfrecord", [example(photo=picture())])
    with pytest.raises(UnusableSource, match="None of the features looks like a label image"):
        plan(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UnusableSource, match=r"b\.tfrecord, record 0: truncated"):
        plan(path)


def test_records_become_a_dataset(tmp_path: Path) -> None:
    forms = Forms("image-segmentation", tmp_path / "data")
    odd = example(photo=picture(), mask=mask(1, (2, 2)))
    fields = {"method": "tfrecord", "record_train": write_records(forms.data / "a", [*scenes(), odd])}
    found = forms.summary(**fields)
    assert [row[0] for row in found.table] == ["mask (target)", "name", "photo (image)", "raw"]
    assert "2 classes: background, class 1." in found.facts
    assert "label image a:12: it has 2×2 pixels, but the image has 8×6" in found.problems[0]
    assert "no feature “tilt”" in forms.errors(**fields, target_feature="tilt")["record_train"][0]
    made = forms.create(**fields, resize_width=8, resize_height=6, max_unusable_percent=20)
    assert made.manifest.target.names == ["background", "class 1"] and made.manifest.skipped == 1
