"""What errors of the file system mean to users."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from digits.core.errors import DiskFull, explain


@pytest.mark.parametrize(
    ("filename", "files", "available", "is_out_of_inodes"),
    [
        ("/tmp/file", 100, 0, True),
        ("file", 100, 0, True),
        ("/tmp/file", 100, 1, False),
        ("/tmp/file", 0, 0, False),  # a file system without inodes, such as Btrfs
        ("/nowhere/file", 100, 0, False),
        (None, 100, 0, False),
    ],
)
def test_inodes_are_mentioned_only_if_none_is_known_to_be_free(
    filename: str | None, files: int, available: int, is_out_of_inodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statvfs(path: str) -> SimpleNamespace:
        os.stat(path)
        return SimpleNamespace(f_files=files, f_favail=available)

    monkeypatch.setattr(os, "statvfs", statvfs)
    explained = explain(OSError(errno.ENOSPC, "No space left on device", filename))
    assert isinstance(explained, DiskFull)
    assert ("inodes" in explained.message) is is_out_of_inodes


def test_errors_that_are_not_of_the_storage_are_not_explained() -> None:
    assert explain(OSError(errno.ENOENT, "No such file or directory", "file")) is None
