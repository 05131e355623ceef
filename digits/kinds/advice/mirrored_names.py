"""Names of classes that a horizontal flip exchanges: pairs that differ only by left and right, in many languages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence


def _pairs(words: str) -> list[tuple[str, str]]:
    """Return the words of each pair, which a slash separates."""
    return [(left, right) for left, _, right in (pair.partition("/") for pair in words.split())]


# Parts of words, without their endings: a name counts only if there is another one with the opposite part.
_PARTS = _pairs(
    "left/right link/recht gauche/droite gauche/droit izquierd/derech sinistr/destr esquerd/direit "
    "esquerr/dret stâng/dreapt stâng/drept venstre/høyre venstre/højre vänster/höger vasen/oikea lew/praw "
    "lev/prav ľav/prav lev/desn lijev/desn ezker/eskuin kiri/kanan trái/phải αριστερ/δεξι лев/прав "
    "лів/прав ляв/десен ляв/дясн 左/右 ひだり/みぎ 왼/오른 ซ้าย/ขวา बाएं/दाएं बायां/दायां שמאל/ימין يسار/يمين "
    "sinister/dexter port/starboard counterclockwise/clockwise anticlockwise/clockwise"
)
# Short words, which must not be a part of another one.
_WORDS = _pairs(
    "l/r lt/rt lft/rgt lft/rt lh/rh lhs/rhs li/re sx/dx izq/der esq/dir os/od bal/jobb sol/sağ sol/sag ccw/cw"
)
# Besides these, single letters are those of a series, such as the classes of an alphabet.
_SIDES = frozenset("lrcm")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBER = re.compile(r"^\s*\d+[\s\-_.]+")
_SEPARATORS = re.compile(r"[\s\-_.]+")
_LETTER = r"(?<![^\W\d_]){}(?![^\W\d_])"


def mirrored_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Return two of ``names`` that a horizontal flip exchanges, such as “left hand” and “right hand”; None without any.

    A single name never decides: “cleft lip” has no counterpart.
    """
    known = {_key(name): name for name in names}
    for key, name in known.items():
        for partner in _partners(key, known):
            if partner != key and partner in known:
                return name, known[partner]
    return None


def _key(name: str) -> str:
    """Return a name in lowercase without a number in front, and with a space between words, also of ``camelCase``."""
    words = unicodedata.normalize("NFKC", _HUMP.sub(" ", name)).casefold()
    return _SEPARATORS.sub(" ", _NUMBER.sub("", words)).strip()


def _partners(key: str, known: Iterable[str]) -> Iterator[str]:
    """Yield what names would be on the right if ``key`` is one on the left."""
    for left, right in _PARTS:
        if left in key:
            yield key.replace(left, right)
    for left, right in _WORDS:
        word = re.compile(_LETTER.format(left))
        if word.search(key) and (len(left) > 1 or not _is_series(word.split(key), known)):
            yield word.sub(right, key)


def _is_series(parts: Sequence[str], known: Iterable[str]) -> bool:
    """Return whether other single letters than those of sides stand between the ``parts`` of a name in others."""
    pattern = re.compile(r"([^\W\d_])".join(map(re.escape, parts)))
    letters = {match[1] for match in map(pattern.fullmatch, known) if match}
    return not letters <= _SIDES
