"""The folders of templates and static files."""

from __future__ import annotations

import pytest

from digits.core.resources import checkout_folder, resource_folder


def test_folders_of_a_checkout_are_beside_the_package() -> None:
    checkout = checkout_folder()
    assert checkout is not None
    assert resource_folder("templates") == checkout / "templates"


def test_an_incomplete_installation_is_explained() -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder nothing is missing beside .*; reinstall DIGITS"):
        resource_folder("nothing")
