"""Image classification from TFRecord files: plans, messages, and the requests of the form."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core.errors import DigitsError
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Plan, Progress, Unusable, UnusableSource
from digits.kinds.classification import reader
from digits.kinds.classification.recipe import CreateClassification, LabeledRecords
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import colored, example, picture, prepare_tfds, ramps, write_records


def plan(source: LabeledRecords, **settings: Any) -> Plan:
    recipe = CreateClassification(files=source, **{"pct_val": 0, "seed": 1, **settings})
    return reader.read(recipe, Progress())


def of_file(folder: Path, payloads: list[bytes], **settings: Any) -> Plan:
    path = write_records(folder / "a.tfrecord", payloads)
    return plan(LabeledRecords(train=str(path)), **settings)


def pixels(made: Plan, split: str, place: int) -> np.ndarray[Any, Any]:
    (data,) = made.read(made.splits[split], place)
    return np.asarray(Image.open(io.BytesIO(data)))


def test_records_become_images_with_the_text_of_their_class(tmp_path: Path) -> None:
    made = of_file(tmp_path, colored(8), pct_val=25)
    assert made.groups == ["blue", "red"]
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 6, "val": 2}
    for split in made.splits.values():
        for place, name in enumerate(split.files):
            color = ("red", "blue")[int(name.removeprefix("a.tfrecord:")) % 2]
            assert made.groups[split.targets[place]] == color
            assert made.read(split, place) == [picture(color)]
    assert made.splits["train"].source == str(tmp_path / "a.tfrecord")


def test_chosen_features_and_a_labels_file_take_precedence(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", colored(4), "gzip")
    (tmp_path / "labels.txt").write_text("warm\ncold\nunused\n")
    source = LabeledRecords(
        train=str(path), label_feature="image/class/label", labels=str(tmp_path / "labels.txt")
    )
    made = plan(source)
    assert made.groups == ["warm", "cold", "unused"] and made.splits["train"].targets == [0, 1, 0, 1]
    assert "Classes without training images: unused." in made.warnings
    with pytest.raises(UnusableSource, match="no feature “x”") as error:
        plan(LabeledRecords(train=str(path), image_feature="x"))
    assert "image/encoded" in error.value.hint
    with pytest.raises(UnusableSource, match="None of the features looks like a label"):
        of_file(tmp_path, [example(image=picture(), score=0.5)])


@pytest.mark.parametrize("as_numbers", [False, True])
def test_raw_images_and_numbers_have_a_shape(tmp_path: Path, as_numbers: bool) -> None:
    found = ramps(6)
    payloads = [
        example(
            image=[float(value) / 255 for value in ramp.ravel()] if as_numbers else ramp.tobytes(),
            label=number % 2,
        )
        for number, ramp in enumerate(found)
    ]
    made = of_file(tmp_path, payloads)
    assert made.groups == ["0", "1"]
    assert all(np.array_equal(pixels(made, "train", place), ramp) for place, ramp in enumerate(found))


def test_separate_files_and_folders_have_their_own_splits(tmp_path: Path) -> None:
    for name, count in (
        ("train-00000-of-00002", 4),
        ("train-00001-of-00002", 2),
        ("validation-00000-of-00001", 2),
    ):
        write_records(tmp_path / "own" / name, colored(count))
    other = write_records(tmp_path / "other.tfrecord", colored(3), "zlib")
    for source in (
        LabeledRecords(train=str(tmp_path / "own"), test=str(other)),
        LabeledRecords(
            train=str(tmp_path / "own" / "train-*"), val=str(tmp_path / "own" / "val*"), test=str(other)
        ),
    ):
        made = plan(source, pct_val=50, pct_test=10)
        assert {name: len(split) for name, split in made.splits.items()} == {"train": 6, "val": 2, "test": 3}
        assert np.array_equal(pixels(made, "test", 2)[0, 0], (200, 30, 30))


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([], r"a\.tfrecord is empty"),
        (
            [*colored(2), example(image__encoded=picture()), *colored(1)],
            r"1 record cannot be used: a\.tfrecord, record 2: it has no feature “image/class/text”",
        ),
        (
            [example(image=picture(), label=0), example(image=picture(), label=b"one")],
            r"record 1: “label” is bytes, but int64 in earlier records",
        ),
        ([example(image=picture(), label=3)] * 3, "All images in .* have the label “3”"),
        ([example(image=picture(), label=1), b"\xff\xff"], r"record 1: not a tf.train.Example"),
    ],
)
def test_faults_are_reported_with_the_file_and_the_record(
    tmp_path: Path, payloads: list[bytes], message: str
) -> None:
    with pytest.raises(UnusableSource, match=message):
        of_file(tmp_path, payloads)


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_a_record_without_a_label_is_skipped_and_listed(tmp_path: Path, compression: str) -> None:
    payloads = [*colored(2), example(image__encoded=picture()), *colored(2)]
    path = write_records(tmp_path / "a.tfrecord", payloads, compression)
    recipe = CreateClassification(
        files=LabeledRecords(train=str(path)), pct_val=0, max_unusable_percent=20, seed=1
    )
    made = reader.read(recipe, Progress())
    reason = "it has no feature “image/class/text”; its features are image/encoded"
    assert made.unusable == [Unusable("a.tfrecord, record 2", reason, "train")]
    split = made.splits["train"]
    assert split.files == [f"a.tfrecord:{number}" for number in (0, 1, 3, 4)]
    assert made.read(split, 2) == [picture("red")] and made.read(split, 3) == [picture("blue")]


def test_a_record_without_a_usable_image_is_skipped(tmp_path: Path) -> None:
    made = of_file(
        tmp_path, [example(image=picture(), label=0), example(label=1), example(image=[1, 2], label=1)]
    )
    train = made.splits["train"]
    assert len(train) == 3
    for place, reason in (
        (1, "the record has no feature “image”"),
        (2, "2 values, which are not an image file"),
    ):
        with pytest.raises(UnusableImage, match=reason):
            made.read(train, place)


def test_labels_of_other_splits_are_those_of_training(tmp_path: Path) -> None:
    train = write_records(tmp_path / "a", [example(image=picture(), label=number) for number in (0, 1)])
    val = write_records(tmp_path / "b", [example(image=picture(), label=2)])
    with pytest.raises(UnusableSource, match="The val records have labels that no training record has: 2"):
        plan(LabeledRecords(train=str(train), val=str(val)))


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-classification", tmp_path / "data")


def test_the_form_shows_the_features_of_the_first_record(forms: Forms) -> None:
    fields = {"method": "tfrecord", "record_train": write_records(forms.data / "a.tfrecord", colored(9))}
    found = forms.summary(**fields)
    assert found.facts[:2] == ["TFRecord files: 1 file for train.", "9 training records."]
    assert not found.problems
    rows = {row[0]: row[1:] for row in found.table}
    assert rows["image/encoded (image)"] == ["bytes", "1", "PNG, 8×6 pixels"]
    assert rows["image/class/text (label)"] == ["bytes", "1", "red"]
    assert rows["image/height"] == ["int64", "1", "6"]
    pictures = dict(zip(rows, found.pictures, strict=True))
    shown = [name for name, uri in pictures.items() if uri.startswith("data:image/png")]
    assert shown == ["image/encoded (image)"]
    assert found.bars == [("blue", 4), ("red", 5)]
    assert found.options["image_feature"][0] == ("", "Automatic: image/encoded")
    assert ("image/class/label", "image/class/label: int64") in found.options["label_feature"]
    assert forms.summary(**fields, label_feature="image/class/label").bars == [("0", 5), ("1", 4)]
    wrong = forms.summary(**fields, label_feature="x")
    assert "no feature “x”" in wrong.problems[0] and wrong.table and wrong.options
    unusable = forms.summary(**fields, image_feature="image/format")
    assert "The first record has no usable image: “image/format” has 3 values" in unusable.problems[0]


def test_the_form_names_faults_of_the_files(forms: Forms) -> None:
    path = write_records(forms.data / "a.tfrecord", colored(3))
    path.write_bytes(path.read_bytes()[:-2])
    found = forms.summary(method="tfrecord", record_train=path)
    assert "a.tfrecord, record 2: truncated" in found.problems[0]
    empty = forms.data / "b"
    empty.mkdir()
    found = forms.summary(method="tfrecord", record_train=empty)
    assert "contains no TFRecord files" in found.problems[0]
    with pytest.raises(DigitsError, match="outside the folders"):
        forms.summary(method="tfrecord", record_train="/etc/*")
    for value, message in (("", "required"), ("/etc/passwd", "outside"), (empty, "no TFRecord")):
        assert message in forms.errors(method="tfrecord", record_train=value)["record_train"][0]
    errors = forms.errors(method="tfrecord", record_train=path, record_shape="8×x")
    assert "28×28×1" in errors["record_shape"][0]


def test_a_dataset_is_created_from_a_folder_of_tensorflow_datasets(forms: Forms) -> None:
    fields = {"method": "tfrecord", "record_train": prepare_tfds(forms.data / "spots")}
    found = forms.summary(**fields)
    assert found.facts[0] == "TensorFlow Datasets, spots 1.0.0: 2 files for train, 1 file for test."
    assert "Other splits are ignored: unsupervised." in found.facts
    assert found.bars == [("Red spot", 4), ("Blue spot", 4)]
    size = {"resize_width": 8, "resize_height": 6}
    made = forms.create(**fields, image_feature="image", **size, folder_pct_val=25)
    assert made.counts == {"train": 6, "val": 2, "test": 4}
    assert made.manifest.target.names == ["Red spot", "Blue spot"]
    assert made.records("test")[0].filename == "spots-test.tfrecord-00000-of-00001:0"
    names = [record.filename for split in ("train", "val") for record in made.records(split)]
    assert "spots-train.tfrecord-00001-of-00002:0" in names
