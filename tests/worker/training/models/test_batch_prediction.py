"""Batches of records for networks that accept any number of them, whole batches only, or more than one record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.conftest import write_dataset

pytestmark = pytest.mark.tensorflow

RECORDS = 21


def _any_size(count: int) -> bool:
    return True


def _eights(count: int) -> bool:
    return count == 8


def _multiples_of_eight(count: int) -> bool:
    return count % 8 == 0


def _several(count: int) -> bool:
    return count > 1


def _nothing(count: int) -> bool:
    return False


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_dataset(tmp_path, {"train": 4, "val": RECORDS}, size=4, channels=1)
    return tmp_path


def predict(dataset: Path, places: list[int], sizes: list[int], accepts: Callable[[int], bool]) -> Any:
    """Return the places, the sums of pixels and the targets by batch, and the sizes of all batches computed."""
    import tensorflow as tf

    from digits.worker.input import feeds
    from digits.worker.training.models.batch_prediction import in_batches

    computed = []

    def compute(pixels: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        computed.append(len(pixels))
        if not accepts(len(pixels)):
            raise tf.errors.InvalidArgumentError(None, None, f"{len(pixels)} records")
        return tf.reduce_sum(tf.cast(pixels, tf.int64), [1, 2, 3]), y

    records = feeds.Records(dataset, feeds.load_manifest(dataset), "val", budget_bytes=0)
    found = [
        (chosen.tolist(), sums.numpy().tolist(), y.numpy().tolist())
        for chosen, (sums, y) in in_batches(records, np.array(places), sizes, compute)
    ]
    records.close()
    return found, computed


def one_by_one(in_child: Any, dataset: Path) -> list[tuple[int, int]]:
    found, _ = in_child(predict, dataset, list(range(RECORDS)), [1], _any_size)
    assert [chosen for chosen, _, _ in found] == [[place] for place in range(RECORDS)]
    return [(sums[0], y[0]) for _, sums, y in found]


@pytest.mark.parametrize(
    ("accepts", "count", "computed"),
    [
        (_any_size, 21, [16, 5]),
        (_any_size, 16, [16]),
        (_any_size, 5, [5]),
        (_eights, 21, [16, 8, 8, 5, 8]),
        (_eights, 5, [5, 16, 5, 8]),
        (_multiples_of_eight, 21, [16, 5, 16]),
        (_several, 17, [16, 2]),
        (_several, 1, [2]),
    ],
)
def test_batches_are_as_large_as_the_network_accepts(
    dataset: Path, in_child: Any, accepts: Callable[[int], bool], count: int, computed: list[int]
) -> None:
    expected = one_by_one(in_child, dataset)
    places = np.random.default_rng(1).permutation(RECORDS)[:count].tolist()
    found, sizes = in_child(predict, dataset, places, [16, 8], accepts)
    assert sizes == computed
    assert [place for chosen, _, _ in found for place in chosen] == places
    for chosen, sums, y in found:
        values = list(zip(sums, y, strict=True))[: len(chosen)]
        assert values == [expected[place] for place in chosen]


def test_no_records_are_no_batches(dataset: Path, in_child: Any) -> None:
    assert in_child(predict, dataset, [], [16, 8], _any_size) == ([], [])


def test_a_network_that_accepts_no_batch_raises_its_own_error(dataset: Path, in_child: Any) -> None:
    with pytest.raises(AssertionError, match="InvalidArgumentError: 8 records"):
        in_child(predict, dataset, list(range(8)), [16, 8], _nothing)
