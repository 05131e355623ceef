"""Typed JSON: field types that several structs share, and the limits of a struct's fields.

Files and recipes are `msgspec.Struct` classes: their type hints are the schema that reading enforces. Unknown
keys are ignored, and missing keys take their default, so that older and newer versions can read each other's
files. Numbers are always finite, because JSON has no others and msgspec refuses those that overflow.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

# JSON does not limit integers. This limit keeps them within 64 bits, to avoid overflow.
MAX_INTEGER = 2**63 - 1
# In `JsonObject`, which may contain numbers of a network: within the limit of a float.
MAX_LOOSE_INTEGER = 2**512
MAX_DEPTH = 32
MAX_VALUES = 20_000
# The end of the year 9998: the largest Unix time that is valid in every time zone.
MAX_UNIX_TIME = 253_370_764_799.0
# Limits of settings without a narrower one.
LARGEST_WHOLE = 2**31 - 1
LARGEST_NUMBER = 1e9
# Anything that fits into 32 bits, such as the seeds of DIGITS 6.
LARGEST_SEED = 2**32 - 1

T = TypeVar("T")
Malformed = msgspec.ValidationError

UnixTime = Annotated[float, Meta(ge=0, le=MAX_UNIX_TIME)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
NonNegative = Annotated[float, Meta(ge=0, le=LARGEST_NUMBER)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Whole = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]
Seed = Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST_WHOLE)]

if TYPE_CHECKING:
    JsonObject = dict[str, Any]
else:

    class JsonObject(dict):
        """A JSON object with arbitrary contents, bounded in depth, size and numbers."""


class Limits(NamedTuple):
    """The default of a field, its smallest and largest value, its choices, its title and its description."""

    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    title: str = ""
    description: str = ""


@functools.cache
def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON as ``type_``."""
    return msgspec.json.Decoder(type_, dec_hook=_decode_custom)


def decode(data: bytes, type_: type[T]) -> T:
    """Decode JSON as ``type_``. Raises ValueError or RecursionError; `Malformed` contains the value's path."""
    known: T = decoder(type_).decode(data)  # type: ignore[arg-type]
    return known


def convert(value: Any, type_: type[T]) -> T:
    """Convert decoded JSON to ``type_``; raises `Malformed` with the path of the faulty value."""
    return msgspec.convert(value, type_, dec_hook=_decode_custom)


@functools.cache
def limits(type_: type[Struct], name: str) -> Limits:
    """Return the default and the limits of the field ``name`` of ``type_``, as declared by its type hint.

    A limit that is excluded, such as that of a positive number, is the same as an included one here.
    """
    field = next(field for field in msgspec.structs.fields(type_) if field.name == name)
    declared: Any = inspect.type_info(field.type)
    words: dict[str, Any] = {}
    if isinstance(declared, inspect.Metadata):
        words, declared = declared.extra_json_schema or {}, declared.type
    if isinstance(declared, inspect.UnionType):
        declared = next(item for item in declared.types if not isinstance(item, inspect.NoneType))
    default = None if field.default is msgspec.NODEFAULT else field.default
    if isinstance(declared, inspect.LiteralType):
        return Limits(default, choices=tuple(declared.values), **words)
    if isinstance(declared, (inspect.IntType, inspect.FloatType)):
        low = declared.ge if declared.ge is not None else declared.gt
        high = declared.le if declared.le is not None else declared.lt
        return Limits(default, low, high, **words)
    return Limits(default, **words)


def _decode_custom(type_: Any, value: Any) -> Any:
    if type_ is JsonObject and isinstance(value, dict):
        _check_bounds(value)
        return JsonObject(value)
    if type_ is Path and isinstance(value, Path):
        return value
    raise ValueError(f"Expected `{'object' if type_ is JsonObject else 'str'}`")


def _check_bounds(value: Any) -> None:
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise ValueError(f"Contains more than {MAX_VALUES:,} values")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, int) and abs(item) > MAX_LOOSE_INTEGER:
                raise ValueError("Expected a number of at most 512 bits")
        level = inner
    if level:
        raise ValueError(f"Nested more than {MAX_DEPTH} deep")
