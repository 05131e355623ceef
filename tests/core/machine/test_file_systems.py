from __future__ import annotations

from pathlib import Path

import pytest

from digits.core.machine import file_systems


def test_types_come_from_the_kernel(tmp_path):
    assert file_systems.type_of(Path("/proc")) == "proc"
    assert file_systems.type_of(tmp_path / "missing") == ""
    assert not file_systems.is_network(tmp_path)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nfs4", True),
        ("lustre", True),
        ("fuse", True),
        ("fuse.sshfs", True),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
        ("ext4", False),
        ("", False),
    ],
)
def test_types_of_network_file_systems(monkeypatch, kind, expected):
    monkeypatch.setattr(file_systems, "type_of", lambda path: kind)
    assert file_systems.is_network(Path("/")) is expected
