"""Find images by the paths in lists, tables and annotations, which often come from another computer."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from digits.core.files import walk
from digits.data.image_endings import EXTENSIONS
from digits.data.sources import listed, path_below, show

MAX_FOLDERS_KEPT = 10_000
# Label Studio puts the first eight digits of a UUID before the name of an uploaded file.
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-(?=.)")
_DRIVE = re.compile(r"/?[A-Za-z]:/")

Parts = list[str]
# An image relative to the root, whether it is a file, and whether its path differs from that written.
Located = tuple[str, bool, bool]


class ImageFinder:
    """The images below ``root``, which are listed once a path does not name a file as it is written.

    Other paths name the image with the same name, if its folders do not contradict them: paths of another computer or
    of Windows, URLs, names without an ending, and those that differ only in case or in the form of Unicode.
    """

    def __init__(self, root: Path | str) -> None:
        self._root = os.path.realpath(root)
        self._root_key = _key(os.path.basename(self._root))
        self._folders: dict[str, str] = {}
        self._is_folder: dict[str, bool] = {}
        self._names: dict[str, list[str]] = {}
        self._stems: dict[str, list[str]] = {}
        self._is_listed = False
        self._found: dict[str, Parts] = {}

    def resolve(self, path: str, *, by_name: bool = False) -> Located:
        """Return the image that ``path`` names as written, or else that which `find` returns.

        A path without an image is returned as written. Raises ValueError for one outside the root without an image, and
        for one that could mean several images.
        """
        try:
            file, exists = self._locate(path)
        except ValueError:
            if found := self.find(path, by_name=by_name):
                return found, True, True
            raise
        if exists:
            return file, True, False
        found = self.find(path, by_name=by_name)
        return (found, True, True) if found else (file, False, False)

    def locate(self, path: str) -> str:
        """Return the image that `resolve` finds, also by its name alone."""
        return self.resolve(path, by_name=True)[0]

    def find(self, path: str, *, by_name: bool = True) -> str | None:
        """Return the image below the root whose path ends like ``path``, relative to the root.

        ``path`` can be a path on another computer or a URL, such as ``/data/upload/3/0a1b2c3d-rose.jpg`` or
        ``/data/local-files/?d=roses/1.jpg``. Of several images with the same name, the one with the same parent
        folders is returned. An image whose folders all differ is returned if it is the only one with that name; for
        relative paths only with ``by_name``. A relative path whose folder is below the root is not searched elsewhere:
        that image is missing, and one in another folder is a different one. Raises ValueError if several images are
        possible, or if another path already led to the image.
        """
        for wanted in _readings(path):
            parts = [part for part in wanted.split("/") if part not in ("", ".")]
            if not parts or parts[-1] == "..":
                continue
            is_elsewhere = wanted.startswith("/")
            if file := self._below_root(parts, is_elsewhere):
                self._found.setdefault(file, [self._root_key, *_keys(file.split("/"))])
                return file
            inner = None if is_elsewhere else self._existing_folder(parts[:-1])
            found = self._match(path, parts, inner, by_name or is_elsewhere)
            if found and os.path.isfile(f"{self._root}/{found}"):
                self._check_unique(path, parts, found)
                return found
        return None

    def _locate(self, path: str) -> tuple[str, bool]:
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

    def _below_root(self, parts: Parts, is_elsewhere: bool) -> str | None:
        """Return the image at ``parts``, as they are or below a folder that is called like the root."""
        starts = [index + 1 for index, part in enumerate(parts[:-1]) if _key(part) == self._root_key]
        for start in starts if is_elsewhere else [0, *starts]:
            try:
                file, exists = self._locate("/".join(parts[start:]))
            except ValueError:
                continue
            if exists:
                return file
        return None

    def _existing_folder(self, parts: Parts) -> str | None:
        """Return the real path of a folder below the root, or None if there is no such folder.

        A folder outside of the root is returned as written, and contains no image.
        """
        folder = "/".join(parts)
        if not folder:
            return None
        if folder not in self._is_folder:
            self._is_folder[folder] = os.path.isdir(os.path.join(self._root, folder))
        if not self._is_folder[folder]:
            return None
        try:
            return path_below(self._root, folder)
        except ValueError:
            return folder

    def _match(self, path: str, parts: Parts, folder: str | None, by_name: bool) -> str | None:
        """Return the listed image that ``parts`` name, in ``folder`` if it is given."""
        self._list()
        keys = _keys(parts)
        name = keys[-1]
        for known in (
            self._names.get(name),
            self._names.get(_UPLOAD_PREFIX.sub("", name, count=1)),
            self._stems.get(name),
        ):
            files = known or []
            if folder is not None:
                files = [file for file in files if os.path.dirname(file) == folder]
            else:
                ends = [file for file in files if _end_alike(_keys(file.split("/"))[:-1], keys[:-1])]
                if any(self._is_beside(parts[: -file.count("/") - 1]) for file in ends):
                    return None
                files = ends or (files if by_name else [])
            if files:
                return _best(files, parts, path)
        return None

    def _is_beside(self, folders: Parts) -> bool:
        """Return whether the last of ``folders`` is one beside the root, such as that of another split."""
        if not folders or folders[-1] == ".." or _key(folders[-1]) == self._root_key:
            return False
        path = os.path.join(os.path.dirname(self._root), folders[-1])
        if path not in self._is_folder:
            self._is_folder[path] = os.path.isdir(path)
        return self._is_folder[path]

    def _check_unique(self, path: str, parts: Parts, file: str) -> None:
        """Raise ValueError if a path with other folders led to the same image: one of them is another image."""
        keys = _keys(parts)
        known = self._found.setdefault(file, keys)
        if known != keys and not _end_alike(known[:-1], keys[:-1]):
            raise ValueError(
                f"“{show(path)}” is not in the image folder, and the image {show(file)} has another path"
            )

    def _list(self) -> None:
        if self._is_listed:
            return
        self._is_listed = True
        for parent, files in walk(self._root, skips_hidden=True):
            inner = os.path.relpath(parent, self._root)
            folder = "" if inner == "." else f"{inner}/"
            for file in files:
                if os.path.islink(os.path.join(parent, file)):
                    continue
                key = _key(file)
                self._names.setdefault(key, []).append(folder + file)
                if key.endswith(EXTENSIONS):
                    self._stems.setdefault(os.path.splitext(key)[0], []).append(folder + file)


def _readings(path: str) -> list[str]:
    """Return possible meanings of ``path``: a path as written, a Windows path, or the path or file in a URL.

    Absolute paths begin with a slash.
    """
    paths = [path, path.replace("\\", "/")]
    if "?" in path or "%" in path or "://" in path:
        try:
            parts = urlsplit(path)
        except ValueError:
            return []
        paths = paths if "://" not in path else []
        paths += [unquote(parts.path), *parse_qs(parts.query).get("d", [])]
    return list(
        dict.fromkeys(_DRIVE.sub("/", item, count=1) if _DRIVE.match(item) else item for item in paths)
    )


def _best(candidates: Parts, wanted: Parts, path: str) -> str:
    """Return the only one of ``candidates`` with the most trailing folders of ``wanted``, also in upper and lower case.

    Raises ValueError if there are several.
    """
    if len(candidates) == 1:
        return candidates[0]
    keys = _keys(wanted)

    def agreement(file: str) -> tuple[int, int]:
        parts = file.split("/")
        return _agreement(_keys(parts)[:-1], keys[:-1]), _agreement(parts, wanted)

    counts = sorted(((agreement(file), file) for file in candidates), reverse=True)
    if counts[0][0] == counts[1][0]:
        raise ValueError(f"“{show(path)}” can be several images: {listed(sorted(candidates))}")
    return counts[0][1]


def _end_alike(one: Parts, other: Parts) -> bool:
    """Return whether the shorter path is the end of the longer one."""
    return _agreement(one, other) == min(len(one), len(other))


def _agreement(one: Parts, other: Parts) -> int:
    """Return the number of equal parts at the end of two paths."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _keys(parts: Parts) -> Parts:
    return list(map(_key, parts))


def _key(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
