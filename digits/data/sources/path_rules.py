"""Match the paths that a source lists with the images in a folder, by one rule for all of them.

Lists, tables and annotations often come from another computer: their paths have another beginning, no ending, or
another spelling. A path alone rarely shows which; all of them do. The rule is learned from all paths and all files:
the paths are used as written, without a beginning, below a folder, or with another beginning; and names are compared as
they are, in another Unicode form or letter case, without endings, as numbers, or without a prefix or suffix. A rule
that gives some paths an image leaves the others missing, and an image belongs to one path only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from digits.core.files import walk
from digits.data.images.endings import EXTENSIONS
from digits.data.sources.affixes import Affixes, is_of_another_task, is_word, likely_affixes
from digits.data.sources.declared_splits import split_named
from digits.data.sources.plan import Remark, UnusableSource, path_below, show

MAX_FOLDERS_KEPT = 10_000
# Rules are guessed from this number of paths, and those that explain most of them are tried with all.
_SAMPLE = 256
_MAX_GUESSES = 300_000
_MAX_RULES = 32
_MIN_ALIKE = 2
# Label Studio puts the first eight digits of a UUID before the name of an uploaded file, in a folder per project.
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-(?=.)")
_UPLOAD_FOLDER = re.compile(r"(.*/)?(data|media)/upload/\d+/(?=[^/]+\Z)")
_DRIVE = re.compile(r"/?[A-Za-z]:/")
_QUOTES = {'"': '"', "'": "'", "“": "”"}
_NUMBER = re.compile(r"(\d{1,18})(\.0+)?")
_NUMBERED = re.compile(r"(.*?)(\d+)")
# The first component of absolute paths.
_ABSOLUTE = "\0"

# An image relative to the root, and whether it is a file.
Located = tuple[str, bool]


class AmbiguousPaths(UnusableSource):
    """Two rules lead to different ``images`` of a path, or to the same image of different ``paths``."""

    def __init__(self, fault: str, hint: str, paths: Sequence[str], images: Sequence[str]) -> None:
        super().__init__(fault, hint)
        self.paths, self.images = paths, images


@dataclass(frozen=True)
class PathMatches:
    """The images of listed paths: ``files`` by path, of which some exist ``as_written``.

    ``faults`` are the reasons why a path has no image although there are files like it. ``rule`` describes the rule for
    a sentence; it is empty if only the notation of the paths differs. It ``is_guess`` if the names differ.
    """

    tree: ImageTree
    files: Mapping[str, str]
    as_written: Collection[str]
    faults: Mapping[str, str] = field(default_factory=dict)
    rule: str = ""
    is_guess: bool = False

    def resolve(self, path: str) -> Located:
        """Return the image that ``path`` names; a path without an image is returned as written.

        Raises ValueError for a path without an image that leads out of the root, or that several images could have.
        """
        if path in self.files:
            return self.files[path], True
        if path in self.faults:
            raise ValueError(self.faults[path])
        return self.tree.locate(path)

    def locate(self, path: str) -> str:
        """Return the image of `resolve`."""
        return self.resolve(path)[0]

    def remarks(self, name: str) -> list[str]:
        """Return a sentence about the rule for the paths in the file ``name``, unless they are used as written."""
        differing = [(path, file) for path, file in self.files.items() if path not in self.as_written]
        if not differing:
            return []
        what = "1 path" if len(differing) == 1 else f"{len(differing):,} paths"
        verb = "differs from that of its image" if len(differing) == 1 else "differ from those of the images"
        example = f"“{show(differing[0][0])}” for {show(differing[0][1])}"
        rule = f": {self.rule}" if self.rule else ""
        return [Remark(f"{what} of {show(name)} {verb}, such as {example}{rule}.")]


class ImageTree:
    """The ``files`` below ``root``; unless given, they are listed once some paths do not name one as written."""

    def __init__(self, root: Path | str, files: Sequence[str] | None = None) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, str] = {}
        self._files = files

    def match(self, paths: Iterable[str], ignored_folders: Collection[str] | None = None) -> PathMatches:
        """Return the images of all ``paths`` of a source.

        With ``ignored_folders``, these are the paths of files beside the images, without an ending or with that of the
        image; folders called like one of them, in lower case, need not be the same. Raises AmbiguousPaths if two rules
        lead to different images, and UnusableSource if images have the names, but not the folders of the paths.
        """
        listed = dict.fromkeys(paths)
        as_written = {}
        for path in listed:
            try:
                file, exists = self.locate(path)
            except ValueError:
                continue
            if exists:
                as_written[path] = file
        if len(as_written) == len(listed):
            return PathMatches(self, as_written, as_written)
        written = {path: _normal(path, self._root) for path in listed}
        learner = _Learner(
            {path: place for path, place in written.items() if place}, self.files, as_written, self._root
        )
        best = learner.learn(ignored_folders)
        if best is None:
            if not learner.faults:
                learner.need_folders()
            return PathMatches(self, {}, as_written, learner.faults)
        return PathMatches(self, best.files, as_written, best.faults, best.describe(), best.spelling.is_guess)

    @property
    def files(self) -> Sequence[str]:
        """The files below the root, relative to it, and links to them."""
        if self._files is None:
            files: list[str] = []
            self._files = files
            for parent, names in walk(self._root, skips_hidden=True):
                folder = os.path.relpath(parent, self._root)
                start = "" if folder == "." else f"{folder}/"
                files += (start + name for name in names if self._is_file(start + name))
        return self._files

    def _is_file(self, path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            mode = os.lstat(f"{self._root}/{path}").st_mode
            return stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and self._locate_link(path)[1])
        return False

    def locate(self, path: str) -> tuple[str, bool]:
        """Return the real path of ``path`` relative to the root, like `path_below`, and whether it is that of a file.

        Each folder is resolved only once. Raises ValueError if it is outside.
        """
        start = path.rfind("/") + 1
        folder, name = path[:start], path[start:]
        if name in {"", ".", ".."} or "\0" in path:
            return self._locate_link(path)
        if folder not in self._folders:
            if len(self._folders) == MAX_FOLDERS_KEPT:
                self._folders.clear()
            path_below(self._root, path)  # names the whole path in its error
            inner = path_below(self._root, folder or ".")
            self._folders[folder] = "" if inner == "." else f"{inner}/"
        file = self._folders[folder] + name
        try:
            mode = os.lstat(f"{self._root}/{file}").st_mode
        except OSError:
            return file, False
        return self._locate_link(path) if stat.S_ISLNK(mode) else (file, stat.S_ISREG(mode))

    def _locate_link(self, path: str) -> tuple[str, bool]:
        file = path_below(self._root, path)
        return file, os.path.isfile(os.path.join(self._root, file))


def match_names(names: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Return which of the ``files`` each of the ``names`` has; both are paths relative to a folder each.

    Endings do not matter, and names may also differ by a prefix or suffix of both. Raises AmbiguousPaths.
    """
    places = {name: place for name in names if (place := _place(name))}
    best = _Learner(places, files, {}, "").learn_stems()
    return best.files if best else {}


