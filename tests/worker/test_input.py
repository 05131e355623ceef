"""The order of the records, and what is done to images before the network sees them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.conftest import write_dataset

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def input(tensorflow: None) -> Any:
    from digits.worker import input

    return input


def test_every_record_once_an_epoch(input: Any) -> None:
    order = np.concatenate(list(islice(input.training_order(10, 4, seed=3, shuffle=True), 5)))
    assert sorted(order[:10]) == list(range(10))
    assert sorted(order[10:]) == list(range(10))
    assert list(order[:10]) != list(order[10:]) != list(range(10))


def test_the_order_depends_on_seed_and_epoch_alone(input: Any) -> None:
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
    assert [list(batch) for batch in input.evaluation_order(5, 2)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("encoding", ["png", "jpg", "none"])
@pytest.mark.parametrize("budget", [0, 1e9], ids=["streamed", "resident"])
def test_records_are_decoded_in_the_order_asked_for(
    in_child: Any, tmp_path: Path, encoding: str, budget: float
) -> None:
    from digits.dataset import manifest, records

    write_dataset(tmp_path, {"train": 9}, size=6, channels=3, encoding=encoding)
    with records.SplitReader(tmp_path, manifest.load(tmp_path).splits["train"]) as reader:
        expected = [reader.read(number) for number in (7, 0, 3, 8)]
    images, labels = in_child(_taken, tmp_path, budget, [[7, 0], [3, 8]])
    assert labels.tolist() == [record.label for record in expected]
    assert np.array_equal(images, np.stack([record.as_array() for record in expected]))


def _taken(folder: Path, budget: float, batches: list[list[int]]) -> Any:
    import tensorflow as tf

    from digits.dataset import manifest
    from digits.worker import input

    split = input.Records(folder, manifest.load(folder), "train", budget)
    assert split.is_resident is (budget > 0)
    feed = split.feed(iter(np.array(batch) for batch in batches))
    images, labels, positions = feed.take(2)
    flat = tf.reshape(positions, [-1])
    taken = tf.gather(images, flat).numpy(), tf.gather(labels, flat).numpy()
    feed.close()
    split.close()
    return taken


def test_windows_are_cut(in_child: Any) -> None:
    central, padded, random, same = in_child(_windows)
    image = np.arange(25.0).reshape(5, 5)
    assert np.array_equal(central[0, :, :, 0], image[1:4, 1:4] - 1)
    assert padded.shape == (1, 7, 7, 1) and padded[0, 0].sum() == 0
    corners = {(int(window[0, 0, 0]) + 1) for window in random}
    assert len(corners) > 3
    for window in random:
        top, left = divmod(int(window[0, 0, 0]) + 1, 5)
        assert np.array_equal(window[:, :, 0], image[top : top + 3, left : left + 3] - 1)
    assert same


def _windows() -> Any:
    import tensorflow as tf

    from digits.worker.input import Preparation

    images = tf.constant(np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1))
    mean = np.ones((5, 5, 1), np.float32)
    three = Preparation(mean, 3, (5, 5, 1))
    many = tf.repeat(images, 20, axis=0)
    random = three(many, tf.constant([1, 2])).numpy()
    again = three(many, tf.constant([1, 2])).numpy()
    seven = Preparation(mean, 7, (5, 5, 1))
    return (
        three(images).numpy(),
        seven(images, tf.constant([1, 2])).numpy(),
        random,
        np.array_equal(random, again),
    )
