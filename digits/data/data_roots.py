"""The folders of this machine that the server may read data from.

Every path from a user is made absolute and all links are followed; the result must be below one of the roots.
Errors reveal nothing about paths outside of the roots, not even whether they exist.
"""

from __future__ import annotations

import difflib
import heapq
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from digits.core.errors import BadRequest, NotAllowed
from digits.data.sources.affixes import common_start

OPTION, VARIABLE = "--data-root", "DIGITS_DATA_ROOTS"
MAX_SUGGESTIONS = 100
# Larger folders are listed in part, so that one request does not block others.
MAX_LISTED_ENTRIES = 20_000
MAX_PATH_BYTES = 4096
# The number of similar names to try for a missing one, and their minimum similarity, 0 to 1.
MAX_SIMILAR = 5
SIMILARITY = 0.7
# The most pairs of characters that are compared to find a similar name: some ten milliseconds.
MAX_COMPARED = 200_000

_QUOTES = {'"': '"', "'": "'"}
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")

FileType = Literal["folder", "file", "any"]


class Missing(BadRequest):
    """There is no file or folder at a path; ``meant`` is an existing path like it, or empty."""

    meant = ""

    def suggest(self, path: str) -> None:
        if path:
            self.meant, self.hint = path, f"Did you mean {_shown(path)}?"


class Outside(NotAllowed):
    """A path leads out of the ``allowed`` folders; ``remedy_words`` say how to allow it, as does the hint."""

    def __init__(self, path: str, allowed: list[str]) -> None:
        self.allowed = allowed
        self.remedy_words = f"To allow it, restart the server with {OPTION} FOLDER (or set {VARIABLE})."
        listed = f"Allowed are: {', '.join(map(_shown, allowed))}. " if allowed else ""
        message = f"{_shown(path)} is outside the folders this server may read."
        super().__init__(message, listed + self.remedy_words)


class Roots:
    """The allowed folders, with links resolved. They need not exist yet."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        resolved = (Path(os.path.realpath(os.path.expanduser(path))) for path in paths)
        self.paths: tuple[Path, ...] = tuple(dict.fromkeys(resolved))

    def resolve(self, text: str, file_type: FileType = "folder") -> Path:
        """Return the real path of the readable folder or file, or any of both, that ``text`` names.

        ``text`` is an absolute path, or one that starts with ``~/``. Raises BadRequest if it is not a valid path or
        not of this type, and NotAllowed if it is outside of the roots or not readable.
        """
        only_folders = file_type == "folder"
        try:
            written = _absolute(text)
        except Missing as error:
            error.suggest(self._below_roots(text.strip(), only_folders))
            raise
        path = _resolve_links(written)
        if path is None or not self._contain(path):
            raise Outside(written, [str(root) for root in self.paths])
        try:
            _check_type(path, written, file_type)
        except Missing as error:
            error.suggest(self._similar(written, only_folders))
            raise
        return path

    def _below_roots(self, relative: str, only_folders: bool) -> str:
        """Return an existing path that ends with ``relative``, below a root or beginning with its name, or empty."""
        for path in (folder / relative for root in self.paths for folder in (root, root.parent)):
            if self.contain(path) and (path.is_dir() or (path.exists() and not only_folders)):
                return os.path.normpath(path)
        return ""

    def _similar(self, written: str, only_folders: bool) -> str:
        """Return an existing path like the missing one ``written``: its first wrong name replaced by a similar one.

        Empty if there is none.
        """
        folder = Path(written)
        while not os.path.exists(folder):
            name, folder = folder.name, folder.parent
        real = _resolve_links(folder)
        if real is None or not self._contain(real):
            return ""
        for close in similar_names(name, _names(real, "", only_folders=False)):
            rest = Path(written).relative_to(folder / name)
            path = folder / close / rest
            if self.contain(path) and path.exists() and (path.is_dir() or not only_folders):
                return str(path)
        return ""

    def contain(self, path: Path) -> bool:
        """Return whether ``path`` leads, through any links, to one of the roots or below one."""
        real = _resolve_links(path)
        return real is not None and self._contain(real)

    def root_of(self, path: str) -> Path | None:
        """Return the outermost root that contains the existing absolute ``path``; None if there is none."""
        real = _resolve_links(path)
        found = [root for root in self.paths if real is not None and _is_below(real, root)]
        return min(found, key=lambda root: len(root.parts)) if found and os.path.exists(path) else None

    def _contain(self, real: Path) -> bool:
        return any(_is_below(real, root) for root in self.paths)

    def complete(self, query: str, *, only_folders: bool = False) -> list[str]:
        """Return paths that start with ``query``: sorted, at most 100; folders end with ``/``.

        Only paths below the roots are included; for shorter queries, the roots themselves. Hidden entries are
        included only if the query contains their dot.
        """
        try:
            written = _absolute(query, keep_slash=True) if query.strip() else "/"
        except BadRequest:
            return []
        below = (root for root in self.paths if f"{root}/".startswith(written) and f"{root}/" != written)
        paths = {f"{root}/" for root in below if root.is_dir()}
        folder, _, start = written.rpartition("/")
        real = _resolve_links(folder or "/")
        if real is not None and self._contain(real):
            paths.update(self._below(real, folder, start, only_folders))
        return heapq.nsmallest(MAX_SUGGESTIONS, paths)

    def _below(self, real: Path, folder: str, start: str, only_folders: bool) -> list[str]:
        names = heapq.nsmallest(MAX_SUGGESTIONS, _names(real, start, only_folders))
        suggestions = []
        for name in names:
            entry = _resolve_links(real / name)
            if entry is not None and self._contain(entry):
                suggestions.append(f"{folder}/{name}/" if entry.is_dir() else f"{folder}/{name}")
        return suggestions


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the ``names`` most similar to ``name``, in any letter case: at most `MAX_SIMILAR`, the best one first.

    Those that begin and end most like ``name``, which takes little time to find out, are compared in full, up to
    `MAX_COMPARED` pairs of characters.
    """
    wanted = name.casefold()
    candidates = {found.casefold(): found for found in names}
    compared = 0
    likely = []
    for candidate in sorted(candidates, key=lambda candidate: -_common_ends(wanted, candidate)):
        compared += len(wanted) * len(candidate)
        if compared > MAX_COMPARED:
            break
        likely.append(candidate)
    matches = difflib.get_close_matches(wanted, likely, MAX_SIMILAR, SIMILARITY)
    return [candidates[match] for match in matches]


