"""Regression from TFRecord files: the mapping of features, in the form, and records that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.regression import reader
from digits.kinds.regression.recipe import CreateRegression, NumberRecords
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import example, picture, write_records


def levels(count: int = 12) -> list[bytes]:
    """Images with an angle, a position of two numbers, and an integer."""
    return [
        example(photo=picture(), angle=number / 2, spot=[float(number), -1.5], count=number)
        for number in range(count)
    ]


def plan(path: Path, *targets: str, **settings: Any) -> Plan:
    source = NumberRecords(train=str(path), target_features=list(targets))
    return reader.read(CreateRegression(records=source, pct_val=0, **settings), Progress())


def test_floats_are_targets_unless_features_are_named(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", levels())
    found = plan(path)
    assert found.target.names == ["angle", "spot 1", "spot 2"]
    assert found.splits["train"].targets[3] == [1.5, 3, -1.5]
    assert found.splits["train"].images.read("a.tfrecord:3") == picture()
    assert plan(path, "count").splits["train"].targets[3] == [3]
    integers = write_records(tmp_path / "b.tfrecord", [example(image=picture(), label=n) for n in range(3)])
    assert plan(integers).target.names == ["label"]


@pytest.mark.parametrize(
    ("record", "targets", "message"),
    [
        ({"photo": picture()}, (), r"a\.tfrecord, record 12: it has no feature “angle”"),
        ({"angle": 3}, ("angle",), "record 12: “angle” is int64, but float32 in the first record"),
        ({"angle": [0.5, 1.0]}, ("angle",), "“angle” has 2 numbers, but 1 in the first record"),
        ({"angle": float("nan")}, ("angle",), "“angle” contains NaN or infinity"),
        ({"angle": 1e35}, ("angle",), "1e\\+35 is out of range"),
        ({"angle": 0.5}, ("tilt",), "The first record has no feature “tilt”"),
        ({"angle": 0.5}, ("photo",), "“photo” is bytes instead of numbers"),
    ],
)
def test_records_without_usable_numbers_are_named(
    tmp_path: Path, record: dict[str, Any], targets: tuple[str, ...], message: str
) -> None:
    path = write_records(tmp_path / "a.tfrecord", [*levels(), example(**{"photo": picture(), **record})])
    with pytest.raises(UnusableSource, match=message):
        plan(path, *targets)


def test_records_become_a_dataset(tmp_path: Path) -> None:
    forms = Forms("image-regression", tmp_path / "data")
    path = write_records(tmp_path / "data" / "a.tfrecord", levels(), "gzip")
    fields: dict[str, Any] = {"method": "tfrecord", "record_train": path}
    found = forms.summary(**fields)
    assert [row[0] for row in found.table] == ["angle (target)", "count", "photo (image)", "spot (target)"]
    assert "Ranges: angle 0 to 5.5, spot 1 0 to 11, spot 2 -1.5 to -1.5." in found.facts
    assert "no feature “tilt”" in forms.errors(**fields, target_columns="tilt")["record_train"][0]
    assert list(forms.errors(method="tfrecord")) == ["record_train"]
    made = forms.create(**fields, target_columns="angle, count", resize_width=8, resize_height=6)
    assert made.manifest.target.names == ["angle", "count"]
