"""Labels in TFRecord files: lists and 0/1 features, in the form, and records that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.multilabel import reader
from digits.kinds.multilabel.recipe import CreateMultilabel, LabelRecords
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import example, picture, write_records

Values = list[dict[str, Any]]


def plan(path: Path, *features: str, **settings: Any) -> Plan:
    if "labels" in settings:
        (path.parent / "names.txt").write_text("land\nsea\nsky\n")
        settings["labels"] = str(path.parent / settings["labels"])
    source = LabelRecords(train=str(path), label_features=list(features), **settings)
    return reader.read(CreateMultilabel(records=source, pct_val=0), Progress())


def records(folder: Path, *values: dict[str, Any]) -> Path:
    """Write records with an image and ``values`` each."""
    return write_records(folder / "a.tfrecord", [example(image=picture(), **item) for item in values])


def labels(found: Plan) -> list[list[str]]:
    """The labels of each training image."""
    names = found.target.names
    return [
        [name for name, value in zip(names, target, strict=True) if value]
        for target in found.splits["train"].targets
    ]


NAMED, COLUMNS, LIST = {"labels": "names.txt"}, {"layout": "columns"}, {"layout": "list"}
SIZED = [{"sea": 1, "sky": 0, "width": 8}, {"sea": 1, "sky": 1, "width": 8}]


@pytest.mark.parametrize(
    ("values", "features", "settings", "expected"),
    [
        # A list of class numbers, or of texts; a feature with a usual name is detected.
        ([{"labels": [10, 2]}, {"labels": []}, {"labels": 2}], (), {}, [["2", "10"], [], ["2"]]),
        ([{"labels": [b"sky", b"sea"], "id": 1}, {"labels": b"sky"}], (), {}, [["sea", "sky"], ["sky"]]),
        ([{"found": [1, 2]}, {"found": [0]}], ("found",), NAMED, [["sea", "sky"], ["land"]]),
        # 0 or 1 for each label, in features of their own or in one.
        (SIZED, (), {}, [["sea"], ["sea", "sky"]]),
        ([{"sea": 1.0, "sky": 0.0}, {"sea": -1.0, "sky": 1.0}], ("sky", "sea"), {}, [["sea"], ["sky"]]),
        ([{"labels": [0, 1, 1]}, {"labels": [1, 0, 0]}], (), NAMED, [["sea", "sky"], ["land"]]),
        ([{"y": [0, 1]}, {"y": [1, 1]}], (), COLUMNS, [["y 1"], ["y 0", "y 1"]]),
    ],
)
def test_the_labels_of_records(
    tmp_path: Path,
    values: Values,
    features: tuple[str, ...],
    settings: dict[str, str],
    expected: list[list[str]],
) -> None:
    found = plan(records(tmp_path, *values), *features, **settings)
    assert labels(found) == expected
    assert found.splits["train"].images.read("a.tfrecord:0") == picture()


@pytest.mark.parametrize(
    ("values", "features", "settings", "message"),
    [
        (
            [{"sea": 1, "sky": 0}, {"sea": 2, "sky": 0}],
            (),
            {},
            "record 1: “sea” has the value 2, which is not 0 or 1",
        ),
        ([{"sea": 1, "sky": 0}, {"sea": 1}], (), {}, "record 1: it has no feature “sky”"),
        ([{"sea": 1}, {"sea": [1, 0]}], ("sea",), COLUMNS, "“sea” has 2 numbers, but 1 in the first"),
        ([{"labels": 1}, {"labels": b"sea"}], (), {}, "“labels” is bytes, but int64 in earlier records"),
        ([{"labels": [0.5, 1.0]}], (), LIST, "“labels” is float32 instead of integers or strings"),
        ([{"labels": 3}], (), NAMED, "the class 3 is none of the named ones, 0 to 2"),
        ([{"labels": [1, 0, 0, 0]}], (), NAMED, "“labels” has 4 numbers, but there are 3 names"),
        ([{"sea": 1}], ("tilt",), {}, "The first record has no feature “tilt”"),
        ([{"text_length": 7}], (), {}, "None of the features looks like labels"),
        ([{"labels": []}], (), {}, "The records have no labels"),
        ([{"sea": 1, "sky": 0}], ("sea", "sky"), LIST, "Several features may list the labels"),
    ],
)
def test_records_without_usable_labels_are_named(
    tmp_path: Path, values: Values, features: tuple[str, ...], settings: dict[str, str], message: str
) -> None:
    with pytest.raises(UnusableSource, match=message):
        plan(records(tmp_path, *values), *features, **settings)


def test_records_become_a_dataset(tmp_path: Path) -> None:
    forms = Forms("image-multilabel", tmp_path / "data")
    names = tmp_path / "data" / "names.txt"
    names.write_text("land\nsea\nsky\n")
    values = [{"found": [number % 3, 1], "size": number} for number in range(12)]
    path = records(tmp_path / "data", *values, {"found": [], "size": 0})
    fields: dict[str, Any] = {"method": "tfrecord", "record_train": path, "label_columns": "found"}
    fields |= {"record_labels": names, "layout": "list"}
    found = forms.summary(**fields)
    assert [row[0] for row in found.table] == ["found (label)", "image (image)", "size"]
    assert found.facts[2:4] == ["A feature lists the labels.", "3 labels, on average 1.5 per image."]
    assert found.problems == ["1 train image has no labels: a.tfrecord:12."]
    assert found.bars == [("land", 4), ("sea", 12), ("sky", 4)]
    assert "no feature “tilt”" in forms.errors(**fields | {"label_columns": "tilt"})["record_train"][0]
    made = forms.create(**fields, resize_width=8, resize_height=6)
    assert made.manifest.target.names == ["land", "sea", "sky"]
