"""JSON as scripts, editors and browsers write it, in files, cells and requests of users.

It may be in another encoding, and contain NaN and Infinity, as Python writes them by default, and halves of surrogate
pairs, as JavaScript writes texts that were cut.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# Texts are matched as a whole, so that words in them are kept; one without an end extends to that of the data.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?Infinity|NaN', re.DOTALL)
_HALF = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_ESCAPES = re.compile(
    _HALF + rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


class InvalidJson(ValueError):
    """The data are not JSON, or nested too deeply."""


class UnexpectedJson(InvalidJson):
    """The data are JSON, but with other values than expected, or with numbers that are too large."""


def load(data: bytes | str, type_: type[T] | Any = Any, *, strict: bool = True) -> T | Any:
    """Decode JSON as ``type_``; numbers that are not finite are null. Raises InvalidJson.

    Integers have any size: use `digits.data.numbers.parse_number` where a float is needed. Unless ``strict``, texts of
    numbers are accepted as numbers.
    """
    try:
        raw = data.encode() if isinstance(data, str) else data
        try:
            return msgspec.json.decode(raw, type=type_, strict=strict)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(_standard(raw), type=type_, strict=strict)
    except msgspec.ValidationError as error:
        raise UnexpectedJson(str(error)) from error
    except RecursionError as error:
        raise InvalidJson("its values are nested too deeply") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidJson(str(error)) from error


def _standard(data: bytes) -> bytes:
    """Return JSON in UTF-8 without a byte order mark, NaN, Infinity and halves of surrogate pairs."""
    text = data.decode(json.detect_encoding(data)).encode()
    return _TOKENS.sub(_standard_token, text)


def _standard_token(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if not text.startswith(b'"'):
        return b"null"
    if b"\\u" not in text:
        return text
    return _ESCAPES.sub(lambda escape: rb"\ufffd" if escape["half"] else escape[0], text)