class _Place(NamedTuple):
    """A path in the notation of this system: its folder, which begins with `_ABSOLUTE` if it is absolute."""

    folder: str
    name: str


@dataclass(frozen=True)
class _Spelling:
    """What two names, and two folders, must have in common; a ``written`` or a ``found`` name without it is None."""

    words: str
    written: Callable[[str], str | None]
    found: Callable[[str], str | None]
    folder: Callable[[str], str] = str
    # One of several guesses, which must agree; those of a lower rank, and of ``fewest`` paths, do not count.
    is_guess: bool = False
    fewest: int = _MIN_ALIKE
    rank: int = 1


@dataclass
class _Candidate:
    """A rule, and the images that it gives to the paths: paths lose the beginning ``without`` and get ``below``.

    A rule ``by_name`` finds them in any folder.
    """

    spelling: _Spelling
    without: str = ""
    below: str = ""
    by_name: bool = False
    agreement: int = 0
    files: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def strength(self) -> tuple[int, int]:
        """How many paths the rule explains, and the rank of its spelling."""
        return len(self.files), self.spelling.rank

    @property
    def is_as_written(self) -> bool:
        return not (self.without or self.below or self.by_name)

    def describe(self) -> str:
        """Return the rule; an empty text if the paths are used as written."""
        without, below = (show(path.removeprefix(_ABSOLUTE)) for path in (self.without, self.below))
        parts = [
            f"without “{without}”" if without else "",
            f"below “{below}”" if below else "",
            "found by their names" if self.by_name else "",
            self.spelling.words,
        ]
        return ", ".join(filter(None, parts))

    def dominates(self, other: _Candidate) -> bool:
        """Return whether ``other`` can only explain paths because they are cut more, or begin with another folder."""
        if len(self.files) < len(other.files):
            return False
        is_longer = not self.without or f"{other.without}/".startswith(f"{self.without}/")
        return is_longer and (self.without != other.without or not self.below)


