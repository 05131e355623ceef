"""Atomic writes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from digits.core import files

# Counts how often a file is missing, until standard input ends.
WATCH = """
import os, select, sys
missing = 0
print("watching", flush=True)
while not select.select([0], [], [], 0)[0]:
    for _ in range(1000):
        missing += not os.path.exists(sys.argv[1])
print(missing)
"""


def write(folder: Path, number: int) -> Path:
    folder.mkdir()
    (folder / "number").write_text(str(number))
    (folder / f"only in {number}").touch()
    return folder


def test_a_published_folder_is_never_missing(tmp_path: Path) -> None:
    target = tmp_path / "results" / "result"
    files.publish_folder(write(tmp_path / "new", 0), target)
    command = [sys.executable, "-I", "-S", "-c", WATCH, str(target / "number")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout and watcher.stdout.readline() == "watching\n"
        for number in range(1, 101):
            files.publish_folder(write(tmp_path / "new", number), target)
        assert watcher.communicate()[0] == "0\n"
    assert sorted(path.name for path in target.iterdir()) == ["number", "only in 100"]
    assert (target / "number").read_text() == "100"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_folder_is_published_without_an_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    for number in range(3):
        files.publish_folder(write(tmp_path / "new", number), tmp_path / "result")
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["number", "only in 2"]
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_folder_that_cannot_be_published_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        files.publish_folder(write(tmp_path / "new", 1), tmp_path / "file" / "result")
    assert (tmp_path / "new" / "number").read_text() == "1"
