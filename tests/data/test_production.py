"""Production models: names served by snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.data import production
from digits.data.production import Production

MODEL = Production("20260101-000000-abcdef", "snapshot_1.ckpt", 1.0, 1e9)


def test_a_name_is_promoted_replaced_and_removed(tmp_path: Path):
    assert production.load(tmp_path) == {}
    production.promote(tmp_path, "flowers", MODEL)
    later = Production("20260101-000001-abcdef", "snapshot_2.ckpt", 2.0, 2e9)
    production.promote(tmp_path, "birds", later)
    production.promote(tmp_path, "flowers", later)
    assert list(production.load(tmp_path).items()) == [("birds", later), ("flowers", later)]
    assert production.remove(tmp_path, "birds")
    assert not production.remove(tmp_path, "birds")
    assert production.load(tmp_path) == {"flowers": later}


@given(st.text(max_size=70))
def test_names_are_single_segments_of_a_path(tmp_path_factory: pytest.TempPathFactory, name: str):
    folder = tmp_path_factory.mktemp("names")
    try:
        production.promote(folder, name, MODEL)
    except ValueError:
        assert production.load(folder) == {}
    else:
        assert name.isascii() and 0 < len(name) <= 64
        assert "/" not in name and not name.startswith(".")


def test_a_damaged_file_is_kept(tmp_path: Path):
    path = tmp_path / production.FILE_NAME
    path.write_text('{"models": {"a": 1}}')
    with pytest.raises(UnreadableFile):
        production.promote(tmp_path, "flowers", MODEL)
    assert path.read_text() == '{"models": {"a": 1}}'
