"""The order of records, and where their images are decoded."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.events import InputPrepared
from digits.data import manifest
from digits.data.records import records
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.numbers import Numbers
from digits.worker.failure import UserFault, describe
from digits.worker.input import memory
from tests.datasets import manifest_of
from tests.worker import networks
from tests.worker.conftest import write_dataset
from tests.worker.lazily import tf


@pytest.fixture
def input(tensorflow: None) -> Any:
    from digits.worker.input import feeds as input

    return input


def test_every_record_is_used_once_per_epoch(input: Any) -> None:
    order = np.concatenate(list(islice(input.training_order(10, 4, seed=3, shuffle=True), 5)))
    assert sorted(order[:10]) == list(range(10))
    assert sorted(order[10:]) == list(range(10))
    assert list(order[:10]) != list(order[10:]) != list(range(10))


def test_the_order_depends_only_on_seed_and_epoch(input: Any) -> None:
    whole = list(islice(input.training_order(10, 4, seed=3, shuffle=True), 9))
    later = list(islice(input.training_order(10, 4, seed=3, shuffle=True, first_step=6), 3))
    assert np.array_equal(whole[6:], later)
    other = next(input.training_order(10, 4, seed=4, shuffle=True))
    assert not np.array_equal(whole[0], other)


def test_order_without_shuffling(input: Any) -> None:
    batches = islice(input.training_order(5, 3, seed=0, shuffle=False), 3)
    assert [list(batch) for batch in batches] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]


def test_a_batch_of_several_epochs(input: Any) -> None:
    batch = next(input.training_order(3, 8, seed=0, shuffle=True))
    assert np.bincount(batch).tolist() in ([3, 3, 2], [3, 2, 3], [2, 3, 3])


def test_evaluation_ends_with_a_smaller_batch(input: Any) -> None:
    assert [list(batch) for batch in input.evaluation_order(8, 3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_single_leftover_record_joins_the_last_batch(input: Any) -> None:
    assert [list(batch) for batch in input.evaluation_order(5, 2)] == [[0, 1], [2, 3, 4]]
    assert input.evaluation_sizes(1, 2) == [1] and input.evaluation_sizes(3, 1) == [1, 1, 1]
    for count in range(1, 30):
        for batch in range(1, 12):
            sizes = input.evaluation_sizes(count, batch)
            assert sum(sizes) == count and set(sizes[:-1]) <= {batch}
            assert sizes[-1] != 1 or count == 1 or batch == 1


@pytest.mark.parametrize("encoding", ["png", "jpg", "none"])
@pytest.mark.parametrize("budget", [0, 1e9], ids=["streamed", "resident"])
def test_records_are_decoded_in_the_requested_order(
    in_child: Any, tmp_path: Path, encoding: str, budget: float
) -> None:
    write_dataset(tmp_path, {"train": 9}, size=6, channels=3, encoding=encoding)
    with records.SplitReader(tmp_path, manifest.load(tmp_path).splits["train"]) as reader:
        expected = [reader.read(number) for number in (7, 0, 3, 8)]
    images, labels = in_child(_taken, tmp_path, budget, [[7, 0], [3, 8]])
    assert labels.tolist() == [record.features["image/class/label"][0] for record in expected]
    assert np.array_equal(images, np.stack([record.as_array() for record in expected]))


@pytest.mark.parametrize("budget", [0, 1e9], ids=["streamed", "resident"])
def test_damaged_shards_are_named(in_child: Any, tmp_path: Path, budget: float) -> None:
    write_dataset(tmp_path, {"train": 9}, size=6, channels=3)
    shard = min(tmp_path.glob("train-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[60] ^= 255
    shard.write_bytes(data)
    message, trace = in_child(_failure, tmp_path, budget)
    assert f"“{tmp_path.name}” are damaged: {shard.name}" in message and trace == []
    shard.write_bytes(data[:-9])
    message, trace = in_child(_failure, tmp_path, budget)
    assert shard.name in message and "truncated" in message and trace == []


def _failure(folder: Path, budget: float) -> tuple[str, list[Any]]:
    try:
        _taken(folder, budget, [[0, 1]])
    except UserFault as fault:
        failed = describe(fault)
        assert "clone the dataset" in failed.hint
        return failed.message, failed.trace
    raise AssertionError("not reported")


def _taken(folder: Path, budget: float, batches: list[list[int]]) -> Any:
    from digits.worker.input import feeds as input

    split = input.Records(folder, manifest.load(folder), "train", budget)
    assert split.is_resident is (budget > 0)
    feed = split.feed(iter(np.array(batch) for batch in batches))
    images, labels, positions = feed.take(2)
    flat = tf.reshape(positions, [-1])
    taken = tf.gather(images, flat).numpy(), tf.gather(labels, flat).numpy()
    feed.close()
    split.close()
    return taken


def test_a_balanced_epoch_has_equally_many_records_of_each_class(input: Any) -> None:
    labels = np.array([0] * 90 + [1] * 10, np.int32)
    epochs = np.stack(list(islice(input.training_order(100, 100, 3, True, balanced=labels), 12)))
    assert (labels[epochs] == 1).sum(1).tolist() == [50] * 12
    rare = np.array([np.bincount(epoch, minlength=100)[90:] for epoch in epochs])
    assert (rare == 5).all()
    frequent = np.array([np.bincount(epoch, minlength=100)[:90] for epoch in epochs])
    assert (
        frequent.max() == 1 and (frequent.sum(0) > 0).all()
    )  # after a few epochs, every record has been used
    assert 10 < (labels[epochs[0, :50]] == 1).sum() < 40


def test_a_balanced_order_depends_only_on_seed_and_epoch(input: Any) -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2], np.int32)
    whole = list(islice(input.training_order(7, 3, 5, True, balanced=labels), 12))
    later = list(islice(input.training_order(7, 3, 5, True, first_step=8, balanced=labels), 4))
    assert np.array_equal(whole[8:], later)
    other = list(islice(input.training_order(7, 3, 6, True, balanced=labels), 12))
    assert not np.array_equal(whole, other)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 99))
def test_class_counts_in_a_balanced_epoch_differ_by_at_most_one(
    tensorflow: None, classes: list[int], seed: int
) -> None:
    from digits.worker.input import feeds as input

    labels = np.array(classes, np.int32)
    epoch = next(input.training_order(len(labels), len(labels), seed, True, balanced=labels))
    drawn = np.bincount(labels[epoch])[np.unique(labels)]
    assert drawn.sum() == len(labels) and np.ptp(drawn) <= 1


def test_class_weights_and_balanced_sampling(input: Any) -> None:
    groups = np.array([0] * 9 + [2] * 1, np.int32)
    found = manifest_of(ClassIndex.of(list("abcd")), groups=list("abcd"))
    weights, balanced = input.balance("class_weights", groups, found)
    assert np.allclose(weights, [10 / 18, 0, 5, 0]) and balanced is None
    assert weights[groups].sum() == pytest.approx(10)
    assert input.balance("none", groups, found) == (None, None)
    assert input.balance("sampling", groups, found) == (None, groups)
    with pytest.raises(Exception, match="Unknown class balancing 'twice'"):
        input.balance("twice", groups, found)


def test_targets_without_classes_have_no_class_weights(input: Any) -> None:
    found = manifest_of(Numbers.of(["angle"], [0.0], [1.0]), groups=["angle"])
    with pytest.raises(Exception, match="Class weights require a dataset with classes"):
        input.balance("class_weights", np.zeros(3, np.int32), found)
    found.groups = []
    with pytest.raises(Exception, match="no groups to balance"):
        input.balance("sampling", np.full(3, -1, np.int32), found)


@pytest.mark.parametrize(("budget", "how"), [(9 * 108, "resident"), (9 * 108 - 1, "streamed")])
def test_the_data_loading_mode_is_reported(in_child: Any, tmp_path: Path, budget: int, how: str) -> None:
    write_dataset(tmp_path, {"train": 9}, size=6, channels=3)
    prepared = in_child(_how_loaded, tmp_path, budget)
    assert (prepared.split, prepared.how, prepared.records, prepared.bytes) == ("train", how, 9, 9 * 108)
    assert prepared.budget_bytes == budget and prepared.free_bytes > 0 and prepared.place == "memory"


def _how_loaded(folder: Path, budget: int) -> Any:
    from digits.worker.input import feeds as input

    split = input.Records(folder, manifest.load(folder), "train", budget)
    split.close()
    return split.input_prepared


def test_memory_reserved_for_one_split_is_not_available_for_the_other(
    input: Any, train: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 30_000)
    prepared = {event.split: event for event in train(networks.LINEAR, epochs=1).of(InputPrepared)}
    assert (prepared["train"].budget_bytes, prepared["train"].how) == (12_000, "resident")
    left = 30_000 - prepared["train"].bytes
    assert (prepared["val"].free_bytes, prepared["val"].budget_bytes) == (left, int(0.4 * left))


@pytest.mark.parametrize(
    ("limits", "free", "expected"),
    [
        ([SimpleNamespace(memory_limit=100)], 2**30, (100 * 2**20, "GPU memory")),
        ([SimpleNamespace(memory_limit=100)], 2**20, (2**20, "GPU memory")),
        ([SimpleNamespace(memory_limit=100)], None, (100 * 2**20, "GPU memory")),
        (None, 2**20, (2**20, "GPU memory")),
        (None, None, (2**33, "memory")),
        (None, 2**34, (2**33, "memory")),
    ],
)
def test_cached_images_respect_the_gpu_memory_limit(
    input: Any, monkeypatch: Any, tmp_path: Path, limits: Any, free: int | None, expected: tuple[int, str]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**33)
    monkeypatch.setattr(memory, "free_bytes_by_driver", lambda: free)
    monkeypatch.setattr(input.tf.config, "get_visible_devices", lambda kind: ["gpu"])
    monkeypatch.setattr(input.tf.config, "get_logical_device_configuration", lambda gpu: limits)
    write_dataset(tmp_path, {"train": 9}, size=6, channels=3)
    for taken in (0, 1000):
        records = input.Records(tmp_path, manifest.load(tmp_path), "train", taken=taken)
        prepared = records.input_prepared
        records.close()
        assert (prepared.free_bytes, prepared.place) == (expected[0] - taken, expected[1])
        assert prepared.budget_bytes == int(memory.RESIDENT_SHARE * (expected[0] - taken))


@pytest.mark.parametrize("budget", [0, 1e9], ids=["streamed", "resident"])
def test_images_are_placed_on_the_requested_device(in_own_child: Any, tmp_path: Path, budget: float) -> None:
    write_dataset(tmp_path, {"train": 9}, size=6, channels=1)
    (elsewhere, device), (here, _) = in_own_child(_placed, tmp_path, budget)
    assert device.endswith("CPU:1")
    assert np.array_equal(elsewhere, here)


def _placed(folder: Path, budget: float) -> list[tuple[np.ndarray, str]]:
    """Return images that are placed on the second device, and on the first one, with their device."""
    from digits.worker.input import feeds as input

    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = []
    for number in (1, 0):
        with mock.patch.object(input.Decoder, "device", f"/device:CPU:{number}"):
            records = input.Records(folder, manifest.load(folder), "train", budget)
            feed = records.feed(iter([np.array([3, 1]), np.array([0, 8])]))
            chunk = feed.take(2)
            feed.close()
        images = np.concatenate([chunk.batch(index)[0].numpy() for index in range(2)])
        found.append((images, chunk.images.device))
    return found