class _Learner:
    """Learns the rule for the ``written`` paths from the ``files``, which are relative to ``root``.

    The files of the paths that exist ``as_written`` are known.
    """

    def __init__(
        self, written: Mapping[str, _Place], files: Sequence[str], as_written: Mapping[str, str], root: str
    ) -> None:
        self.written, self._files, self._as_written, self._root = written, files, as_written, root
        self._is_flat = not any(place.folder for place in written.values())
        self._sampled = list(_sample(written))
        # Why paths have no image, if no rule explains any.
        self.faults: dict[str, str] = {}

    def learn(self, ignored_folders: Collection[str] | None) -> _Candidate | None:
        """Return the best rule, None if none explains a path; raises AmbiguousPaths.

        Looser spellings count only if stricter ones explain less; endings do not matter only if no path has the ending
        of an image, and so on: otherwise, other images would replace missing ones.
        """
        groups = [_whole_names, self._stems_and_numbers, self._one_affix]
        folders: list[Callable[[str], str]] = [str]
        if ignored_folders is not None:
            del groups[0]
            folders.append(partial(_without_folders, ignored=frozenset(ignored_folders)))
        for group in groups:
            if best := self._first(group(), folders):
                return best
        return None

    def learn_stems(self) -> _Candidate | None:
        """Return the best rule for names whose endings do not matter, as `learn` does."""
        return self._first(itertools.chain(self._stems_and_numbers(), self._affixes()), [str])

    def _first(
        self, spellings: Iterable[_Spelling], folders: Sequence[Callable[[str], str]]
    ) -> _Candidate | None:
        half = (min(len(self.written), len(self._files)) + 1) // 2
        best: _Candidate | None = None
        tried: list[_Candidate] = []
        for spelling in spellings:
            for folder in folders:
                item = self._explain(spelling, folder)
                if item is None:
                    continue
                # Files at the paths as written are no evidence for a guess.
                explained = len(item.files.keys() - self._as_written.keys())
                if spelling.is_guess and explained < max(half, spelling.fewest):
                    continue
                tried.append(item)
                if best is None or item.strength > best.strength:
                    best = item
                if len(item.files) == len(self.written) and not spelling.is_guess:
                    return best
        if best is None or not best.spelling.is_guess:
            return best
        for other in tried:
            if other.spelling.rank >= best.spelling.rank:
                _need_agreement(best, other)
        sure = (
            item for item in tried if not item.spelling.is_guess and item.files.keys() - best.files.keys()
        )
        return max(sure, key=lambda item: item.strength, default=best)

    def need_folders(self) -> None:
        """Raise UnusableSource if a folder that the paths do not name has images with the names of most paths."""
        by_name: dict[str, list[str]] = defaultdict(list)
        for file in self._files:
            if file.lower().endswith(EXTENSIONS):
                by_name[_folded(_stem_of(os.path.basename(file)))].append(file)
        folders: Counter[str] = Counter()
        example: dict[str, tuple[str, str]] = {}
        for path, place in self.written.items():
            for file in by_name.get(_folded(_stem_of(place.name)), [])[:_MAX_RULES]:
                folders[os.path.dirname(file)] += 1
                example.setdefault(os.path.dirname(file), (path, file))
        folder, count = max(folders.items(), key=lambda item: item[1], default=("", 0))
        if folder and 2 * count >= len(self.written):
            path, file = example[folder]
            raise UnusableSource(
                f"No image is at one of the paths, such as “{show(path)}”: {show(file)} has this name, but is in "
                "another folder.",
                f"If it is the same image, choose {show(os.path.join(self._root, folder))} as the image folder.",
            )

    def _explain(self, spelling: _Spelling, folder: Callable[[str], str]) -> _Candidate | None:
        """Return the best rule for a spelling; raises AmbiguousPaths."""

        @cache
        def folder_key(path: str) -> str:
            return spelling.folder(folder(path))

        index: dict[str, dict[str, list[str]]] = {}
        for file in self._files:
            parent, _, name = file.rpartition("/")
            if (key := spelling.found(name)) is not None:
                index.setdefault(key, {}).setdefault(folder_key(parent), []).append(file)
        rows = {
            path: (folder_key(place.folder), key)
            for path, place in self.written.items()
            if (key := spelling.written(place.name)) is not None and key in index
        }
        if not rows and not self._as_written:
            return None
        candidates = [
            self._apply(_Candidate(spelling, *rule), rows, index) for rule in self._guess(rows, index)
        ]
        if self._is_flat or (not self._root and not any("/" in file for file in self._files)):
            candidates.append(self._apply(_Candidate(spelling, by_name=True), rows, index))
        for item in candidates:
            if not item.files:
                self.faults.update(item.faults)
        candidates = [item for item in candidates if item.files]
        if not candidates:
            return None
        best = _choose(candidates, len(self.written))
        if candidates[0].is_as_written and best is not candidates[0]:
            # A file at the path as written is always meant.
            best.files = candidates[0].files | best.files
            self._part(best)
        return best

    def _guess(
        self, rows: Mapping[str, tuple[str, str]], index: Mapping[str, Mapping[str, list[str]]]
    ) -> list[tuple[str, str]]:
        """Return the likely beginnings to remove and to add; the first one is none."""
        votes: Counter[tuple[str, str]] = Counter()
        guesses = 0
        for path in self._sampled:
            if path in rows and guesses < _MAX_GUESSES:
                folder, name = rows[path]
                guesses += len(index[name])
                votes.update(_beginnings(folder, found) for found in index[name])
        allowed = [rule for rule, _ in votes.most_common() if not (rule[0] and self._contradicts(*rule))]
        return list(dict.fromkeys([("", ""), *allowed[:_MAX_RULES]]))

    def _contradicts(self, without: str, below: str) -> bool:
        """Return whether the last of the folders to remove is another one than that of the images.

        So is a folder that exists in the root or beside it, or that has the name of another split.
        """
        name, root = without.rpartition("/")[2], os.path.basename(self._root)
        if not root or name in ("..", _ABSOLUTE) or (not below and _folded(name) == _folded(root)):
            return False
        splits = {split_named(name), split_named(os.path.basename(below) or root)} - {None}
        places = (self._root, os.path.dirname(self._root))
        return len(splits) > 1 or any(os.path.isdir(os.path.join(place, name)) for place in places)

    def _apply(
        self,
        rule: _Candidate,
        rows: Mapping[str, tuple[str, str]],
        index: Mapping[str, Mapping[str, list[str]]],
    ) -> _Candidate:
        """Give the paths the images of a ``rule``; those that would share one have none."""
        if rule.is_as_written:
            rule.files.update(self._as_written)
        rule.agreement = self._agreement(rule.without)
        cut = len(rule.without) + 1 if rule.without else 0
        for path, (folder, name) in rows.items():
            if path in rule.files:
                continue
            found = index[name]
            if rule.by_name:
                files = [file for part in found.values() for file in part]
            else:
                if cut and folder != rule.without and not folder.startswith(f"{rule.without}/"):
                    continue
                rest = folder[cut:]
                # Otherwise, no folder of the path is that of the image.
                if cut and rule.below and not rest:
                    continue
                files = found.get("/".join(filter(None, (rule.below, rest))), [])
            if len(files) > 1:
                same = self.written[path].name
                files = [file for file in files if os.path.basename(file) == same] or files
            if len(files) == 1:
                rule.files[path] = files[0]
            elif files:
                rule.faults[path] = f"“{show(path)}” can be several images: {', '.join(map(show, files[:3]))}"
        self._part(rule)
        return rule

    def _part(self, rule: _Candidate) -> None:
        """Take the images away from different paths with the same image, and give the reason."""
        if len(set(rule.files.values())) == len(rule.files):
            return
        paths: dict[str, list[str]] = defaultdict(list)
        for path, file in rule.files.items():
            paths[file].append(path)
        for file, same in paths.items():
            if len({self.written.get(path) for path in same}) > 1:
                for path in same:
                    if path not in self._as_written:
                        other = next(item for item in same if item != path)
                        del rule.files[path]
                        rule.faults[path] = (
                            f"“{show(path)}” and “{show(other)}” are different paths, but would be the same image: "
                            f"{show(file)}"
                        )

    def _agreement(self, without: str) -> int:
        """Return how many folders at the end of ``without`` are those at the end of the root."""
        pairs = zip(reversed(without.split("/")), reversed(self._root.split("/")), strict=False)
        count = 0
        for one, other in pairs:
            if not one or _folded(one) != _folded(other):
                break
            count += 1
        return count

    def _numbers(self) -> Iterator[_Spelling]:
        """Yield the spellings in which names are numbers, filled with zeros to the same width, after a common word."""
        numbers = [number for place in self.written.values() if (number := _number(place.name))]
        fewest_digits = min(map(len, numbers), default=0)
        if not numbers or not any(
            all(number == f"{int(number):0{width}d}" for number in numbers) for width in (1, fewest_digits)
        ):
            return
        words: Counter[str] = Counter()
        widths: Counter[int] = Counter()
        for file in self._files:
            match = _NUMBERED.fullmatch(_stem_of(os.path.basename(file)))
            if match and file.lower().endswith(EXTENSIONS):
                words[match[1]] += 1
                widths[len(match[2])] += 1
        for word, _ in words.most_common(4):
            for width in sorted({1, *(width for width, _ in widths.most_common(8))}):
                text = f"by their numbers after “{show(word)}”" if word else "by their numbers"
                yield _Spelling(text, partial(_filled, word=word, width=width), _stem_of, is_guess=True)

    def _stems_and_numbers(self) -> Iterator[_Spelling]:
        yield from _stems()
        yield from self._numbers()

    def _one_affix(self) -> Iterator[_Spelling]:
        """Yield the spellings with a prefix or suffix of the images, or of the paths."""
        for affixes in self._likely_affixes():
            sides = (affixes.image_before + affixes.image_after, affixes.target_before + affixes.target_after)
            if not all(sides):
                yield replace(_with_affixes(affixes), fewest=_MIN_ALIKE)

    def _affixes(self) -> Iterator[_Spelling]:
        return map(_with_affixes, self._likely_affixes())

    def _likely_affixes(self) -> list[Affixes]:
        names = sorted({_nfc(_stem_of(place.name)) for place in self.written.values()})
        found = sorted(
            {
                _nfc(_stem_of(os.path.basename(file)))
                for file in self._files
                if file.lower().endswith(EXTENSIONS)
            }
        )
        return likely_affixes(names, found)


