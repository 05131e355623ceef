"""Finding TFRecord files: shards, patterns, folders, and the metadata of TensorFlow Datasets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from digits.data.records.files import RecordFiles, find_files
from digits.data.sources.plan import UnusableSource
from tests.tfrecord_files import prepare_tfds


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def found(files: RecordFiles) -> dict[str, list[str]]:
    return {
        split: [str(path.relative_to(files.root)) for path in paths] for split, paths in files.splits.items()
    }


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a.tfrecord", "notes.txt", ".b.tfrecord"], {"train": ["a.tfrecord"]}),
        (
            ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"],
            {"train": ["train-00000-of-00002", "train-00001-of-00002"], "val": ["validation-00000-of-00001"]},
        ),
        (
            ["my_train.tfrecords.gz", "my_test.tfrecords.gz"],
            {"train": ["my_train.tfrecords.gz"], "test": ["my_test.tfrecords.gz"]},
        ),
        (
            ["train/a.tfrec", "val/a.tfrec", "more/b.tfrec"],
            {"train": ["train/a.tfrec"], "val": ["val/a.tfrec"]},
        ),
        (["test.record"], {"train": ["test.record"]}),
    ],
)
def test_a_folder_has_files_for_each_split(
    tmp_path: Path, names: list[str], splits: dict[str, list[str]]
) -> None:
    assert found(find_files(str(touch(tmp_path, *names)))) == splits


def test_one_shard_stands_for_all_and_a_pattern_for_its_matches(tmp_path: Path) -> None:
    names = [f"x.tfrecord-0000{number}-of-00003" for number in range(3)]
    touch(tmp_path, *names, "y.tfrecord-00000-of-00001", "z.tfrecord")
    assert found(find_files(str(tmp_path / names[1]))) == {"train": names}
    assert found(find_files(str(tmp_path / "[xy].*"))) == {"train": [*names, "y.tfrecord-00000-of-00001"]}
    assert found(find_files(str(tmp_path / "z.tfrecord"), {"val": str(tmp_path / "y*"), "test": ""})) == {
        "train": ["z.tfrecord"],
        "val": ["y.tfrecord-00000-of-00001"],
    }
    (tmp_path / names[0]).unlink()
    for path in (names[1], "x*", ""):
        with pytest.raises(UnusableSource, match=r"1 of 3 shards are missing: x.tfrecord-00000-of-00003"):
            find_files(str(tmp_path / path))


def test_the_folder_of_a_dataset_has_its_records_and_not_their_indexes(tmp_path: Path) -> None:
    names = ["train-00000-of-00001", "val-00000-of-00001"]
    for name in names:
        for ending in (".tfrecord", ".index"):
            (tmp_path / f"{name}{ending}").touch()
    found = find_files(str(tmp_path))
    assert found.splits == {name[: name.index("-")]: [tmp_path / f"{name}.tfrecord"] for name in names}


def test_links_that_lead_outside_are_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "secret.tfrecord", "own/a.tfrecord")
    (tmp_path / "own" / "b.tfrecord").symlink_to(tmp_path / "secret.tfrecord")
    assert found(find_files(str(tmp_path / "own"))) == {"train": ["a.tfrecord"]}
    assert found(find_files(str(tmp_path / "own" / "*"))) == {"train": ["a.tfrecord"]}


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        (["a.png"], "", "contains no TFRecord files"),
        (["a.tfrecord"], "b*", "No file matches .*b"),
        (["test.tfrecord", "val.tfrecord"], "", "contains no training files"),
    ],
)
def test_a_missing_source_is_named(tmp_path: Path, names: list[str], path: str, message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        find_files(str(touch(tmp_path, *names) / path))


def test_a_folder_of_tensorflow_datasets_describes_itself(tmp_path: Path) -> None:
    folder = prepare_tfds(tmp_path / "spots" / "1.0.0")
    prepare_tfds(tmp_path / "spots" / "0.9.1")
    for place in (folder, folder.parent):
        files = find_files(str(place))
        assert found(files) == {
            "train": ["spots-train.tfrecord-00000-of-00002", "spots-train.tfrecord-00001-of-00002"],
            "test": ["spots-test.tfrecord-00000-of-00001"],
        }
        assert files.root == folder and files.ignored == ["unsupervised"]
        assert (files.image, files.shape, files.label) == ("image", (6, 8, 3), "label")
        assert files.classes == ["Red spot", "Blue spot"]
        assert files.describe() == "TensorFlow Datasets, spots 1.0.0: 2 files for train, 1 file for test."


def test_faults_of_a_folder_of_tensorflow_datasets_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match=r"spots is stored as array_record, not as TFRecord"):
        find_files(str(prepare_tfds(tmp_path / "a", file_format="array_record")))
    folder = prepare_tfds(tmp_path / "b")
    (folder / "spots-train.tfrecord-00001-of-00002").unlink()
    with pytest.raises(UnusableSource, match=r"1 of 2 shards are missing: spots-train.tfrecord-00001"):
        find_files(str(folder))
    (folder / "dataset_info.json").write_text(json.dumps({"name": "spots", "splits": [{"name": "odd"}, 3]}))
    with pytest.raises(UnusableSource, match=r"spots has no training split: odd"):
        find_files(str(folder))
    (folder / "dataset_info.json").write_text("[" * 100_000)
    with pytest.raises(UnusableSource, match=r"dataset_info.json is not valid JSON"):
        find_files(str(folder))
    (tmp_path / "secret").write_text("{}")
    (folder / "dataset_info.json").unlink()
    (folder / "dataset_info.json").symlink_to(tmp_path / "secret")
    with pytest.raises(UnusableSource, match="cannot be read"):
        find_files(str(folder))
