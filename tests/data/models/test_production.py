"""Production models: stable names for snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.data.models import production
from digits.data.models.production import Production, ProductionModels

MODEL = Production("20260101-000000-abcdef", "snapshot_1.ckpt", 1.0, 1e9)


def test_names_can_be_promoted_replaced_and_removed(tmp_path: Path):
    models = ProductionModels(tmp_path)
    assert models.all() == {}
    assert not models.exists
    models.promote("flowers", MODEL)
    later = Production("20260101-000001-abcdef", "snapshot_2.ckpt", 2.0, 2e9)
    models.promote("birds", later)
    models.promote("flowers", later)
    assert list(models.all().items()) == [("birds", later), ("flowers", later)]
    assert list(models.of(later.model).items()) == [("birds", later), ("flowers", later)]
    assert models.of(MODEL.model) == {}
    assert models.snapshots_of(later.model) == {"snapshot_2.ckpt"}
    assert models.exists
    assert models.remove("birds")
    assert not models.remove("birds")
    assert models.all() == ProductionModels(tmp_path).all() == {"flowers": later}


@given(st.text(max_size=70))
def test_names_are_single_path_segments(tmp_path_factory: pytest.TempPathFactory, name: str):
    models = ProductionModels(tmp_path_factory.mktemp("names"))
    try:
        models.promote(name, MODEL)
    except ValueError:
        assert models.all() == {}
    else:
        assert name.isascii() and 0 < len(name) <= 64
        assert "/" not in name and not name.startswith(".")


def test_a_damaged_file_is_not_overwritten(tmp_path: Path):
    path = tmp_path / production.FILE_NAME
    path.write_text('{"models": {"a": 1}}')
    with pytest.raises(UnreadableFile):
        ProductionModels(tmp_path).promote("flowers", MODEL)
    assert ProductionModels(tmp_path).exists
    assert ProductionModels(tmp_path).of(MODEL.model) == {}
    with pytest.raises(UnreadableFile):
        ProductionModels(tmp_path).snapshots_of(MODEL.model)
    assert path.read_text() == '{"models": {"a": 1}}'
