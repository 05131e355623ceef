"""Snapshots are written atomically, and variables with matching names and shapes are restored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from digits.worker.failure import UserFault
from tests.worker.conftest import snapshot
from tests.worker.lazily import restore, snapshots, tf


def test_snapshot_names(tensorflow: None, tmp_path: Path) -> None:
    epochs = (1, 0.5, 0.25, 10, 100, 1 / 3)
    assert [snapshots.prefix(tmp_path, epoch).name for epoch in epochs] == [
        "snapshot_1.ckpt",
        "snapshot_0.5.ckpt",
        "snapshot_0.25.ckpt",
        "snapshot_10.ckpt",
        "snapshot_100.ckpt",
        "snapshot_0.333333.ckpt",
    ]


def test_saving_replaces_a_snapshot_of_the_same_name(in_child: Any, tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        in_child(_save, tmp_path / "snapshot_1.ckpt", {"model/w": [value]})
    assert snapshot(tmp_path, "snapshot_1.ckpt")["model/w"] == [2.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "snapshot_1.ckpt.data-00000-of-00001",
        "snapshot_1.ckpt.index",
    ]


def test_a_snapshot_that_cannot_be_moved_into_place_leaves_no_files(in_child: Any, tmp_path: Path) -> None:
    for _ in range(2):  # alone, and over one of the same name
        assert "the folder is full" in in_child(_save_in_full_folder, tmp_path / "snapshot_1.ckpt")
        assert not list(tmp_path.iterdir())
        in_child(_save, tmp_path / "snapshot_1.ckpt", {"model/w": [1.0]})


def _save_in_full_folder(target: Path) -> str:
    replace = os.replace

    def fail(source: str, place: str) -> None:
        if place.endswith(".index"):
            raise OSError("the folder is full")
        replace(source, place)

    try:
        with mock.patch.object(os, "replace", fail):
            _save(target, {"model/w": [2.0]})
    except OSError as error:
        return str(error)
    return ""


def test_variables_are_restored_by_name_and_shape(in_child: Any, tmp_path: Path) -> None:
    in_child(_save, tmp_path / "a.ckpt", {"same": [1.0, 2.0], "other": [3.0], "unused": [4.0]})
    values, restored = in_child(
        _restore, tmp_path / "a.ckpt", {"same": [0.0, 0.0], "other": [9.0, 9.0], "new": [5.0]}
    )
    assert values == {"same": [1, 2], "other": [9, 9], "new": [5]}
    assert restored.taken == {"same": "same"}
    assert restored.missing == ["new"]
    assert restored.remark == (
        "Restored 1 of 3 variables from the weights. Not in the weights: new. "
        "Shape mismatch: other ([1], not [2]). Unused values: unused."
    )


def test_a_damaged_snapshot_is_reported(in_child: Any, tmp_path: Path) -> None:
    in_child(_save, tmp_path / "a.ckpt", {"w": [1.0]})
    data = tmp_path / "a.ckpt.data-00000-of-00001"
    data.write_bytes(b"")
    assert "a.ckpt cannot be read" in in_child(_fault, tmp_path / "a.ckpt")
    (tmp_path / "a.ckpt.index").write_bytes(b"nonsense")
    assert "a.ckpt cannot be read" in in_child(_fault, tmp_path / "a.ckpt")


def test_every_damage_is_detected(in_child: Any, tmp_path: Path) -> None:
    """Altering any byte of either file, or truncating it anywhere, is detected or has no effect."""
    assert in_child(_undetected_damage, tmp_path / "snapshot_1.ckpt") == []


def _undetected_damage(target: Path) -> list[tuple[str, int, str]]:
    _save(target, {"model/w": [1.0, 2.0], "model/v": [3.0]})
    whole = {name: value.tobytes() for name, value in snapshot(target.parent, target.name).items()}
    unnoticed = []
    for suffix in (".index", ".data-00000-of-00001"):
        file = Path(f"{target}{suffix}")
        content = file.read_bytes()
        altered = [
            (place, "altered", content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            for place in range(len(content))
            for bit in (0x01, 0x80)
        ]
        altered += [(size, "cut", content[:size]) for size in range(len(content))]
        for place, how, data in altered:
            file.write_bytes(data)
            if not snapshots.fault(target) and whole != {
                name: value.tobytes() for name, value in snapshot(target.parent, target.name).items()
            }:
                unnoticed.append((suffix, place, how))
        file.write_bytes(content)
    return unnoticed


def _save(target: Path, values: dict[str, list[float]]) -> None:
    snapshots.save(target, {name: tf.Variable(value) for name, value in values.items()}, step=3)


def _restore(source: Path, values: dict[str, list[float]]) -> Any:
    variables = {name: tf.Variable(value) for name, value in values.items()}
    restored = restore.restore(source, variables)
    return {name: np.asarray(variable).tolist() for name, variable in variables.items()}, restored


def _fault(source: Path) -> str:
    try:
        restore.restore(source, {"w": tf.Variable([0.0])})
    except UserFault as fault:
        return fault.message
    return ""
