"""Decode the names in zip archives, most of which do not state their encoding.

Names that are not in UTF-8 are in the encoding of the computer that packed them: cp437 or cp850 in Western Europe, GBK
in China, Shift-JIS in Japan. An encoding is plausible if it decodes all names to words of one script; if those of
several scripts are, it must be stated (`UnclearNames`).
"""

from __future__ import annotations

import codecs
import contextlib
import re
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from digits.core.errors import BadRequest

UNICODE_FLAG = 0x800
# Field of Info-ZIP: version, checksum of the name it replaces, name in UTF-8.
_UNICODE_PATH, _UNICODE_PATH_HEADER = 0x7075, struct.Struct("<BL")
# Names to judge an encoding by.
_SAMPLE = 1000
_EXAMPLE_CHARACTERS = 60
# More different characters than this are too many for Chinese that by chance is valid Korean.
_MAX_CHANCE = 4
_WORD = re.compile(r"[^\W\d_]+")
_TYPOGRAPHY = frozenset("’‘“”–—…°²³\xa0")
_RUSSIAN_OR_UKRAINIAN = re.compile(r"[А-ЯЁІЇЄҐа-яёіїєґ]+")
# Signs within a word, and backslashes that do not separate names, are bytes of other letters.
_ODD_SIGN = re.compile(r"[^\W\d_][‘“”…°²³][^\W\d_]|\\[/\\.]")
# German has it after vowels only; in cp437, it is where á is in cp1252.
_ODD_SHARP_S = re.compile(r"(?<![aeiouyäöüAEIOUYÄÖÜ])ß")
_HAN = ("CJK", "IDEOGRAPHIC")


class ArchiveError(Exception):
    """An archive is refused. The message is for the user."""


class UnclearNames(ArchiveError):
    """The encoding of the ``names`` must be stated. The message is for the user."""

    def __init__(self, fault: str, names: Sequence[bytes]) -> None:
        examples = {
            _example(names, item.name): item.name
            for item in reversed(_ENCODINGS)
            if _decodes(names, item.name)
        }
        choices = ", ".join(f"{name} (“{example}”)" for example, name in reversed(examples.items()))
        super().__init__(
            f"{fault} Upload the unpacked folder instead, or send the encoding in which they are readable as encoding: "
            f"{choices}."
        )


@dataclass(frozen=True)
class Names:
    """Decoded names. If their encoding was guessed, a ``note`` says so."""

    texts: list[str]
    note: str = ""


@dataclass(frozen=True)
class _Encoding:
    """An encoding. In East Asian ones, letters belong to ``scripts``, and most start with a byte in ``common``."""

    name: str
    title: str
    family: str
    scripts: tuple[str, ...] = ()
    common: range = range(256)


