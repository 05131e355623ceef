"""Secrets of the server in files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from digits.web.security.secrets import ExposureError, read_or_make_secret


def test_secret_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state" / "key"
    secret = read_or_make_secret(path)
    assert len(secret) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_or_make_secret(path) == secret
    assert read_or_make_secret(tmp_path / "other") != secret


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_secret_readable_by_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    read_or_make_secret(path)
    path.chmod(mode)
    with pytest.raises(ExposureError, match="Other users"):
        read_or_make_secret(path)


def test_invalid_secret_files_are_refused(tmp_path: Path) -> None:
    read_or_make_secret(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch(0o600)
    for name in ("link", "dangling", "fifo", "folder", "empty"):
        with pytest.raises(ExposureError, match="Delete"):
            read_or_make_secret(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()
