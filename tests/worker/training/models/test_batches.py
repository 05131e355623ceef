"""Batches of records for networks that accept any number of them, whole batches only, or more than one record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.conftest import write_dataset
from tests.worker.lazily import batch_prediction, feeds, tf

RECORDS = 21
TRAINING_SIZE = 8


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


def compute(accepts: Callable[[int], bool], counts: list[int]) -> Any:
    """Compute batches of ``counts`` records; return sums, doubles and a number per batch, and all sizes."""
    from digits.worker.training.models.batches import Batches

    sizes = []

    def network(pixels: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
        sizes.append(len(pixels))
        if not accepts(len(pixels)):
            raise tf.errors.InvalidArgumentError(None, None, f"{len(pixels)} records")
        return {"sums": tf.reduce_sum(pixels, 1), "y": (y, 2 * y), "mean": tf.constant(3)}

    batches = Batches(network, TRAINING_SIZE)
    values = np.arange(3 * max(counts)).reshape(-1, 3)
    results = [batches(tf.constant(values[:count]), values[:count, 0]) for count in counts]
    return values.sum(1), results, sizes, batches.smallest


@pytest.mark.parametrize(
    ("accepts", "counts", "sizes", "smallest"),
    [
        (_any_size, [16, 5, 1], [16, 5, 1], 1),
        (_eights, [16, 5], [16, 8, 8, 8], 8),
        (_eights, [1, 5], [1, 2, 8, 8], 8),
        (_multiples_of_eight, [16, 5, 16], [16, 5, 8, 8, 8], 8),
        (_several, [16, 1, 1, 5], [16, 1, 2, 2, 5], 2),
        (_several, [1, 16], [1, 2, 16], 2),
    ],
)
def test_a_network_computes_batches_of_any_size(
    in_child: Any, accepts: Callable[[int], bool], counts: list[int], sizes: list[int], smallest: int
) -> None:
    sums, results, computed, least = in_child(compute, accepts, counts)
    assert (computed, least) == (sizes, smallest)
    for count, result in zip(counts, results, strict=True):
        assert list(result) == ["sums", "y", "mean"]
        assert result["sums"].tolist() == sums[:count].tolist()
        y, doubled = result["y"]
        assert len(y) == count and doubled.tolist() == (2 * y).tolist()
        assert result["mean"] == 3


def test_a_network_that_accepts_no_batch_raises_its_own_error(in_child: Any) -> None:
    with pytest.raises(AssertionError, match="InvalidArgumentError: 8 records"):
        in_child(compute, _nothing, [8])


def squeeze(counts: list[int]) -> Any:
    from digits.worker.training.models.batches import Batches

    batches = Batches(lambda x: tf.squeeze(x), TRAINING_SIZE)
    return [batches(np.ones((count, 5), np.float32)).shape for count in counts], batches.smallest


def test_a_network_that_drops_the_batch_axis_gets_two_records(in_child: Any) -> None:
    assert in_child(squeeze, [1, 3]) == ([(1, 5), (3, 5)], 2)


def read(folder: Path, places: list[int], size: int) -> Any:
    records = feeds.Records(folder, feeds.load_manifest(folder), "val", budget_bytes=0)
    sums = lambda pixels, y: (pixels.numpy().sum((1, 2, 3)).tolist(), y.numpy().tolist())  # noqa: E731
    batches = [
        (part.tolist(), *values)
        for part, values in batch_prediction.in_batches(records, np.array(places), size, sums)
    ]
    records.close()
    return batches


def test_records_are_read_in_batches(tmp_path: Path, in_child: Any) -> None:
    write_dataset(tmp_path, {"train": 4, "val": RECORDS}, size=4, channels=1)
    each = in_child(read, tmp_path, list(range(RECORDS)), 1)
    assert [part for part, _, _ in each] == [[place] for place in range(RECORDS)]
    places = np.random.default_rng(1).permutation(RECORDS)[:17].tolist()
    batches = in_child(read, tmp_path, places, 16)
    assert [len(part) for part, _, _ in batches] == [16, 1]
    assert [place for part, _, _ in batches for place in part] == places
    for part, sums, targets in batches:
        assert sums == [each[place][1][0] for place in part]
        assert targets == [each[place][2][0] for place in part]
    assert in_child(read, tmp_path, [], 16) == []
