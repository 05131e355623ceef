"""Find images by the paths in annotation files, which often come from another computer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from digits.core.files import walk
from digits.data.images import EXTENSIONS
from digits.data.sources import path_below

# Label Studio puts the first eight digits of a UUID before the name of an uploaded file.
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-(?=.)")


class ImageFinder:
    """The images below ``root``, listed at the first search."""

    def __init__(self, root: Path | str) -> None:
        self._root = os.path.realpath(root)
        self._paths: dict[str, list[str]] | None = None

    def find(self, path: str) -> str | None:
        """Return the image below the root whose path ends like ``path``, relative to the root.

        ``path`` can be a path on another computer or a URL, such as ``/data/upload/3/0a1b2c3d-rose.jpg`` or
        ``/data/local-files/?d=roses/1.jpg``. Of several images with the same name, the one that also has the same
        parent folders is returned; None if that does not distinguish them. A relative path whose folder is below
        the root is not searched elsewhere: that image is missing, and one in another folder is a different one.
        """
        folder = os.path.dirname(path)
        if folder and not os.path.isabs(path) and os.path.isdir(os.path.join(self._root, folder)):
            return None
        for wanted in _readings(path):
            name = os.path.basename(wanted)
            for candidate in dict.fromkeys((name, _UPLOAD_PREFIX.sub("", name, count=1))):
                found = self._named(candidate)
                if len(found) == 1:
                    return found[0]
                if found and (best := _best(found, wanted)):
                    return best
        return None

    def locate(self, name: str) -> str:
        """Return the path of an image below the root: as written, or else that which `find` returns.

        A path without an image is returned as written. Raises ValueError for one outside the root without an image.
        """
        try:
            path = path_below(self._root, name)
        except ValueError:
            if similar := self.find(name):
                return similar
            raise
        return path if os.path.exists(os.path.join(self._root, path)) else self.find(name) or path

    def _named(self, name: str) -> list[str]:
        if self._paths is None:
            self._paths = {}
            for parent, files in walk(self._root, skips_hidden=True):
                for file in files:
                    if file.lower().endswith(EXTENSIONS) and not os.path.islink(os.path.join(parent, file)):
                        inner = os.path.relpath(os.path.join(parent, file), self._root)
                        self._paths.setdefault(file, []).append(inner)
        return self._paths.get(name, [])


def _readings(path: str) -> list[str]:
    """Return possible meanings of ``path``: a path as written, a Windows path, or the path or file in a URL."""
    found = [path, path.replace("\\", "/")]
    if "?" in path or "%" in path:
        try:
            parts = urlsplit(path)
        except ValueError:
            return found
        found += [unquote(parts.path), *parse_qs(parts.query).get("d", [])]
    return [item for item in dict.fromkeys(found) if os.path.basename(item)]


def _best(found: list[str], wanted: str) -> str | None:
    """Return the only item in ``found`` whose trailing folders match ``wanted``."""
    parts = wanted.split("/")[::-1]

    def agreement(path: str) -> int:
        pairs = zip(path.split("/")[::-1], parts, strict=False)
        return next((place for place, (one, other) in enumerate(pairs) if one != other), len(parts))

    counts = sorted(((agreement(path), path) for path in found), reverse=True)
    return counts[0][1] if counts[0][0] > counts[1][0] else None
