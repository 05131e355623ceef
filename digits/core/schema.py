"""Build dataclasses from untrusted JSON: every value is validated against its type hint.

The hints of a dataclass or a TypedDict are its schema: ``int``, ``float`` (finite), ``str``, ``bool``, None,
lists, tuples, dictionaries with text keys, unions, other dataclasses, and ``Any`` for JSON of bounded depth.
`Between`, `Matching` and `Of` in an ``Annotated`` hint add constraints. Unknown keys are ignored,
and missing keys take their default, so that older and newer versions can read each other's files.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

# JSON does not limit numbers. This limit keeps them within 64 bits, to avoid overflow.
MAX_NUMBER = 2**63 - 1
# In JSON of any form, such as the state of a generator of random numbers, which is larger: what a float can hold.
MAX_LOOSE_NUMBER = 2**512
MAX_DEPTH = 32
# The end of the year 9998: the largest Unix time that is valid in every time zone.
MAX_UNIX_TIME = 253_370_764_799.0

Built = TypeVar("Built")
_Check = Callable[[Any, str], Any]


class Malformed(ValueError):
    """A value does not match its type hint; the message contains its path."""


@dataclass(frozen=True)
class Between:
    """Constrain a number, or the length of a list, to ``low`` … ``high``."""

    low: float
    high: float

    def __call__(self, value: Any, where: str) -> None:
        if isinstance(value, (int, float)):
            if not self.low <= value <= self.high:
                raise Malformed(f"{where} is not between {self.low:g} and {self.high:g}")
        elif not self.low <= len(value) <= self.high:
            raise Malformed(f"{where} has {len(value)} entries, not {self.low:g} to {self.high:g}")


@dataclass(frozen=True)
class Matching:
    """Require a text to fully match a regular expression."""

    pattern: str

    def __call__(self, value: str, where: str) -> None:
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise Malformed(f"{where} does not match {self.pattern}")


@dataclass(frozen=True)
class Of:
    """Require the values of a dictionary to have the types of the fields of dataclass ``kind`` with the same name."""

    kind: type

    def __call__(self, value: dict[str, Any], where: str) -> None:
        for name, check in _fields(self.kind).items():
            if name in value:
                check(value[name], f"{where}.{name}")


UnixTime = Annotated[float, Between(0, MAX_UNIX_TIME)]
Count = Annotated[int, Between(0, MAX_NUMBER)]


def build(kind: type[Built], body: Any, where: str = "") -> Built:
    """Build the dataclass ``kind`` from the JSON object ``body``; raises Malformed.

    ``where`` is the path of ``body`` in error messages.
    """
    made: Built = check(kind, body, where)
    return made


def check(hint: Any, value: Any, where: str = "") -> Any:
    """Validate ``value`` against the type ``hint`` and build its dataclasses; raises Malformed."""
    return _checker(hint)(value, where)


@functools.cache
def _checker(hint: Any) -> _Check:
    """The function that validates a value against ``hint`` and returns it, with dataclasses built."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_checker(hint)
    if typing.is_typeddict(hint):
        return _typed_dict_checker(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _narrowed(_checker(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        return _union_checker(hint, [_checker(argument) for argument in arguments])
    if origin is typing.NotRequired:
        return _checker(arguments[0])
    if origin is list:
        return _list_checker(_checker(arguments[0]))
    if origin is tuple:
        return _tuple_checker([_checker(argument) for argument in arguments])
    if origin is dict:
        return _dict_checker(_checker(arguments[1]))
    if hint is Any:
        return _json
    return _PLAIN[hint]


def _name(where: str) -> str:
    return where.lstrip(".") or "the value"


def _expect(is_right: bool, where: str, wanted: str) -> None:
    if not is_right:
        raise Malformed(f"{_name(where)} is not {wanted}")


def _text(value: Any, where: str) -> str:
    _expect(isinstance(value, str), where, "a text")
    return str(value)


def _flag(value: Any, where: str) -> bool:
    _expect(isinstance(value, bool), where, "true or false")
    return bool(value)


def _nothing(value: Any, where: str) -> None:
    _expect(value is None, where, "null")


def _whole(value: Any, where: str) -> int:
    _expect(isinstance(value, int) and not isinstance(value, bool), where, "an integer")
    _expect(-MAX_NUMBER <= value <= MAX_NUMBER, where, "a number of at most 64 bits")
    return int(value)


def _number(value: Any, where: str) -> int | float:
    if isinstance(value, float):
        _expect(math.isfinite(value), where, "a finite number")
        return value
    _expect(isinstance(value, int) and not isinstance(value, bool), where, "a number")
    return _whole(value, where)


def _json(value: Any, where: str, depth: int = 0) -> Any:
    _expect(depth <= MAX_DEPTH, where, f"nested at most {MAX_DEPTH} deep")
    if isinstance(value, dict):
        for name, item in value.items():
            _text(name, where)
            _json(item, where, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _json(item, where, depth + 1)
    elif isinstance(value, int):
        _expect(abs(value) <= MAX_LOOSE_NUMBER, where, "a number of at most 512 bits")
    elif not (value is None or isinstance(value, str)):
        _number(value, where)
    return value


_PLAIN: dict[Any, _Check] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    type(None): _nothing,
    None: _nothing,
}


def _object(value: Any, where: str) -> dict[str, Any]:
    _expect(isinstance(value, dict), where, "an object")
    known: dict[str, Any] = value
    return known


def _check_complete(body: dict[str, Any], required: Iterable[str], where: str) -> None:
    for name in required:
        if name not in body:
            raise Malformed(f"{_name(f'{where}.{name}')} is missing")


def _narrowed(check: _Check, narrowings: tuple[Any, ...]) -> _Check:
    def narrowed(value: Any, where: str) -> Any:
        built = check(value, where)
        for narrowing in narrowings:
            if callable(narrowing):
                narrowing(built, _name(where))
        return built

    return narrowed


def _union_checker(hint: Any, checks: list[_Check]) -> _Check:
    def union(value: Any, where: str) -> Any:
        reasons = []
        for check in checks:
            try:
                return check(value, where)
            except Malformed as error:
                reasons.append(str(error))
        raise Malformed(reasons[0])

    return union


def _list_checker(check: _Check) -> _Check:
    def items(value: Any, where: str) -> list[Any]:
        _expect(isinstance(value, list), where, "a list")
        return [check(item, f"{where}[{place}]") for place, item in enumerate(value)]

    return items


def _tuple_checker(checks: list[_Check]) -> _Check:
    def items(value: Any, where: str) -> tuple[Any, ...]:
        _expect(isinstance(value, (list, tuple)), where, "a list")
        _expect(len(value) == len(checks), where, f"a list of {len(checks)}")
        return tuple(
            check(item, f"{where}[{place}]")
            for place, (check, item) in enumerate(zip(checks, value, strict=True))
        )

    return items


def _dict_checker(check: _Check) -> _Check:
    def mapping(value: Any, where: str) -> dict[str, Any]:
        return {
            _text(name, where): check(item, f"{where}.{name}") for name, item in _object(value, where).items()
        }

    return mapping


@functools.cache
def _fields(kind: type) -> dict[str, _Check]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {item.name: _checker(hints[item.name]) for item in dataclasses.fields(kind) if item.init}


def _dataclass_checker(kind: Any) -> _Check:
    required = [
        item.name
        for item in dataclasses.fields(kind)
        if item.init and item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]

    def build(value: Any, where: str) -> Any:
        body = _object(value, where)
        checks = _fields(kind)
        _check_complete(body, required, where)
        return kind(
            **{name: checks[name](item, f"{where}.{name}") for name, item in body.items() if name in checks}
        )

    return build


def _typed_dict_checker(kind: Any) -> _Check:
    hints = typing.get_type_hints(kind, include_extras=True)
    checks = {name: _checker(hint) for name, hint in hints.items()}
    # Not __required_keys__, which does not know NotRequired in annotations that are kept as text.
    required = [name for name, hint in hints.items() if get_origin(hint) is not typing.NotRequired]

    def build(value: Any, where: str) -> dict[str, Any]:
        body = _object(value, where)
        _check_complete(body, required, where)
        return {name: checks[name](item, f"{where}.{name}") for name, item in body.items() if name in checks}

    return build
