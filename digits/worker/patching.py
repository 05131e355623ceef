"""Replaces what libraries do, for as long as it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Inside, the attribute ``name`` of a class or module is ``replacement``; afterwards it is as it was."""
    is_own, original = name in vars(owner), getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)  # what a class inherits shows again
