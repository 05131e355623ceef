"""Addresses of static files. They contain a digest of all files, so that browsers keep each file for a year."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from flask import Flask, Response
from markupsafe import Markup

A_YEAR_SECONDS = 365 * 24 * 3600
# The script of every page.
_EVERYWHERE = "js/page.js"
_IMPORT = re.compile(r"^(?:import|export) (?:[^;]*?\bfrom )?'(\.{1,2}/[\w./-]+)';", re.MULTILINE)


class Assets:
    """The static files of ``app``, below ``url_prefix``. With ``watch``, files may change."""

    def __init__(self, app: Flask, url_prefix: str, *, watch: bool = False) -> None:
        folder = Path(app.static_folder or "")
        self._app, self._prefix = app, url_prefix
        self._digest: Callable[[], str] = (
            partial(_stamp, folder) if watch else cache(partial(_digest, folder))
        )
        self._imports = partial(_imports, folder)
        # Return the elements that load a module, and at the same time all modules that it imports.
        self.script: Callable[[str], Markup] = self._script if watch else cache(self._script)
        # Relative addresses in scripts and styles inherit the digest.
        app.add_url_rule("/static/v-<digest>/<path:filename>", "versioned_static", self._send)

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return f"{self._prefix}/static/v-{self._digest()}/{name}"

    def _script(self, name: str) -> Markup:
        loaded = set() if name == _EVERYWHERE else self._imports_below(_EVERYWHERE)
        link = Markup('<link rel="modulepreload" href="{}">')
        links = [link.format(self.url(item)) for item in sorted(self._imports_below(name) - loaded)]
        return Markup("\n  ").join(
            [*links, Markup('<script type="module" src="{}"></script>').format(self.url(name))]
        )

    def _imports_below(self, name: str) -> set[str]:
        known, pending = set[str](), {name}
        while pending:
            pending = set.union(*map(self._imports, pending)) - known
            known |= pending
        return known

    def _send(self, digest: str, filename: str) -> Response:
        response = self._app.send_static_file(filename)
        if digest == self._digest():
            response.headers["Cache-Control"] = f"public, max-age={A_YEAR_SECONDS}, immutable"
        return response


def _digest(folder: Path) -> str:
    """Return a digest of the contents of all files."""
    return _hash(hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(folder))


def _stamp(folder: Path) -> str:
    """Return a digest of the times of all files, which is computed faster."""
    return _hash(str(path.stat().st_mtime_ns) for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:12]


def _imports(folder: Path, name: str) -> set[str]:
    """Return the names of the modules that the module ``name`` imports at its start."""
    imports = _IMPORT.findall((folder / name).read_text(encoding="utf-8"))
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), item)) for item in imports}
