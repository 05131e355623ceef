"""Make resources from objects, and JSON from resources."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

AnyResource = TypeVar("AnyResource", bound=msgspec.Struct)


def describe(resource: type[AnyResource], source: object, /, **fields: Any) -> AnyResource:
    """Return a resource with these ``fields``; its others are the attributes of ``source`` with the same names."""
    names = [name for name in resource.__struct_fields__ if name not in fields]
    own = {name: value for name in names if (value := getattr(source, name, UNSET)) is not UNSET}
    return resource(**own, **fields)


def as_json(resource: msgspec.Struct) -> dict[str, Any]:
    """Return a resource as JSON values, with the names of its keys in JSON."""
    body: dict[str, Any] = msgspec.to_builtins(resource)
    return body