def _choose(candidates: list[_Candidate], total: int) -> _Candidate:
    """Return the rule that explains most paths; raises AmbiguousPaths if another one explains them differently."""
    first, last = candidates[0], candidates[-1]
    if first.is_as_written and 2 * len(first.files) >= total:
        is_wider = last.by_name and len(last.files) > len(first.files) and not _difference(first, last)
        return last if is_wider else first
    for sure in [item for item in candidates if item.agreement]:
        candidates = [
            item
            for item in candidates
            if item.agreement >= sure.agreement or not item.without or _difference(sure, item) is None
        ]
    best = max(candidates, key=lambda item: len(item.files))
    for other in candidates:
        if other is not best and not best.dominates(other):
            _need_agreement(best, other)
    return best


def _need_agreement(best: _Candidate, other: _Candidate) -> None:
    """Raise AmbiguousPaths if two rules give a path different images, or an image to different paths."""
    if (difference := _difference(best, other)) is None:
        return
    paths, files = difference
    if len(paths) == 1:
        raise AmbiguousPaths(
            f"“{show(paths[0])}” can be {show(files[0])} or {show(files[1])}.",
            "Choose the folder that directly contains the images of these paths as the image folder.",
            *difference,
        )
    raise AmbiguousPaths(
        f"“{show(paths[0])}” and “{show(paths[1])}” are different paths, but both can be the image {show(files[0])}.",
        "Choose a folder with the images of all paths, or leave out the paths of other folders.",
        *difference,
    )


