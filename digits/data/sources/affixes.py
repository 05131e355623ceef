"""Find the prefix or suffix that turns the name of an image into that of its target, as in ``1.png``, ``1_L.png``."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Words for targets that may directly follow or precede a letter.
WORDS = tuple("mask label seg segmentation gt groundtruth target annotation annot matte".split())
# Targets of other tasks, which tools write beside those of classes; the train ids of Cityscapes leave out classes.
_OTHERS = re.compile(
    r"colou?r|instance|panoptic|visual|overlay|edge|bound|depth|disp|preview|trainids", re.IGNORECASE
)
_SAMPLE = 64
_NEIGHBORS = 6
_MOST_TRIED = 8


class Affixes(NamedTuple):
    """What surrounds the common part of the names of an image and of its target."""

    image_before: str = ""
    image_after: str = ""
    target_before: str = ""
    target_after: str = ""


def is_word(affix: str) -> bool:
    """Return whether a prefix or suffix is one of `WORDS`, with a sign before or after it."""
    return affix.strip("_-.").lower() in _WORDS_EITHER_WAY


def is_of_another_task(name: str) -> bool:
    """Return whether the name of a target says that it is not one of classes, as in ``1_instanceIds``."""
    return bool(_OTHERS.search(name))


def likely_affixes(images: Sequence[str], targets: Sequence[str]) -> list[Affixes]:
    """Return the likely affixes, the most frequent in a sample first."""
    step = max(1, len(images) // _SAMPLE)
    sample = [_base(stem) for stem in images[::step][:_SAMPLE]]
    bases = sorted({_base(stem) for stem in targets})
    mirrored = sorted(base[::-1] for base in bases)
    votes: Counter[Affixes] = Counter()
    for name in sample:
        candidates = {Affixes("", one, "", other) for one, other in _rests(name, bases)}
        for one, other in _rests(name[::-1], mirrored):
            candidates.add(Affixes(one[::-1], "", other[::-1], ""))
        votes.update(candidates)
    most = [affixes for affixes, _ in votes.most_common(_MOST_TRIED)]
    return list(dict.fromkeys([*most, *_common(sample, bases)]))


def _rests(name: str, others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what follows the common beginning of ``name`` and of each of its neighbors in ``others``."""
    place = bisect_left(others, name)
    for other in others[max(0, place - _NEIGHBORS) : place + _NEIGHBORS]:
        length = len(common_start([name, other]))
        while length and not all(_is_end(name[:length], text[length:]) for text in (name, other)):
            length -= 1
        rests = name[length:], other[length:]
        if length and any(rests) and all(map(_is_affix, rests)):
            yield rests


def _is_end(core: str, rest: str) -> bool:
    """Return whether a name ends between ``core`` and ``rest``: not within a word or number."""
    if not rest or not (core[-1].isalnum() and rest[0].isalnum()):
        return True
    if core[-1].isdigit() and rest[0].isdigit():
        return False
    return core[-1].isdigit() != rest[0].isdigit() or rest.lower() in _WORDS_EITHER_WAY


_WORDS_EITHER_WAY = {text for word in WORDS for text in (word, f"{word}s", word[::-1], f"{word}s"[::-1])}


def _is_affix(text: str) -> bool:
    return not text or any(character.isalpha() for character in text)


def _common(images: Sequence[str], targets: Sequence[str]) -> Iterator[Affixes]:
    """Yield the affixes of names that all begin, or all end, with the same word."""
    if len(images) < 2 or len(targets) < 2:
        return
    (image_before, image_after), (target_before, target_after) = map(_ends, (images, targets))
    for one in {"", image_before}:
        for other in {"", image_after}:
            for before in {"", target_before}:
                for after in {"", target_after}:
                    if any((one, other, before, after)):
                        yield Affixes(one, other, before, after)


def _ends(names: Sequence[str]) -> tuple[str, str]:
    """Return the word with which all names begin, and that with which all end, without their numbers."""
    before = re.sub(r"[0-9]+\Z", "", common_start(names))
    after = common_start([name[::-1] for name in names])[::-1]
    return before, re.sub(r"\A[0-9]+", "", after)


def common_start(names: Sequence[str]) -> str:
    """Return the text with which all ``names`` begin."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((place for place, (one, other) in pairs if one != other), len(first))]


def _base(stem: str) -> str:
    return stem.rpartition("/")[2]
