"""The files of a complete model beside the network that loads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.core import pretrained_files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "pretrained" / "variables").mkdir(parents=True)
    for name in ("pretrained/saved_model.pb", "pretrained/variables/variables.index", "pretrained.keras"):
        (folder / name).write_text(name)
    for other in ("network.py", "pretrained.txt"):
        (folder / other).write_text("other")
    (folder / "pretrained" / "link").symlink_to(folder / "network.py")
    (folder / "pretrained.h5").symlink_to(folder / "network.py")
    return folder


NAMES = ["pretrained.keras", "pretrained/saved_model.pb", "pretrained/variables/variables.index"]


def test_only_files_of_the_model_are_found_and_no_links(source: Path) -> None:
    assert pretrained_files.names_in(source) == NAMES
    assert pretrained_files.names_in(source / "pretrained") == []


@pytest.mark.parametrize("add", [pretrained_files.copy, pretrained_files.link])
def test_another_folder_gets_the_files(source: Path, tmp_path: Path, add: object) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "pretrained.keras").write_text("half")  # of an interrupted attempt
    for _ in range(2):
        add(source, target)  # type: ignore[operator]
        assert [(target / name).read_text() for name in NAMES] == NAMES
    is_shared = (target / NAMES[0]).samefile(source / NAMES[0])
    assert is_shared == (add is pretrained_files.link)
    pretrained_files.link(source, source)
    assert pretrained_files.names_in(source) == NAMES
