"""Encode resources as JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(resource: msgspec.Struct) -> dict[str, Any]:
    """Return a resource as JSON values, with the names of its keys in JSON."""
    body: dict[str, Any] = msgspec.to_builtins(resource)
    return body
