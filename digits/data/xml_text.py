"""The text of XML files in any encoding, also if they declare a wrong one."""

from __future__ import annotations

import codecs
import contextlib
import re

_DECLARED = re.compile(rb"""\A\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z][\w.:-]{0,40})["']""")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
# What Windows writes under these names, by the name of Python's codec.
_SUPERSETS = {"gb2312": "gb18030", "gbk": "gb18030", "big5": "cp950", "shift_jis": "cp932", "euc_kr": "cp949"}
_OTHER_NAMES = {"x-sjis": "cp932", "windows-31j": "cp932", "x-gbk": "gb18030", "x-euc-jp": "euc_jp"}
# Not the encodings of files: slow to decode, or with escapes that hide elements.
_REFUSED = ("idna", "punycode", "utf-7", "hz", "unicode_escape", "raw_unicode_escape", "undefined")
_EAST_ASIAN = {*_SUPERSETS.values(), "big5hkscs", "euc_jp", "johab"}
_FIRST_CJK = "\u2e80"


def to_utf8(data: bytes) -> bytes:
    """Return XML in UTF-8, whatever it declares; raises ValueError with a message.

    Files of Windows programs often declare one encoding and are in another: text that is valid UTF-8 is UTF-8, unless
    it could be so by accident.
    """
    mark = next((mark for mark in _MARKS if data.startswith(mark)), None)
    if mark is not None:
        return _decode(data, _MARKS[mark]).encode()
    if data.isascii() and b"\x1b" not in data:
        return data
    name = _declared(data)
    codec = _codec(name)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if codec == "utf-8":
            place = _line(data, error)
            raise ValueError(
                f"line {place}: not UTF-8 text; save the file as UTF-8, or declare its encoding"
            ) from error
        return _decode(data, codec or name).encode()
    # Two bytes of GBK can be a Latin letter in UTF-8: 猫 (cat) is è.
    if codec in _EAST_ASIAN and max(text) < _FIRST_CJK:
        with contextlib.suppress(ValueError):
            return _decode(data, codec).encode()
    # The escapes of these encodings are ASCII.
    return _decode(data, codec).encode() if codec and codec.startswith("iso2022") else data


def _declared(data: bytes) -> str:
    match = _DECLARED.match(data)
    name = match[1].decode().lower() if match else "utf-8"
    # A declaration that can be read is not in an encoding with two or four bytes for each character.
    return "utf-8" if name.startswith(("utf-16", "utf-32", "ucs", "iso-10646")) else name


def _codec(name: str) -> str | None:
    """Return the name of the codec of an encoding, None if there is none."""
    try:
        codec = codecs.lookup(_OTHER_NAMES.get(name, name)).name
    except LookupError:
        return None
    return None if codec in _REFUSED else _SUPERSETS.get(codec, codec)


def _decode(data: bytes, codec: str) -> str:
    try:
        if codec in _REFUSED:
            raise LookupError(codec)
        return data.decode(codec)
    except UnicodeDecodeError as error:
        raise ValueError(f"line {_line(data, error)}: not text in {codec}; save the file as UTF-8") from error
    except LookupError as error:  # also of codecs that are not for text, such as Base64
        raise ValueError(f"the encoding “{codec}” is unknown; save the file as UTF-8") from error


def _line(data: bytes, error: UnicodeDecodeError) -> int:
    return data[: error.start].count(b"\n") + 1