def _difference(best: _Candidate, other: _Candidate) -> tuple[list[str], list[str]] | None:
    path_of = {file: path for path, file in best.files.items()}
    for path, file in other.files.items():
        known = best.files.get(path)
        if known is not None and known != file:
            return [path], [known, file]
        if known is None and file in path_of:
            return [path_of[file], path], [file]
    return None


def _sample(written: Mapping[str, _Place]) -> Iterator[str]:
    """Yield paths of as many folders as possible, then others."""
    step = max(1, len(written) // _SAMPLE)
    first_in: dict[str, str] = {}
    for path, place in written.items():
        first_in.setdefault(place.folder, path)
    folders = max(1, len(first_in) // _SAMPLE)
    return iter(dict.fromkeys([*list(first_in.values())[::folders], *list(written)[::step]]))


def _beginnings(folder: str, found: str) -> tuple[str, str]:
    """Return what two folders do not have in common at their ends."""
    one, other = (path.split("/") if path else [] for path in (folder, found))
    while one and other and one[-1] == other[-1]:
        one.pop()
        other.pop()
    return "/".join(one), "/".join(other)


def _normal(path: str, root: str) -> _Place | None:
    """Return ``path`` without quotation marks, with slashes and without the notation of URLs; None if it is empty."""
    text = path.strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    if "?d=" in text or "://" in text:
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        text = (parse_qs(parts.query).get("d") or [unquote(parts.path)])[0]
    elif re.search(r"%[0-9A-Fa-f]{2}", text):
        text = unquote(text)
    text = _UPLOAD_FOLDER.sub("", text.replace("\\", "/"))
    if _DRIVE.match(text):
        text = _DRIVE.sub("/", text, count=1)
    return _place(text.removeprefix(f"{root}/") if root else text)


def _place(path: str) -> _Place | None:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or parts[-1] == ".." or "\0" in path:
        return None
    start = [_ABSOLUTE] if path.startswith("/") and len(parts) > 1 else []
    return _Place("/".join([*start, *parts[:-1]]), parts[-1])


def _without_folders(path: str, ignored: frozenset[str]) -> str:
    return "/".join(part for part in path.split("/") if part.lower() not in ignored)


def _nfc(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def _stem_of(name: str) -> str:
    """Return ``name`` without the ending of an image."""
    stem, dot, ending = name.rpartition(".")
    return stem if stem and (dot + ending).lower() in EXTENSIONS else name


# The rule for names whose endings do not matter.
WITH_ENDINGS = "with the endings of the images"


_SAME_NAMES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("in another form of Unicode", _nfc),
    ("in upper or lower case", _folded),
    ("without the digits before uploaded files", lambda name: _folded(_not_uploaded(name))),
)


def _whole_names() -> Iterator[_Spelling]:
    for words, change in _SAME_NAMES:
        yield _Spelling(words, change, change, change if change in (str, _nfc) else _folded)


def _stems() -> Iterator[_Spelling]:
    """Yield the spellings of `_whole_names` for names without their endings, in any form of Unicode."""
    for words, change in _SAME_NAMES[1:]:
        text = WITH_ENDINGS if change is _nfc else f"{WITH_ENDINGS}, {words}"
        stem = partial(_stem_changed, change=change)
        yield _Spelling(text, stem, stem, _nfc if change is _nfc else _folded)


def _stem_changed(name: str, change: Callable[[str], str]) -> str:
    return change(_stem_of(name))


def _not_uploaded(name: str) -> str:
    return _UPLOAD_PREFIX.sub("", name, count=1)


def _number(name: str) -> str:
    """Return the digits of a name that is a whole number, which can be written as ``1.0``; empty if it is not."""
    match = _NUMBER.fullmatch(_stem_of(name))
    return match[1] if match else ""


def _filled(name: str, word: str, width: int) -> str | None:
    digits = _number(name)
    return f"{word}{int(digits):0{width}d}" if digits else None


def _with_affixes(affixes: Affixes) -> _Spelling:
    """Return the spelling in which the paths of images and the files of targets have these."""
    sides = (
        ("after", affixes.image_before, affixes.target_before),
        ("before", affixes.image_after, affixes.target_after),
    )
    words = [
        f"“{show(found)}” instead of “{show(written)}”"
        if written and found
        else f"“{show(written or found)}”"
        for _, written, found in sides
        if written or found
    ]
    is_other = is_of_another_task("".join(text for side in sides for text in side[1:]))
    return _Spelling(
        f"with or without {' and '.join(words)}",
        partial(_core, before=affixes.image_before, after=affixes.image_after),
        partial(_core, before=affixes.target_before, after=affixes.target_after),
        _nfc,
        is_guess=True,
        fewest=1 if is_word("".join(affixes)) else _MIN_ALIKE,
        rank=int(not is_other),
    )


def _core(name: str, before: str, after: str) -> str | None:
    stem = _nfc(_stem_of(name))
    is_long = len(stem) > len(before) + len(after)
    if not (is_long and stem.startswith(before) and stem.endswith(after)):
        return None
    return stem[len(before) : len(stem) - len(after)]
