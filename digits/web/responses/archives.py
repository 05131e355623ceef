"""Checks of the names of archives in URLs."""

from __future__ import annotations

from digits.core.errors import BadRequest
from digits.data.archive import MEDIA_TYPES


def check_ending(ending: str) -> None:
    """Raise BadRequest unless ``ending`` is that of an archive."""
    if ending not in MEDIA_TYPES:
        raise BadRequest(f"Unknown archive format “{ending}”.", f"Use one of {', '.join(MEDIA_TYPES)}.")
