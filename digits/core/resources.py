"""Paths of the files that belong to the program, in a checkout and when installed."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def checkout_folder() -> Path | None:
    """Return the checkout that the program runs from, or None if it is installed."""
    above = _PACKAGE.parent
    return above if (above / "digits-devserver").is_file() else None


def resource_folder(name: str) -> Path:
    """Return the folder ``templates`` or ``static``: beside the package in a checkout, else inside it.

    Raises FileNotFoundError if the installation is incomplete.
    """
    for base in (_PACKAGE, _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"the folder {name} is missing beside {_PACKAGE}; reinstall DIGITS")
