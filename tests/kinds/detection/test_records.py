"""Objects in TFRecord files: the mapping of features, over HTTP, and records that cannot be used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from digits.data.records.example_pb2 import Example
from digits.data.records.files import RecordFiles
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.targets.box_matching import IGNORED_BOX
from digits.kinds.detection import reader
from digits.kinds.detection.recipe import BoxRecords, CreateDetection
from digits.kinds.detection.records import BoxMapping
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import example, picture, write_records

BOX = "image__object__bbox__"
LABEL_MAP = "item {\n  id: 1\n  name: 'cat'\n}\nitem {\n  name: \"n2\"\n  id: 2\n  display_name: 'dog'\n}\n"


def scene(*boxes: tuple[float, float, float, float], label: int = 1, **others: Any) -> bytes:
    """A record as the Object Detection API writes it: an image of 8×6 pixels with boxes of one class."""
    features: dict[str, Any] = {"image__encoded": picture()}
    for place, edge in enumerate(("xmin", "ymin", "xmax", "ymax")):
        features[BOX + edge] = [float(box[place]) for box in boxes]
    features["image__object__class__label"] = [label] * len(boxes)
    features["image__object__class__text"] = [b"cat" if label == 1 else b"dog"] * len(boxes)
    merged = {**features, **others}
    return example(**{name: value for name, value in merged.items() if value is not None and value != []})


def scenes() -> list[bytes]:
    left, right = (0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)
    return [scene(left, right), scene(right, label=2), scene(), *[scene(left) for _ in range(5)]]


def plan(path: Path, **settings: Any) -> Plan:
    source = BoxRecords(train=str(path), **settings)
    return reader.read(CreateDetection(records=source, pct_val=0, width=8, height=6, seed=1), Progress())


def test_objects_are_read_in_pixels(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", scenes(), "gzip")
    found = plan(path)
    split = found.splits["train"]
    assert found.target.names == ["cat", "dog"] and found.target.shape == [2, 5]
    assert split.files == [f"a.tfrecord:{number}" for number in range(8)]
    assert split.targets[0].tolist() == [[0, 0, 4, 3, 0], [4, 3, 8, 6, 0]]
    assert split.targets[1].tolist() == [[4, 3, 8, 6, 1]] and not len(split.targets[2])
    assert "train: 1 image has no objects: a.tfrecord:2." in found.warnings
    numbers = {"class_feature": "image/object/class/label"}
    assert plan(path, **numbers).target.names == ["1", "2"]
    names = tmp_path / "map.pbtxt"
    names.write_text(LABEL_MAP)
    assert plan(path, **numbers, labels=str(names)).target.names == ["cat", "dog"]
    names.write_text("cat\ndog\n")
    with pytest.raises(UnusableSource, match=r"map\.pbtxt is not a label map"):
        plan(path, **numbers, labels=str(names))


def test_boxes_of_tensorflow_datasets_are_read_with_their_classes(tmp_path: Path) -> None:
    def scene(label: int, *boxes: float) -> bytes:
        features = {"image": picture(), "objects__bbox": boxes, "objects__label": [label] * (len(boxes) // 4)}
        return example(**{name: values for name, values in features.items() if values})

    top_right, below = (0.0, 0.5, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)
    records = [scene(1, *top_right, *below), scene(0, *below), scene(0), *[scene(0, *below)] * 5]
    path = write_records(tmp_path / "a.tfrecord", records)
    assert plan(path).target.names == ["0", "1"]
    (tmp_path / "objects-label.labels.txt").write_text("cat\ndog\n")
    found = plan(path)
    assert found.target.names == ["cat", "dog"]
    assert found.splits["train"].targets[0].tolist() == [[4, 0, 8, 3, 1], [0, 3, 8, 6, 1]]
    assert not len(found.splits["train"].targets[2])
    odd = write_records(tmp_path / "b.tfrecord", [*records, scene(1, *top_right, 0.5)])
    with pytest.raises(
        UnusableSource, match="record 8: “objects/bbox” has 5 values: expected top, left, bottom"
    ):
        plan(odd)
    pixels = write_records(tmp_path / "c.tfrecord", [*records, scene(1, 0.0, 0.0, 3.0, 8.0)])
    with pytest.raises(UnusableSource, match="“objects/bbox” contains 3: edges are fractions"):
        plan(pixels)


@pytest.mark.parametrize(
    ("stored", "order", "units"),
    [
        ([0.0, 0.5, 0.5, 1.0, 0.5, 0.0, 1.0, 0.5], "yxyx", "relative"),
        ([0.6, 0.0, 1.0, 0.5, 0.1, 0.5, 0.2, 1.0], "yxyx", "relative"),
        ([0.5, 0.5, 0.5, 0.5, 0.0, 0.1, 0.5, 0.05], "xywh", "relative"),
        ([4.0, 0.0, 8.0, 3.0, 0.0, 3.0, 4.0, 6.0], "xyxy", "pixels"),
        ([4, 0, 8, 3, 0, 3, 4, 6], "xyxy", "pixels"),
        ([4.0, 0.0, 4.0, 3.0, 0.0, 3.0, 4.0, 3.0], "xywh", "pixels"),
        ([0.0, 4.0, 3.0, 8.0, 3.0, 0.0, 6.0, 4.0], "yxyx", "pixels"),
        ([4.0, 3.0, 0.0], "xyxy", "pixels"),
        ([], "yxyx", "relative"),
    ],
)
def test_order_and_units_of_boxes_are_detected_in_the_first_record(
    stored: list[float], order: str, units: str
) -> None:
    first = Example.FromString(example(image=picture(), boxes=stored or [0.0])).features.feature
    if not stored:
        first["boxes"].Clear()
    files = RecordFiles(Path())
    found = BoxMapping.propose(BoxRecords(train="a"), files, first)
    assert (found.box_features, found.box_order, found.box_units) == (["boxes"], order, units)
    chosen = BoxRecords(train="a", box_order="xyxy", box_units="relative")
    assert BoxMapping.propose(chosen, files, first).box_order == "xyxy"


def packed(*numbers: float, count: int = 1) -> bytes:
    return example(image=picture(), boxes=list(numbers), label=[1] * count)


def test_boxes_in_pixels_are_read_in_each_order(tmp_path: Path) -> None:
    rest = [packed(0.0, 0.0, 4.0, 3.0)] * 5
    path = write_records(
        tmp_path / "a.tfrecord", [packed(4.0, 0.0, 4.0, 3.0, 0.0, 3.0, 4.0, 3.0, count=2), *rest]
    )
    expected = [[4, 0, 8, 3, 0], [0, 3, 4, 6, 0]]
    assert plan(path).splits["train"].targets[0].tolist() == expected
    assert plan(path, box_order="xywh", box_units="pixels").splits["train"].targets[0].tolist() == expected
    swapped = write_records(tmp_path / "b.tfrecord", [packed(0.0, 4.0, 3.0, 8.0), *rest])
    found = plan(swapped, box_features=["boxes"], box_order="yxyx")
    assert found.splits["train"].targets[0].tolist() == expected[:1]

    def edges(*box: float) -> bytes:
        return example(image=picture(), xmin=box[0], ymin=box[1], xmax=box[2], ymax=box[3], label=1)

    single = write_records(
        tmp_path / "c.tfrecord", [edges(4.0, 0.0, 8.0, 3.0), *[edges(0.0, 0.0, 1.0, 1.0)] * 5]
    )
    targets = plan(single).splits["train"].targets
    assert targets[0].tolist() == expected[:1] and targets[1].tolist() == [[0, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (packed(0.0, 0.0, 4.0, 3.0, 1.0, count=2), "“boxes” has 5 values: expected left, top, right, bottom"),
        (packed(0.0, 0.0, 4.0, 3.0, count=2), "“boxes” has 1 box, and “label” 2"),
        (example(image=picture(), boxes=[b"0 0 4 3"], label=1), "“boxes” is bytes, not numbers of pixels"),
    ],
)
def test_records_with_unusable_boxes_in_pixels_are_named(tmp_path: Path, record: bytes, message: str) -> None:
    path = write_records(tmp_path / "a.tfrecord", [*[packed(0.0, 0.0, 4.0, 3.0)] * 5, record])
    with pytest.raises(UnusableSource, match=f"record 5: {message}"):
        plan(path)


def test_boxes_outside_of_the_image_are_dropped_or_clipped(tmp_path: Path) -> None:
    usual = (0.0, 0.0, 4.0, 3.0)
    outside = packed(20.0, 0.0, 24.0, 3.0, *usual, 6.0, 0.0, 14.0, 3.0, math.nan, 0.0, 1.0, 1.0, count=4)
    found = plan(write_records(tmp_path / "a.tfrecord", [*[packed(*usual)] * 5, outside]))
    assert found.splits["train"].targets[5].tolist() == [[0, 0, 4, 3, 0], [6, 0, 8, 3, 0]]
    warnings = " ".join(found.warnings)
    assert "a.tfrecord:5, object 0: outside the image" in warnings
    assert "object 3: not finite" in warnings and "1 box clipped to the image" in warnings


def test_invalid_boxes_are_dropped_and_difficult_ones_ignored(tmp_path: Path) -> None:
    hard = scene((0, 0, 0.5, 0.5), (0, 0, 1, 1), image__object__difficult=[1, 0])
    reversed_box = scene((0.5, 0, 0.25, 0.5), (0, 0, 0.5, 0.5))
    found = plan(write_records(tmp_path / "a.tfrecord", [*scenes(), hard, reversed_box]))
    targets = found.splits["train"].targets
    assert targets[8][:, 4].tolist() == [IGNORED_BOX, 0] and len(targets[9]) == 1
    assert "train: 1 box cannot be used: a.tfrecord:9, object 0: reversed." in found.warnings


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({f"{BOX}xmax": None}, r"record 8: “image/object/bbox/xmax” has 0 values, and .*text” 1"),
        ({f"{BOX}xmin": [3]}, "“image/object/bbox/xmin” is int64, not float32: edges are fractions"),
        ({f"{BOX}xmax": [112.0]}, "“image/object/bbox/xmax” contains 112: edges are fractions"),
        ({"image__object__class__text": [0.5]}, "text” is float32 instead of integers or strings"),
        ({"image__object__class__text": [b" "]}, "contains an empty text"),
    ],
)
def test_records_without_usable_objects_are_named(
    tmp_path: Path, others: dict[str, Any], message: str
) -> None:
    path = write_records(tmp_path / "a.tfrecord", [*scenes(), scene((0, 0, 0.5, 0.5), **others)])
    with pytest.raises(UnusableSource, match=message):
        plan(path)


def test_features_that_do_not_exist_are_named(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", scenes())
    with pytest.raises(UnusableSource, match="no feature “kind”"):
        plan(path, class_feature="kind")
    names = tmp_path / "map.pbtxt"
    names.write_text(LABEL_MAP.replace("id: 2", "id: 3"))
    with pytest.raises(UnusableSource, match=r"record 1: the class 2 is none of the named ones"):
        plan(path, class_feature="image/object/class/label", labels=str(names))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnusableSource, match=r"a\.tfrecord, record 7: truncated"):
        plan(path)
    other = write_records(tmp_path / "b.tfrecord", [example(image=picture())])
    with pytest.raises(UnusableSource, match="None of the features looks like the boxes of objects"):
        plan(other)


def test_records_become_a_dataset(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    path = write_records(forms.data / "a.tfrecord", [*scenes(), scene((0.5, 0, 0.25, 0.5))])
    fields: dict[str, Any] = {"method": "tfrecord", "record_train": path}
    found = forms.summary(**fields)
    assert "8 objects of 2 classes." in found.facts and found.bars == [("cat", 7), ("dog", 1)]
    assert "train: 1 box cannot be used: a.tfrecord:8, object 0: reversed." in found.problems
    assert ["image/object/bbox/xmin (xmin)", "float32", "2", "0, 0.5"] in found.table
    fields |= {"resize_width": 8, "resize_height": 6, "train_image_folder": "/nowhere"}
    assert "all four edges" in forms.errors(**fields, xmin_feature="x")["record_train"][0]
    made = forms.create(**fields)
    assert made.manifest.target.names == ["cat", "dog"]
    # The records of a dataset have these features too.
    made.folder.rename(forms.data / "job")
    assert forms.create(**fields | {"record_train": forms.data / "job"}).counts == made.counts


def test_form_offers_the_order_and_units_of_boxes_and_the_recipe_states_them(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    path = write_records(forms.data / "boxes.tfrecord", [packed(4.0, 0.0, 4.0, 3.0)] * 6)
    fields: dict[str, Any] = {"method": "tfrecord", "record_train": path}
    found = forms.summary(**fields)
    assert "Boxes: left, top, width, height, in pixels." in found.facts
    assert found.options["box_feature"][0] == ("", "Automatic: boxes")
    assert found.options["xmin_feature"][0] == ("", "None")
    both = dict.fromkeys(("xmin_feature", "ymin_feature", "xmax_feature", "ymax_feature"), "boxes")
    errors = forms.errors(**fields, **both, box_feature="boxes")
    assert "Choose either one box feature or four edge features" in errors["record_train"][0]
    assert list(forms.errors(**fields, box_order="zzz")) == ["box_order"]
    records = forms.create(**fields, resize_width=8, resize_height=6).recipe.records
    assert (records.box_order, records.box_units) == ("xywh", "pixels")
