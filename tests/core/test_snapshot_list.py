"""The list of a training's snapshots: their metrics and the default selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.core import snapshot_list
from digits.core.snapshot_list import Snapshot, choose_metric

DATA = "data-00000-of-00001"


def save(folder: Path, epoch: float, metric: str = "accuracy", **metrics: float) -> None:
    """Save a snapshot like a training: first its files, then its record."""
    name = f"snapshot_{epoch:g}.ckpt"
    for suffix in ("index", DATA):
        (folder / f"{name}.{suffix}").write_bytes(b"weights")
    snapshot_list.append(folder, Snapshot(epoch, name, metrics), metric)


def best_epoch(folder: Path) -> float | None:
    best = snapshot_list.read(folder).best
    return best and best.epoch


def test_snapshots_have_their_validation_metrics(tmp_path: Path) -> None:
    save(tmp_path, 0.5, accuracy=0.25, loss=2.0)
    save(tmp_path, 1)
    found = snapshot_list.read(tmp_path)
    assert [(item.epoch, item.name, dict(item.metrics)) for item in found] == [
        (1, "snapshot_1.ckpt", {}),
        (0.5, "snapshot_0.5.ckpt", {"accuracy": 0.25, "loss": 2.0}),
    ]
    assert found.best and found.best.epoch == 0.5
    assert found.default is found.best
    assert snapshot_list.newest_name(tmp_path) == "snapshot_1.ckpt"


@pytest.mark.parametrize(
    ("metric", "values", "epoch"), [("accuracy", (0.5, 0.75, 0.6), 2), ("mae", (0.5, 0.75, 0.6), 1)]
)
def test_the_metric_selects_the_best_snapshot(
    tmp_path: Path, metric: str, values: tuple[float, ...], epoch: int
) -> None:
    for number, value in enumerate(values, 1):
        save(tmp_path, number, metric, **{metric: value})
    assert best_epoch(tmp_path) == epoch


@pytest.mark.parametrize(("is_lower_better", "epoch"), [(True, 2), (False, 1)])
def test_the_recorded_direction_precedes_the_name_of_the_metric(
    tmp_path: Path, is_lower_better: bool, epoch: int
) -> None:
    save(tmp_path, 1, "fid", fid=40.0)
    save(tmp_path, 2, "fid", fid=10.0)
    latest = Snapshot(2, "snapshot_2.ckpt", {"fid": 10.0})
    snapshot_list.append(tmp_path, latest, "fid", is_lower_better)
    assert best_epoch(tmp_path) == epoch


def test_ties_go_to_the_lowest_loss_then_to_the_first_snapshot(tmp_path: Path) -> None:
    for epoch, loss in enumerate([0.9, 0.5, 0.5, 0.7], 1):
        save(tmp_path, epoch, accuracy=1.0, loss=loss)
    assert best_epoch(tmp_path) == 2


def test_a_removed_or_damaged_snapshot_is_not_selected(tmp_path: Path) -> None:
    for epoch, accuracy in enumerate([0.5, 0.7, 0.9, 0.8, 0.1], 1):
        save(tmp_path, epoch, accuracy=accuracy)
    (tmp_path / "snapshot_3.ckpt.index").unlink()
    assert best_epoch(tmp_path) == 4
    (tmp_path / f"snapshot_4.ckpt.{DATA}").write_bytes(b"wei")
    assert best_epoch(tmp_path) == 2
    assert [item.epoch for item in snapshot_list.read(tmp_path) if not item.is_intact] == [4]
    (tmp_path / f"snapshot_2.ckpt.{DATA}").unlink()
    (tmp_path / "snapshot_1.ckpt.index").write_bytes(b"")
    (tmp_path / f"snapshot_5.ckpt.{DATA}").write_bytes(b"")
    found = snapshot_list.read(tmp_path)
    assert found.best is None and found.default and found.default.epoch == 5


def test_saving_a_snapshot_again_replaces_its_metrics(tmp_path: Path) -> None:
    save(tmp_path, 1, accuracy=0.9)
    save(tmp_path, 2, accuracy=0.8)
    save(tmp_path, 1, accuracy=0.5)
    assert best_epoch(tmp_path) == 2


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\x00\n[]\n",
        b'{"name": "snapshot_1.ckpt", "bytes": -1}',
        b"[" * 100_000,
        b'{"name": "sn',
    ],
)
def test_damaged_records_are_ignored(tmp_path: Path, damage: bytes) -> None:
    save(tmp_path, 1, accuracy=0.9)
    records = tmp_path / snapshot_list.FILE_NAME
    records.write_bytes(damage)
    assert [(item.epoch, item.is_intact) for item in snapshot_list.read(tmp_path)] == [(1, True)]
    # A power loss may have left a partial record.
    save(tmp_path, 2, accuracy=0.8)
    assert best_epoch(tmp_path) == 2


def test_a_link_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    save(folder, 1, accuracy=0.9)
    (folder / snapshot_list.FILE_NAME).rename(tmp_path / "elsewhere")
    (folder / snapshot_list.FILE_NAME).symlink_to(tmp_path / "elsewhere")
    assert best_epoch(folder) is None


def test_a_folder_without_snapshots_has_none(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        found = snapshot_list.read(folder)
        assert len(found) == 0 and found.default is None and found.of_epoch(1) is None
        assert snapshot_list.newest_name(folder) is None


@pytest.mark.parametrize(
    ("primary", "metrics", "chosen"),
    [
        ("accuracy", ["loss", "accuracy_top_5", "accuracy"], "accuracy"),
        ("accuracy", ["loss", "top_5_accuracy"], "top_5_accuracy"),
        ("accuracy", ["loss", "f1"], "loss"),
        ("r2", ["loss", "mae", "rmse", "r2"], "r2"),
        ("loss", ["accuracy", "loss"], "loss"),
        ("r2", [], ""),
        ("", ["accuracy", "loss"], ""),
    ],
)
def test_the_default_metric_is_that_of_the_kind_or_the_loss(
    primary: str, metrics: list[str], chosen: str
) -> None:
    assert choose_metric(primary, metrics) == chosen
