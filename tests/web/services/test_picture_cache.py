"""The cache of pictures on disk."""

from __future__ import annotations

import os
from pathlib import Path

from digits.web.services.picture_cache import PictureCache


def test_a_picture_is_kept_for_all_servers(tmp_path: Path) -> None:
    PictureCache(tmp_path / "pictures", 1000).save("a", b"picture")
    assert PictureCache(tmp_path / "pictures", 1000).find("a") == b"picture"
    assert PictureCache(tmp_path / "pictures", 1000).find("b") is None


def test_the_least_recently_used_pictures_are_removed(tmp_path: Path) -> None:
    cache = PictureCache(tmp_path, 1000)
    for number in range(10):
        cache.save(str(number), b"x" * 100)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert cache.find("3")
    cache.save("new", b"y" * 100)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert cache.find("3") and cache.find("new")


def test_a_picture_that_cannot_be_saved_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = PictureCache(tmp_path / "file" / "folder", 1000)
    cache.save("a", b"picture")
    assert cache.find("a") is None
