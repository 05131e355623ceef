"""Requirements on the file system of a jobs folder, and logs on file systems that other machines share."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from pathlib import Path
from typing import Any

import pytest

from digits.core import events, files
from digits.core.events import EventLog, Progressed
from digits.runtime.executors.folder_check import check_folder


def test_a_local_folder_meets_all_requirements(tmp_path: Path) -> None:
    assert [(finding.is_ok, finding.remedy) for finding in check_folder(tmp_path)] == [(True, "")]
    assert not list(tmp_path.iterdir())


def failed(folder: Path) -> list[str]:
    findings = [finding for finding in check_folder(folder) if not finding.is_ok]
    assert all(finding.detail and finding.remedy for finding in findings)
    assert not list(folder.glob("*")) and not list(folder.glob(".check*"))
    return [finding.title for finding in findings]


def test_a_folder_that_cannot_be_written_is_the_only_finding(tmp_path: Path) -> None:
    assert failed(tmp_path / "missing") == ["This server can write to the jobs folder"]


def test_each_missing_property_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        assert "Writes can be made durable" in failed(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        assert failed(tmp_path) == ["A file can replace another one in one step"]
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lambda *_: None)
        assert failed(tmp_path) == ["Files can be locked"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        assert failed(tmp_path)[0].startswith("New files belong to the server’s user")
    with monkeypatch.context() as patched:
        patched.setattr(files, "read_bytes", lambda *_, **keywords: b"")
        assert failed(tmp_path) == ["Appended lines are visible when a file is opened again"]
    touch = Path.touch
    with monkeypatch.context() as patched:
        patched.setattr(Path, "touch", lambda self, exist_ok=True: touch(self))
        assert failed(tmp_path) == ["Only one program can create a file"]


# Logs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "task").mkdir()
    path = tmp_path / "task" / "events.jsonl"
    writer = EventLog(path)
    writer.append(*(Progressed(fraction=number / 10) for number in range(3)))
    writer.close()
    return path


def fractions(path: Path, cursor: int) -> tuple[list[float], int]:
    happened, cursor = events.read(path, cursor)
    return [event.fraction for event in happened if isinstance(event, Progressed)], cursor


def test_a_log_that_was_replaced_by_a_longer_one_is_read_from_the_cursor(log: Path) -> None:
    """Another machine may see an appended log as a new file, such as a copy by a cluster's data service."""
    before, cursor = fractions(log, 0)
    inode = log.stat().st_ino
    files.write_bytes(log, log.read_bytes() + events.encode(Progressed(fraction=0.5)))
    assert log.stat().st_ino != inode
    assert (before, fractions(log, cursor)[0]) == ([0.0, 0.1, 0.2], [0.5])


def test_a_shorter_log_has_no_events_after_the_cursor_until_it_has_grown(log: Path) -> None:
    """A file system may show an older state of a log to another machine for some seconds."""
    whole = log.read_bytes()
    _, cursor = fractions(log, 0)
    files.write_bytes(log, whole[: len(whole) // 2])
    assert fractions(log, cursor) == ([], cursor)
    files.write_bytes(log, whole + events.encode(Progressed(fraction=0.5)))
    assert fractions(log, cursor)[0] == [0.5]


def test_a_torn_line_is_read_once_it_is_complete(log: Path) -> None:
    _, cursor = fractions(log, 0)
    line = events.encode(Progressed(fraction=0.5))
    with open(log, "ab", buffering=0) as writer:
        writer.write(line[:10])
        assert fractions(log, cursor) == ([], cursor)
        writer.write(line[10:])
        assert fractions(log, cursor)[0] == [0.5]


@pytest.mark.parametrize("call", ["open", "read"])
def test_a_stale_handle_delays_the_events_of_a_log(
    log: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    _, cursor = fractions(log, 0)
    with open(log, "ab") as writer:
        writer.write(events.encode(Progressed(fraction=0.5)))

    class StaleFile(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.ESTALE, "Stale file handle")

    def refuse(path: str, *arguments: Any, **keywords: Any) -> int:
        if path == log.name:
            raise OSError(errno.ESTALE, "Stale file handle")
        return system_open(path, *arguments, **keywords)

    system_open = os.open
    with monkeypatch.context() as patched:
        if call == "open":
            patched.setattr(os, "open", refuse)
        else:
            patched.setattr(events, "open_plain", lambda path, below: StaleFile(path))
        assert fractions(log, cursor) == ([], cursor)
    assert fractions(log, cursor)[0] == [0.5]