def _common_ends(one: str, other: str) -> float:
    """Return how much of two texts is the same at their beginning and their end, from 0 to 1."""
    start = len(common_start([one, other]))
    end = len(common_start([one[start:][::-1], other[start:][::-1]]))
    return (start + end) / max(1, len(one), len(other))


def _absolute(text: str, keep_slash: bool = False) -> str:
    """Normalize an absolute path; raises BadRequest.

    ``..`` is kept, because its meaning depends on the links before it.
    """
    path = text.strip()
    if path[:1] in _QUOTES and path[-1:] == _QUOTES[path[0]]:  # as file managers copy paths
        path = path[1:-1].strip()
    if not path:
        raise BadRequest("No path was given.")
    if "\0" in path:
        raise BadRequest("A path cannot contain a null character.")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise BadRequest("The path contains characters that are invalid in file names.") from error
    if length > MAX_PATH_BYTES:
        raise BadRequest(f"The path is longer than {MAX_PATH_BYTES} bytes.")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    if _DRIVE.match(path):
        raise BadRequest(
            f"{_shown(path)} is a path of Windows, not of this server.",
            "Upload the folder or the files instead.",
        )
    if not path.startswith("/"):
        raise Missing(f"{_shown(path)} is not an absolute path.", "Start it with /.")
    path = "/" + path.lstrip("/")
    return path if keep_slash else path.rstrip("/") or "/"


def _resolve_links(path: str | Path) -> Path | None:
    """Return the real path of ``path``, or None if the system does not reveal the target of a link."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return None


def _is_below(path: Path, root: Path) -> bool:
    return os.path.commonpath((path, root)) == str(root)


def _check_type(path: Path, written: str, file_type: FileType) -> None:
    try:
        mode = path.stat().st_mode
    except PermissionError as error:
        raise NotAllowed(f"The server has no permission to read {_shown(written)}.") from error
    except OSError as error:
        raise Missing(f"{_shown(written)} does not exist.") from error
    # A plain file only: opening a FIFO or a device could hang.
    is_folder = stat.S_ISDIR(mode)
    if file_type == "folder" and not is_folder:
        raise BadRequest(
            f"{_shown(written)} is not a folder.",
            f"Enter a folder, such as {_shown(str(Path(written).parent))}.",
        )
    if (not is_folder and not stat.S_ISREG(mode)) or (file_type == "file" and is_folder):
        raise BadRequest(f"{_shown(written)} is not a file.")
    if not os.access(path, os.R_OK | os.X_OK if is_folder else os.R_OK):
        raise NotAllowed(f"The server has no permission to read {_shown(written)}.")


def _names(folder: Path, start: str, only_folders: bool) -> Iterator[str]:
    """Return the names in ``folder`` that start with ``start`` and are valid text."""
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MAX_LISTED_ENTRIES), entries, strict=False):
                name = entry.name
                is_wanted = name.startswith(start) and (start or not name.startswith("."))
                if is_wanted and name.isprintable() and (not only_folders or entry.is_dir()):
                    yield name
    except OSError:
        return


def _shown(path: str) -> str:
    """Return ``path`` for a message: printable, and shortened in the middle."""
    text = path.encode("utf-8", "backslashreplace").decode()
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"