# In the order of preference within a family.
_ENCODINGS = (
    _Encoding("cp437", "Western European (DOS, cp437)", "western"),
    _Encoding("cp1252", "Western European (Windows, cp1252)", "western"),
    _Encoding("cp850", "Western European (DOS, cp850)", "western"),
    _Encoding("gbk", "Chinese (GBK)", "chinese", _HAN, range(0xB0, 0xD8)),
    _Encoding("big5", "Traditional Chinese (Big5)", "chinese", _HAN, range(0xA4, 0xC7)),
    _Encoding(
        "cp932",
        "Japanese (Shift-JIS)",
        "japanese",
        (*_HAN, "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
        range(0x82, 0x99),
    ),
    _Encoding("cp949", "Korean (EUC-KR)", "korean", ("HANGUL",), range(0xB0, 0xC9)),
    _Encoding("cp866", "Cyrillic (DOS, cp866)", "cyrillic"),
    _Encoding("cp1251", "Cyrillic (Windows, cp1251)", "cyrillic of windows"),
)
ENCODINGS = ("utf-8", *(encoding.name for encoding in _ENCODINGS))
_ALIASES = {"shift_jis": "cp932", "gb2312": "gbk", "gb18030": "gbk", "euc_kr": "cp949", "iso8859-1": "cp1252"}


def encoding_named(name: str) -> str:
    """Return the one of `ENCODINGS` with a ``name`` as Python knows it, such as ``sjis``; "" if it is empty.

    Raises BadRequest.
    """
    if not name:
        return ""
    codec = ""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(name).name
    codec = _ALIASES.get(codec, codec)
    if codec not in ENCODINGS:
        raise BadRequest(
            f"encoding: “{name[:40]}” is not supported.", f"Choose one of {', '.join(ENCODINGS)}."
        )
    return codec


def decode_names(members: Sequence[zipfile.ZipInfo], encoding: str = "") -> Names:
    """Return the names of ``members``.

    ``encoding``, one of `ENCODINGS`, applies to names that neither state theirs nor are all in UTF-8. Raises
    UnclearNames if it does not suit them, or if it is empty and cannot be guessed.
    """
    texts: list[str | bytes] = [_stated_name(member) for member in members]
    unclear = [text for text in texts if isinstance(text, bytes) and not text.isascii()]
    names = [*dict.fromkeys(unclear)]
    chosen, note = "utf-8", ""
    if _decodes(names, "utf-8"):
        pass
    elif encoding:
        if not _decodes(names, encoding):
            raise UnclearNames(f"The file names in the archive are not encoded in {encoding}.", names)
        chosen = encoding
    else:
        guessed = _guess(names)
        if guessed is None:
            raise UnclearNames("The archive does not state the encoding of its file names.", names)
        chosen = guessed.name
        if chosen != "cp437":
            note = (
                "The archive does not state the encoding of its file names: read as "
                f"{guessed.title}, such as “{_example(names, chosen)}”."
            )
    return Names([text if isinstance(text, str) else text.decode(chosen) for text in texts], note)


def _stated_name(member: zipfile.ZipInfo) -> str | bytes:
    """Return the name of ``member``, or its bytes if it does not state their encoding."""
    name = member.orig_filename.partition("\0")[0]
    if member.flag_bits & UNICODE_FLAG:
        return name
    raw = member.orig_filename.encode("cp437")
    return _unicode_path(member.extra, raw) or name.encode("cp437")


def _unicode_path(extra: bytes, raw: bytes) -> str | None:
    """Return the name in the Unicode path field, unless the name was changed by a program that ignores the field."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind == _UNICODE_PATH and len(body) > _UNICODE_PATH_HEADER.size:
            version, checksum = _UNICODE_PATH_HEADER.unpack_from(body)
            if version == 1 and checksum == zlib.crc32(raw):
                try:
                    return body[_UNICODE_PATH_HEADER.size :].decode()
                except UnicodeDecodeError:
                    return None
    return None


def _decodes(names: Iterable[bytes], encoding: str) -> bool:
    try:
        b"\n".join(names).decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _example(names: Sequence[bytes], encoding: str) -> str:
    text = names[0].decode(encoding)
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return shown if len(shown) <= _EXAMPLE_CHARACTERS else f"{shown[:_EXAMPLE_CHARACTERS]}…"


def _guess(names: Sequence[bytes]) -> _Encoding | None:
    """Return the only plausible encoding of ``names``, or None. The rules are relaxed as long as there is none."""
    decoded = [
        (item, [name.decode(item.name) for name in names[:_SAMPLE]])
        for item in _ENCODINGS
        if _decodes(names, item.name)
    ]
    for may_mix, may_be_odd in ((False, False), (True, False), (True, True)):
        families: dict[str, _Encoding] = {}
        for item, texts in decoded:
            if _is_plausible(item, texts, may_mix=may_mix, may_be_odd=may_be_odd):
                families.setdefault(item.family, item)
        if families.keys() == {"chinese", "korean"}:
            texts = next(texts for item, texts in decoded if item is families["chinese"])
            if len({letter for letter in "".join(texts) if not letter.isascii()}) <= _MAX_CHANCE:
                del families["korean"]
        if families:
            return next(iter(families.values())) if len(families) == 1 else None
    return None


def _is_plausible(item: _Encoding, texts: Sequence[str], *, may_mix: bool, may_be_odd: bool) -> bool:
    """Return whether ``texts`` consist of words in the script of the encoding.

    With ``may_mix``, ideographs may stand beside ASCII letters; with ``may_be_odd``, Western words may have mostly
    accented letters, and capitals anywhere.
    """
    letters = [letter for text in texts for letter in text if not letter.isascii()]
    words = {word for text in texts for word in _WORD.findall(text) if not word.isascii()}
    if item.family == "western":
        are_letters = all(letter in _TYPOGRAPHY or _script(letter) == "LATIN" for letter in letters)
        is_odd = not all(map(_is_usual_western, words)) or any(map(_ODD_SIGN.search, texts))
        return are_letters and (may_be_odd or not is_odd)
    if item.family.startswith("cyrillic"):
        are_words = all(_RUSSIAN_OR_UKRAINIAN.fullmatch(word) and _has_usual_case(word) for word in words)
        return are_words and set("".join(words)) >= {*letters} and any(len(word) > 1 for word in words)
    letters = [letter for letter in letters if not _is_neutral(letter)]
    common = sum(letter.encode(item.name)[0] in item.common for letter in letters)
    if (
        not letters
        or 2 * common < len(letters)
        or not all(_script(letter) in item.scripts for letter in letters)
    ):
        return False
    return may_mix or not any(letter.isascii() for word in words for letter in word)


def _is_usual_western(word: str) -> bool:
    plain = sum(letter.isascii() for letter in word)
    return len(word) == 1 or (
        2 * plain >= len(word) and _has_usual_case(word) and not _ODD_SHARP_S.search(word)
    )


def _has_usual_case(word: str) -> bool:
    return word.islower() or word.isupper() or (word[0].isupper() and word[1:].islower())


def _is_neutral(letter: str) -> bool:
    """Return whether text in an East Asian script may contain ``letter``: a full-width letter, digit or sign."""
    is_sign = unicodedata.category(letter)[0] in "NPZ"
    return is_sign or (unicodedata.name(letter, "").startswith("FULLWIDTH") and letter.isalpha())


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
