"""Find the prefix or suffix that turns the name of an image into that of its target, as in ``1.png``, ``1_L.png``."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Words for targets that may directly follow or precede a letter.
WORDS = (
    "mask",
    "label",
    "seg",
    "segmentation",
    "gt",
    "groundtruth",
    "target",
    "annotation",
    "annot",
    "matte",
)
# Targets of other tasks, which tools write beside those of classes; the train ids of Cityscapes leave out classes.
_OTHERS = re.compile(
    r"colou?r|instance|panoptic|visual|overlay|edge|bound|depth|disp|preview|trainids", re.IGNORECASE
)
_SAMPLE = 64
_NEIGHBORS = 6
_MOST_TRIED = 8


@dataclass(frozen=True, order=True)
class Affixes:
    """What surrounds the common part of the names of an image and of its target."""

    image_before: str = ""
    image_after: str = ""
    target_before: str = ""
    target_after: str = ""


def find_pairs(images: Sequence[str], targets: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the targets of the images by the affixes that make the most pairs, at least of half of the names.

    Names are paths without endings. If several affixes make as many pairs of different targets, the result is empty,
    and the second item are the targets of one image.
    """
    cores = functools.cache(_cores)
    stems_of_images, stems_of_targets = tuple(images), tuple(targets)
    fewest = (min(len(images), len(targets)) + 1) // 2
    usable: dict[Affixes, dict[str, str]] = {}
    for affixes in likely_affixes(images, targets):
        of_targets = cores(stems_of_targets, affixes.target_before, affixes.target_after)
        of_images = cores(stems_of_images, affixes.image_before, affixes.image_after)
        pairs = {image: of_targets[core] for core, image in of_images.items() if core in of_targets}
        if pairs and len(pairs) >= fewest:
            usable[affixes] = pairs
    if not usable:
        return {}, []
    rank = {
        affixes: (len(pairs), not is_of_another_task(affixes.target_before + affixes.target_after))
        for affixes, pairs in usable.items()
    }
    best = max(rank.values())
    equal = [usable[affixes] for affixes in sorted(usable) if rank[affixes] == best]
    if any(pairs != equal[0] for pairs in equal):
        image = next(iter(equal[0]))
        return {}, sorted({pairs[image] for pairs in equal if image in pairs})
    return equal[0], []


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
        length = len(_beginning([name, other]))
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
    before = re.sub(r"[0-9]+\Z", "", _beginning(names))
    after = _beginning([name[::-1] for name in names])[::-1]
    return before, re.sub(r"\A[0-9]+", "", after)


def _beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((place for place, (one, other) in pairs if one != other), len(first))]


def _base(stem: str) -> str:
    return stem.rpartition("/")[2]


def _cores(stems: Iterable[str], before: str, after: str) -> dict[str, str]:
    length = len(before) + len(after)
    cores: dict[str, str] = {}
    for stem in stems:
        folder, slash, base = stem.rpartition("/")
        if len(base) > length and base.startswith(before) and base.endswith(after):
            cores.setdefault(folder + slash + base[len(before) : len(base) - len(after)], stem)
    return cores
