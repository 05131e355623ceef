"""JSON as scripts and editors write it: in other encodings, and with NaN and Infinity, as Python does by default."""

from __future__ import annotations

import json
import re

# Texts are matched as a whole, so that words in them are kept.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN', re.DOTALL)


def standard_json(data: bytes) -> bytes:
    """Return JSON in UTF-8 without a byte order mark, and with null instead of numbers that are not finite.

    Raises UnicodeDecodeError.
    """
    text = data.decode(json.detect_encoding(data)).encode()
    return _TOKENS.sub(lambda token: token[0] if token[0].startswith(b'"') else b"null", text)
