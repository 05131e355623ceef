"""Shares: how many records each split gets, and which."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.splits import SPLITS
from digits.data.sources.plan import ImageFolder, SplitPlan, UnusableSource
from digits.data.sources.shares import Shares, permute


def counts(total: int, shares: Shares) -> tuple[int, ...]:
    """The number of records of each split."""
    parts = shares.slices(total)
    return tuple(len(range(total)[parts.get(split, slice(0))]) for split in SPLITS)


@pytest.mark.parametrize(
    ("count", "pct_val", "pct_test", "expected"),
    [
        (10, 20, 10, (7, 2, 1)),
        (10, 25, 0, (8, 2, 0)),
        (3, 25, 25, (1, 1, 1)),
        (2, 25, 25, (1, 1, 0)),
        (1, 25, 0, (1, 0, 0)),
        (5, 1, 1, (3, 1, 1)),
        (0, 25, 25, (0, 0, 0)),
        (8, 0, 0, (8, 0, 0)),
        (8, 0, 25, (6, 0, 2)),
        (6, 25, 0, (5, 1, 0)),
        (1000, 33.3, 33.4, (333, 333, 334)),
    ],
)
def test_the_split_sizes_of_a_class(
    count: int, pct_val: float, pct_test: float, expected: tuple[int, ...]
) -> None:
    assert counts(count, Shares(pct_val, pct_test)) == expected


@given(st.integers(0, 5000), st.floats(0, 99), st.floats(0, 99))
def test_splitting_neither_loses_nor_repeats_an_image(count: int, pct_val: float, pct_test: float) -> None:
    if pct_val + pct_test >= 100:
        pct_test = 99 - pct_val
    parts = Shares(pct_val, pct_test).slices(count)
    assert [place for part in parts.values() for place in range(count)[part]] == list(range(count))
    shares = counts(count, Shares(pct_val, pct_test))
    if count >= 3:
        assert shares[0] >= 1
        assert (shares[1] > 0) == (pct_val > 0)
        assert (shares[2] > 0) == (pct_test > 0)
        assert abs(shares[0] - count * (100 - pct_val - pct_test) / 100) <= 2


def test_a_split_with_its_own_source_takes_no_share() -> None:
    images = ImageFolder(Path())
    train = SplitPlan(images, [f"{n}.png" for n in range(100)], list(range(100)))
    test = SplitPlan(images, ["t.png"], [7])
    sources = {"train": train, "test": test}
    parts = Shares(20, 90, own=sources).divide(sources, [permute(100, 1)])
    assert {name: len(part) for name, part in parts.items()} == {"train": 80, "val": 20, "test": 1}
    files = parts["train"].files + parts["val"].files
    assert sorted(files) == sorted(train.files)
    for part in parts.values():
        if part is not test:
            assert [f"{value}.png" for value in part.targets] == part.files


def test_something_must_be_left_to_train_on() -> None:
    assert Shares(99.9, 0).train == pytest.approx(0.1)
    assert Shares(100, 30, own=["val"]).taken == {"test": 30}
    with pytest.raises(UnusableSource, match=r"take 102\.5%"):
        Shares(60, 42.5)
