"""Folders of results: their names, their order, and damaged ones."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shutil
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from digits.core.files import UnreadableFile, write_json
from digits.data.arrays import load_array
from digits.data.models import result_folders
from digits.data.models.result_folders import ArrayFormat, ResultFolders


class Result(Struct):
    number: int


RESULTS = ResultFolders("results", "result.json", Result, "result", key=attrgetter("number"), reverse=True)


def save(model: Path, name: str, value: object) -> None:
    folder = RESULTS.folder_of(model, name)
    folder.mkdir(parents=True)
    write_json(folder / RESULTS.file, value)


def test_results_are_sorted_without_damaged_ones(tmp_path: Path) -> None:
    assert RESULTS.load_all(tmp_path) == []
    for number in (2, 3, 1):
        save(tmp_path, f"result-{number}", {"number": number})
    save(tmp_path, "damaged", {"number": "three"})
    (tmp_path / "results" / "being-removed").mkdir()
    (tmp_path / "results" / ".hidden").mkdir()
    assert [item.number for item in RESULTS.load_all(tmp_path)] == [3, 2, 1]


@pytest.mark.parametrize("name", ["", "..", "a/b", "../model", "a\nb", "x" * 300])
def test_a_name_from_a_request_never_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableFile, match="There is no result called"):
        RESULTS.load(tmp_path, name)


def test_an_array_has_the_shape_that_its_result_states(tmp_path: Path) -> None:
    results = ResultFolders(
        "results",
        "result.json",
        Result,
        "result",
        key=attrgetter("number"),
        arrays=lambda result: {"array.npy": ArrayFormat(np.dtype(np.float32), (result.number, 2))},
    )
    save(tmp_path, "one", {"number": 3})
    path = results.folder_of(tmp_path, "one") / "array.npy"
    for array in (np.zeros((4, 2), np.float32), np.zeros((3, 2)), np.zeros(6, np.float32)):
        np.save(path, array)
        with pytest.raises(UnreadableFile, match=r"expected float32 \[3, 2\], got"):
            results.load_array(tmp_path, "one", "array.npy")
    np.save(path, np.ones((3, 2), np.float32))
    assert results.load_array(tmp_path, "one", "array.npy").sum() == 6


def test_arrays_are_of_one_state_of_a_result_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ArrayFormat(np.dtype(np.float32), (None,))
    results = dataclasses.replace(RESULTS, arrays=lambda result: {"a.npy": columns, "b.npy": columns})
    sizes = iter((3, 4, 5))

    def publish() -> None:
        number = next(sizes)
        shutil.rmtree(results.folder_of(tmp_path, "one"), ignore_errors=True)
        save(tmp_path, "one", {"number": number})
        for name in ("a.npy", "b.npy"):
            np.save(results.folder_of(tmp_path, "one") / name, np.zeros(number, np.float32))

    def load_then_replace(path: Path, **options: Any) -> Any:
        array = load_array(path, **options)
        if path.name == "a.npy":
            with contextlib.suppress(StopIteration):
                publish()
        return array

    publish()
    monkeypatch.setattr(result_folders, "load_array", load_then_replace)
    assert [len(array) for array in results.load_arrays(tmp_path, "one", "a.npy", "b.npy")] == [5, 5]
    sizes = itertools.count(1)
    with pytest.raises(UnreadableFile, match="The result one is replaced while it is read"):
        results.load_arrays(tmp_path, "one", "a.npy", "b.npy")


def test_an_array_below_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results" / "one").mkdir(parents=True)
    (tmp_path / "results" / "one" / "array.npy").symlink_to("/dev/zero")
    with pytest.raises(UnreadableFile):
        RESULTS.load_array(tmp_path, "one", "array.npy")
