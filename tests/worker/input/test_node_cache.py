"""Trainings and evaluations of a dataset on a slow file system of another machine."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events, file_systems
from digits.core.task import RANK_VARIABLE, WORKERS_VARIABLE
from digits.data import manifest, node_cache
from digits.worker.input import memory
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot

SECONDS = 0.002


@pytest.fixture
def remote(gradients: Path, tmp_path: Path, monkeypatch: Any) -> Path:
    """A copy of a dataset that seems to be on another machine, each read of which takes a while."""
    folder = shutil.copytree(gradients, tmp_path / "remote")
    pread = os.pread

    def slow_pread(descriptor: int, *arguments: Any) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder)):
            time.sleep(SECONDS)
        return pread(descriptor, *arguments)

    monkeypatch.setattr(os, "pread", slow_pread)
    monkeypatch.setattr(file_systems, "is_network", lambda path: path.is_relative_to(folder))
    monkeypatch.setenv("DIGITS_NODE_CACHE", f"{tmp_path},1MB")
    return folder


def cache_in(tmp_path: Path) -> Path:
    return tmp_path / f"digits-cache-{os.geteuid()}"


def assert_complete(folder: Path, dataset: Path) -> None:
    """Check that the cache in ``folder`` contains a copy of each shard of the dataset, and nothing else."""
    hashes = {digest for split in manifest.load(dataset).splits.values() for digest in split.hashes}
    assert {path.name for path in folder.iterdir()} == {node_cache.LOCK_FILE, *hashes}


def rows(outcome: Outcome) -> list[Any]:
    return [
        (
            row.stage,
            row.step,
            {name: value for name, value in row.values.items() if name != "images_per_second"},
        )
        for row in outcome.of(events.Measured)
    ]


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.0, id="streamed"), pytest.param(0.4, id="resident", marks=pytest.mark.nightly)],
)
def test_a_training_through_copies_has_the_same_bits(
    train: Any, remote: Path, tmp_path: Path, monkeypatch: Any, share: float
) -> None:
    monkeypatch.setattr(memory, "RESIDENT_SHARE", share)
    own = train(networks.LINEAR, name="cached", dataset=str(remote), epochs=3)
    again = train(networks.LINEAR, name="again", dataset=str(remote), epochs=3)
    monkeypatch.setenv("DIGITS_NODE_CACHE", "off")
    other = train(networks.LINEAR, name="direct", dataset=str(remote), epochs=3)
    assert rows(own) == rows(again) == rows(other)
    weights, expected = (snapshot(each.job_folder, "snapshot_3.ckpt") for each in (own, other))
    assert weights.keys() == expected.keys()
    assert all(np.array_equal(weights[name], expected[name]) for name in weights)
    folder = cache_in(tmp_path)
    assert {event.cache for event in own.of(events.InputPrepared)} == {str(folder)}
    assert {event.cache for event in other.of(events.InputPrepared)} == {""}
    assert_complete(folder, remote)
    assert f"2 of 2 shards of “train” are in the cache {folder}" in again.output


@pytest.mark.nightly
def test_workers_on_one_machine_share_the_copies(
    model: Any, start: Any, remote: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    monkeypatch.setenv(WORKERS_VARIABLE, "2")
    found = []
    for name, cache in (("cached", os.environ["DIGITS_NODE_CACHE"]), ("direct", "off")):
        monkeypatch.setenv("DIGITS_NODE_CACHE", cache)
        task, workers = model(networks.LINEAR, name=name, dataset=str(remote), epochs=2), []
        for rank in range(2):
            monkeypatch.setenv(RANK_VARIABLE, str(rank))
            workers.append(start(task))
        found.append([worker.wait() for worker in workers])
    cached, direct = found
    assert [outcome.code for outcome in (*cached, *direct)] == [0] * 4
    assert rows(cached[0]) == rows(direct[0])
    assert "2 of 2 shards of “train”" in cached[0].output
    assert_complete(cache_in(tmp_path), remote)


def test_a_training_without_a_usable_cache_succeeds(train: Any, remote: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    monkeypatch.setenv("DIGITS_NODE_CACHE", "/proc")
    outcome = train(networks.LINEAR, dataset=str(remote), epochs=1)
    assert outcome.output.count("Records are not copied to /proc/") == 1
    assert {event.cache for event in outcome.of(events.InputPrepared)} == {""}


@pytest.mark.parametrize("budget", [0.0, 1e9], ids=["streamed", "resident"])
def test_damaged_copies_are_replaced_by_the_source(
    in_own_child: Any, remote: Path, tmp_path: Path, budget: float
) -> None:
    _, expected = in_own_child(_read_all, remote, budget)
    copies = [path for path in cache_in(tmp_path).iterdir() if path.name != node_cache.LOCK_FILE]
    assert len(copies) == 2
    for copy in copies:
        contents = bytearray(copy.read_bytes())
        contents[-20] ^= 1
        copy.write_bytes(contents)
    used, found = in_own_child(_read_all, remote, budget)
    assert used == 2
    assert np.array_equal(found, expected)
    assert not any(copy.exists() for copy in copies)


def _read_all(folder: Path, budget: float) -> tuple[int, np.ndarray]:
    """Return the number of copies that were used at first, and all images."""
    from digits.worker.input import feeds

    records = feeds.Records(folder, manifest.load(folder), "train", budget)
    count = len(records)
    copies = records._reader.copies
    copies.read_ahead([np.arange(count)])
    for shard in records._reader.shards:
        copies.wait(shard)
    used = len(copies._files)
    feed = records.feed(iter([np.arange(count)]))
    images = feed.take(1).batch(0)[0].numpy()
    feed.close()
    records.close()
    return used, images
