"""Pending changes of a dataset's records: a log that any number of them may be appended to."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.kinds.versions import pending_edits
from digits.kinds.versions.pending_edits import PENDING_FILE, Change, TooManyChanges, as_edits, load, update


def test_the_last_change_of_a_record_counts_and_says_who_made_it(tmp_path: Path) -> None:
    update(tmp_path, {"train/1": Change(exclude=True), "val/0": Change(label=2)}, "ada")
    pending = update(tmp_path, {"train/1": Change(label=1, split="val"), "val/0": None}, "grace")
    assert pending.changes == {"train/1": Change(label=1, split="val")}
    assert pending.words == as_edits(pending.changes).describe() == "1 image relabeled, 1 image moved"
    lines = [json.loads(line) for line in (tmp_path / PENDING_FILE).read_text().splitlines()]
    assert [(line["rev"], line["by"], line["record"]) for line in lines] == [
        (1, "ada", "train/1"), (2, "ada", "val/0"), (3, "grace", "train/1"), (4, "grace", "val/0"),
    ]  # fmt: skip
    update(tmp_path, {"train/1": None})
    assert not (tmp_path / PENDING_FILE).exists()


CHANGES = st.dictionaries(
    st.builds("{}/{}".format, st.sampled_from(["train", "val"]), st.integers(0, 5)),
    st.none()
    | st.builds(
        Change,
        exclude=st.booleans(),
        label=st.integers(0, 3),
        labels=st.dictionaries(st.sampled_from("0123"), st.booleans()),
        split=st.sampled_from(["train", "test"]),
    ),
    max_size=5,
)


@given(st.lists(CHANGES, max_size=5))
def test_changes_are_read_as_they_were_made(
    tmp_path_factory: pytest.TempPathFactory, updates: list[dict[str, Change | None]]
) -> None:
    folder = tmp_path_factory.mktemp("job")
    expected: dict[str, Change] = {}
    for changes in updates:
        for place, change in changes.items():
            expected.pop(place, None)
            if change is not None:
                expected[place] = change
        pending = update(folder, changes)
        assert pending.changes == expected
        assert pending.words == as_edits(expected).describe()
        again = msgspec.json.decode(b"".join(pending.pieces()), type=dict[str, Change])
        assert again == expected
        counts = pending.splits({"train": 10, "val": 10})
        assert sum(counts.values()) == 20 - sum(change.exclude for change in expected.values())
    (folder / "x").touch()
    assert load(folder).changes == expected


@pytest.mark.slow
def test_all_changes_that_are_accepted_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {str(number): True for number in range(1000)}
    for start in range(0, 2000, 500):
        changes = {f"train/{number}": Change(labels=labels) for number in range(start, start + 500)}
        update(tmp_path, changes)
    assert (tmp_path / PENDING_FILE).stat().st_size > 16 << 20
    again = tmp_path.rename(tmp_path.with_name("again"))
    assert len(load(again).changes) == 2000
    monkeypatch.setattr(pending_edits, "MAX_EDITS", 2000)
    with pytest.raises(TooManyChanges):
        update(again, {"train/0": Change(label=1), "train/2000": Change(label=1)})
    assert load(again).changes["train/0"].labels == labels
    update(again, {"train/0": None, "train/1": Change(label=1)})
    assert len(load(again).changes) == 1999


def test_a_change_that_is_too_long_is_refused_as_a_whole(tmp_path: Path) -> None:
    labels = {str(number): True for number in range(200_000)}
    with pytest.raises(ValueError, match="is larger than the limit"):
        update(tmp_path, {"train/0": Change(label=1), "train/1": Change(labels=labels)})
    assert load(tmp_path).changes == {}


def test_a_damaged_line_is_named_and_costs_no_other_change(tmp_path: Path) -> None:
    update(tmp_path, {"train/0": Change(exclude=True)})
    log = tmp_path / PENDING_FILE
    whole = log.read_bytes()
    again = tmp_path / "again"
    again.mkdir()
    (again / PENDING_FILE).write_bytes(whole + b"damaged\n" + whole.replace(b"train/0", b"train/1"))
    with pytest.raises(UnreadableFile, match=f"the line at byte {len(whole)} of {PENDING_FILE} is damaged"):
        load(again)
    with pytest.raises(UnreadableFile):
        update(again, {"train/2": Change(exclude=True)})
    (again / PENDING_FILE).write_bytes(whole + whole.replace(b"train/0", b"train/1"))
    assert set(load(again).changes) == {"train/0", "train/1"}
