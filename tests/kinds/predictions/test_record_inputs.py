"""Records of files as the inputs of a batch prediction."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from digits.core.errors import BadRequest
from digits.data.images import images
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.predictions import record_inputs
from digits.kinds.predictions.record_inputs import Request, save
from tests.tfrecord_files import example, picture, write_records


def request(path: Path, **changed: Any) -> Request:
    recipe = CreateClassification(kind="image-classification", train=FolderSplit(folder="/images"))
    fields = {"path": str(path), "is_database": False, "target": str(path.parent / "inputs"), "most": 100}
    return Request(**fields | {"recipe": recipe.as_json(), "size": None} | changed)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_records(
        tmp_path / "a.tfrecord", [example(image=picture()), example(image=picture(size=(8, 8)))] * 2
    )
    monkeypatch.setattr(record_inputs, "examples", None)  # fails in this process
    return path


@pytest.mark.slow
def test_records_are_saved_by_another_process(records: Path) -> None:
    found = save(request(records, most=3))
    assert [item.name for item in found] == [f"a.tfrecord:{number}" for number in range(3)]
    assert [images.header(Path(item.path).read_bytes())[1] for item in found] == [(8, 6), (8, 8), (8, 6)]


def test_images_of_other_sizes_are_listed_with_the_reason(records: Path) -> None:
    found = save(request(records, size=(8, 8)))
    assert [bool(item.error) for item in found] == [True, False, True, False]
    assert "its image is 8×6 pixels, not 8×8" in found[0].error


@pytest.mark.slow
def test_errors_of_the_process_are_raised(records: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        save(request(records, target=str(tmp_path / "missing" / "inputs")))
    assert raised.value.errno == errno.ENOENT
    records.write_bytes(records.read_bytes()[:-9])
    with pytest.raises(BadRequest, match=r"a\.tfrecord"):
        save(request(records))
