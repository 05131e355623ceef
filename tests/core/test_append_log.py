"""Logs of entries that are only appended: whole entries, durable, and never more than a reader accepts."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from digits.core import append_log
from digits.core.files import UnreadableFile
from tests.failing_disk import failing_disk
from tests.power_loss import Recording, write


class Item(Struct):
    number: Annotated[int, Meta(ge=0)]
    text: str = ""


def numbers(folder: Path, cursor: int = 0) -> list[int]:
    return [item.number for item, _ in append_log.read(folder / "log", Item, cursor, below=folder)]


def test_entries_are_read_in_order_from_any_cursor(tmp_path: Path) -> None:
    assert numbers(tmp_path) == []
    append_log.append(tmp_path / "log", [Item(1), Item(2)])
    (*_, (_, cursor)) = append_log.read(tmp_path / "log", Item, below=tmp_path)
    append_log.append(tmp_path / "log", [Item(3)])
    assert numbers(tmp_path) == [1, 2, 3]
    assert numbers(tmp_path, cursor) == [3]


def test_an_incomplete_line_is_skipped_and_replaced(tmp_path: Path) -> None:
    append_log.append(tmp_path / "log", [Item(1)])
    with open(tmp_path / "log", "ab") as file:
        file.write(b'{"number":2,"text":"' + b"x" * 1_000_000)
    assert numbers(tmp_path) == [1]
    append_log.append(tmp_path / "log", [Item(3)])
    assert numbers(tmp_path) == [1, 3]


@pytest.mark.parametrize("entry", [Item(-1), Item(1, "x" * append_log.MAX_LINE_BYTES)])
def test_what_no_reader_accepts_is_not_written(tmp_path: Path, entry: Item) -> None:
    append_log.append(tmp_path / "log", [Item(1)])
    with pytest.raises(ValueError):
        append_log.append(tmp_path / "log", [Item(2), entry])
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("line", [b"{}\n", b"damaged\n", b"[" * 5000 + b"\n", b"x" * (1 << 20) + b"x\n"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    append_log.append(tmp_path / "log", [Item(1)])
    with open(tmp_path / "log", "ab") as file:
        file.write(line)
    append_log.append(tmp_path / "log", [Item(3)])
    with pytest.raises(UnreadableFile, match="the line at byte 23 of log"):
        numbers(tmp_path)


def test_a_full_disk_keeps_the_entries_before(tmp_path: Path) -> None:
    append_log.append(tmp_path / "log", [Item(1)])
    with failing_disk(tmp_path, 28, 1), pytest.raises(OSError):
        append_log.append(tmp_path / "log", [Item(2)])
    append_log.append(tmp_path / "log", [Item(3)])
    assert numbers(tmp_path) == [1, 3]


def test_appended_entries_survive_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    recording = Recording(folder, tmp_path / "recording")
    recording.start(monkeypatch)
    states = []
    for number in range(4):
        append_log.append(folder / "log", [Item(number), Item(10 + number)])
        states.append(recording.surviving())
    monkeypatch.undo()
    chance = random.Random(0)
    states += [state for moment in recording.moments() for state in recording.states(moment, chance)]
    for place, state in enumerate(states):
        write(state, tmp_path / str(place))
        kept = numbers(tmp_path / str(place)) if place < 4 else None
        assert kept in (None, [0, 10, 1, 11, 2, 12, 3, 13][: 2 * (place + 1)])


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        append_log.append(tmp_path / "log", [Item(1)])
    assert not os.path.exists(tmp_path / "other")
