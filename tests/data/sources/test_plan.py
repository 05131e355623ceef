"""Path handling for readers of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.plan import path_below


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A folder with an image, and links out of it and within it."""
    folder = tmp_path.resolve() / "images"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.png").touch()
    (folder / "inside").symlink_to("sub")
    (folder / "outside").symlink_to(tmp_path)
    return str(folder)


@pytest.mark.parametrize("path", ["sub/a.png", "./sub//a.png", "inside/a.png", "sub/../sub/a.png"])
def test_paths_below_the_root_are_normalized(root, path):
    assert path_below(root, path) == "sub/a.png"


def test_absolute_paths_are_allowed_below_the_root(root):
    assert path_below(root, f"{root}/sub/a.png") == "sub/a.png"


@pytest.mark.parametrize("path", ["../a.png", "/etc/passwd", "outside/a.png", "sub/../../images2/a.png"])
def test_paths_outside_are_refused(root, path):
    with pytest.raises(ValueError, match="is outside the image folder"):
        path_below(root, path)


@pytest.mark.parametrize("path", ["", "a\0b.png"])
def test_invalid_paths_are_refused(root, path):
    with pytest.raises(ValueError, match="path of the image is missing"):
        path_below(root, path)
