"""The cache of pictures on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from digits.web.picture_cache import PictureCache


def never() -> bytes:
    raise AssertionError("made again")


def test_a_picture_is_made_once_for_all_servers(tmp_path: Path) -> None:
    assert PictureCache(tmp_path / "pictures", 1000).get("a", lambda: b"picture") == b"picture"
    assert PictureCache(tmp_path / "pictures", 1000).get("a", never) == b"picture"


def test_the_least_recently_used_pictures_are_removed(tmp_path: Path) -> None:
    cache = PictureCache(tmp_path, 1000)
    for number in range(10):
        cache.get(str(number), lambda: b"x" * 100)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert cache.get("3", never)
    cache.get("new", lambda: b"y" * 100)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert cache.get("3", never) and cache.get("new", never)


def test_a_picture_that_cannot_be_saved_is_returned(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = PictureCache(tmp_path / "file" / "folder", 1000)
    assert cache.get("a", lambda: b"picture") == b"picture"
    with pytest.raises(ZeroDivisionError):
        cache.get("b", lambda: b"" * (1 // 0))
