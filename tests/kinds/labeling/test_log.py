"""The log of labels: durable, numbered entries per image, whatever is repeated, conflicts or is cut off."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from digits.core import append_log
from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.kinds.labeling.answers import STATES, Entry, Object, Proposal, Sent
from digits.kinds.labeling.log import LABELS_FILE, Conflict, LabelLog
from tests.power_loss import Recording, write

# Random states of each moment of a power loss.
POWER_LOSSES = int(os.environ.get("DIGITS_POWER_LOSSES", "2"))


def sent(rev: int, edit: str, **fields: Any) -> Sent:
    return Sent(rev=rev, edit=edit, **{"label": 1, **fields})


def open_log(folder: Path) -> LabelLog:
    log = LabelLog(folder)
    log.update()
    return log


def contents(log: LabelLog) -> list[list[tuple[int, str]]]:
    """Return the numbers and the edits of all entries of each image, the oldest first."""
    return [
        [(entry.rev, entry.edit) for entry in log.history(image)][::-1] for image in range(len(log.states))
    ]


def test_entries_of_an_image_are_linked_and_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.extend(4)
    assert log.save(2, sent(0, "a"), "ada") == 1
    assert log.save(0, sent(0, "b", label=3), "ada") == 1
    assert log.save(2, sent(1, "c", state="skipped", label=0), "grace") == 2
    for each in (log, open_log(tmp_path)):
        each.extend(4)
        assert contents(each) == [[(1, "b")], [], [(1, "a"), (2, "c")], []]
        assert [STATES[state] for state in each.states] == ["labeled", "none", "skipped", "none"]
        assert +each.classes.count() == {3: 1, 0: 1}
        latest = each.latest(2)
        assert latest is not None and (latest.by, latest.state, latest.label) == ("grace", "skipped", 0)
        assert each.latest(1) is None
        assert [entry.edit for entry in each.history(2, before=2)] == ["a"]


def test_a_repeated_edit_has_no_effect_even_after_others(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.save(0, sent(0, "a"), "ada") == 1
    assert log.save(0, sent(0, "a"), "ada") == 1
    assert log.save(0, sent(1, "b"), "ada") == 2
    # The response was lost: the client sends both again, also on top of what it has seen meanwhile.
    for repeated in (sent(0, "a"), sent(1, "b"), sent(2, "b"), sent(2, "a")):
        assert log.save(0, repeated, "ada") == (1 if repeated.edit == "a" else 2)
    assert contents(open_log(tmp_path)) == [[(1, "a"), (2, "b")]]


def test_an_edit_of_an_older_entry_is_a_conflict_with_the_latest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.save(0, sent(0, "a"), "ada")
    for rev in (0, 2):
        with pytest.raises(Conflict) as raised:
            log.save(0, sent(rev, "other"), "grace")
        (entry,) = raised.value.entries.values()
        assert entry is not None and entry.edit == "a"
    with pytest.raises(Conflict) as raised:
        log.save(1, sent(1, "other"), "grace")
    assert raised.value.entries == {1: None}
    assert contents(log) == [[(1, "a")]]


def test_an_edit_that_replaces_those_without_a_response_is_no_conflict(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.save(0, sent(0, "a"), "ada")
    log.save(0, sent(1, "b"), "ada")
    assert log.save(0, sent(0, "c", earlier=["x", "a", "b"]), "ada") == 3
    log.save(0, sent(3, "d"), "grace")
    for earlier in ([], ["c"], ["a", "b"]):
        with pytest.raises(Conflict):
            log.save(0, sent(0, "e", earlier=earlier), "ada")
    with pytest.raises(Conflict):
        log.save(0, sent(5, "e", earlier=["d"]), "ada")
    assert contents(open_log(tmp_path)) == [[(1, "a"), (2, "b"), (3, "c"), (4, "d")]]


def test_masks_are_files_of_their_own_that_entries_can_keep(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.save(3, Sent(rev=0, edit="a", mask="data"), "ada", b"first", [0, 2])
    log.save(3, Sent(rev=1, edit="b", state="reviewed", mask="3-1.png"), "grace")
    log.save(3, Sent(rev=2, edit="c", mask="data"), "ada", b"second", [1])
    assert [(entry.mask, entry.labels) for entry in log.history(3)] == [
        ("3-3.png", [1]), ("3-1.png", [0, 2]), ("3-1.png", [0, 2]),
    ]  # fmt: skip
    assert {path.name: path.read_bytes() for path in (tmp_path / "masks").iterdir()} == {
        "3-1.png": b"first", "3-3.png": b"second",
    }  # fmt: skip
    for other in ("3-2.png", "../labels.png", "4-1.png"):
        with pytest.raises(BadRequest, match="not a mask of the image"):
            log.save(3, Sent(rev=3, edit="d", mask=other), "ada")
    assert +open_log(tmp_path).classes.count() == {1: 1}
    log.save(3, Sent(rev=3, edit="e", mask="3-1.png"), "ada")  # undone
    assert +open_log(tmp_path).classes.count() == {0: 1, 2: 1}


def test_an_answer_that_no_line_can_contain_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    ring = [float(number) for number in range(300_000)]
    with pytest.raises(BadRequest, match="larger than the limit"):
        log.save(0, Sent(rev=0, edit="a", objects=[Object(class_=0, rings=[ring])]), "ada")
    assert contents(open_log(tmp_path)) == []


def test_entries_that_are_not_linked_are_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.save(0, sent(0, "a"), "ada")
    log.save(1, sent(0, "b"), "ada")
    path = tmp_path / LABELS_FILE
    path.write_text(path.read_text().replace('"image":1,', '"image":1,"prev":0,'))
    with pytest.raises(UnreadableFile, match="is not of image 1"):
        list(open_log(tmp_path).history(1))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.floats(0, 1), st.integers(0, 3))
def test_a_log_cut_at_any_byte_is_read_up_to_its_last_whole_entry(
    tmp_path_factory: pytest.TempPathFactory, images: list[int], part: float, image: int
) -> None:
    folder = tmp_path_factory.mktemp("job")
    log, ends, states = open_log(folder), [0], []
    for number, changed in enumerate(images):
        states.append(contents(log))
        log.save(changed, sent(log.rev(changed), f"{number}"), "ada")
        ends.append(log.cursor)
    states.append(contents(log))
    cut = round(part * ends[-1])
    with open(folder / LABELS_FILE, "r+b") as file:
        file.truncate(cut)
    whole = max(number for number, end in enumerate(ends) if end <= cut)
    found = contents(again := open_log(folder))
    assert found == states[whole][: len(found)]
    assert not any(states[whole][len(found) :])
    # The next entry replaces the rest of the line.
    assert again.save(image, sent(again.rev(image), "new"), "ada") == len(list(again.history(image)))
    assert contents(open_log(folder)) == contents(again)
    shutil.rmtree(folder)


def logged(folder: Path) -> list[tuple[int, int]]:
    """Return the image and the number of each entry in the order of the log; each mask must be complete."""
    found = []
    for entry, _ in append_log.read(folder / LABELS_FILE, Entry, below=folder):
        if entry.mask is not UNSET:
            assert (folder / "masks" / entry.mask).read_bytes() == b"drawn" * 999
        found.append((entry.image, entry.rev))
    return found


def test_saved_labels_survive_a_power_loss_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mask = tmp_path / "job", b"drawn" * 999
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "proposed.png").write_bytes(mask)
    log = open_log(folder)
    proposals = {number: Proposal(image=number, mask="proposed.png") for number in (3, 4, 5)}
    recording = Recording(folder, tmp_path / "recording")
    recording.start(monkeypatch)
    changes: list[Callable[[], object]] = [
        lambda: log.save(0, Sent(rev=0, edit="a", state="skipped"), "ada"),
        lambda: log.save(1, Sent(rev=0, edit="b", mask="data"), "ada", mask, [1]),
        lambda: log.save(1, Sent(rev=1, edit="c", mask="data"), "grace", mask, [1]),
        lambda: log.accept(proposals, "ada", "batch", folder / "run"),
        lambda: log.take_back("batch", "ada"),
        lambda: log.save(0, Sent(rev=1, edit="d", mask="data"), "ada", mask, [0]),
    ]
    confirmed, ends = [0], []
    for number, change in enumerate(changes):
        change()
        confirmed.append(len(logged(folder)))
        write(recording.surviving(), tmp_path / f"after-{number}")
        assert logged(tmp_path / f"after-{number}") == logged(folder)
        ends.append(sum(1 for _ in recording.moments()))
    monkeypatch.undo()
    every, chance = logged(folder), random.Random(0)
    for place, moment in enumerate(recording.moments()):
        least = confirmed[sum(end <= place for end in ends)]
        for number, state in enumerate(recording.states(moment, chance, POWER_LOSSES)):
            write(state, left := tmp_path / f"{place}-{number}")
            found = logged(left)
            assert found == every[: len(found)] and len(found) >= least
            # The next entry replaces the rest of a line.
            again = open_log(left)
            again.save(9, sent(0, "new"), "ada")
            assert logged(left) == [*found, (9, 1)]
            shutil.rmtree(left)
