"""Production models: names with a stable address, each served by a snapshot of a model.

They are in one file in the jobs folder, written only by the server.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.job import ID
from digits.core.recipe import FileName
from digits.core.schema import UnixTime

FILE_NAME = "production.json"
MAX_NAMES = 1000
NAME = re.compile(r"(?a:[\w][\w.-]{0,63})\Z")


class Production(Struct, frozen=True):
    """The ``snapshot`` of ``model``, a job id, that serves a name; ``epoch`` is its epoch, ``since`` the promotion."""

    model: Annotated[str, Meta(pattern=rf"^(?a:{ID})\Z")]
    snapshot: FileName
    epoch: float
    since: UnixTime


class _File(Struct):
    models: dict[str, Production] = field(default_factory=dict)


class ProductionModels:
    """The production models in the file in ``folder``. They are read again only when the file changes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / FILE_NAME
        self._read: tuple[tuple[int, int], dict[str, Production]] | None = None

    def all(self) -> dict[str, Production]:
        """Return the production models by name, alphabetically; raises UnreadableFile if the file is damaged."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return {}
        version = found.st_mtime_ns, found.st_size
        if self._read is None or self._read[0] != version:
            self._read = version, dict(sorted(read_json(self._path, _File).models.items()))
        return self._read[1]

    @property
    def exists(self) -> bool:
        """Whether there are production models, or a damaged file of them."""
        try:
            return bool(self.all())
        except UnreadableFile:
            return True

    def names_of(self, model: str) -> list[str]:
        """Return the names that a model serves; none if the file is damaged."""
        try:
            return [name for name, found in self.all().items() if found.model == model]
        except UnreadableFile:
            return []

    def promote(self, name: str, model: Production) -> None:
        """Serve ``name`` with ``model``, instead of the present one if there is one.

        Raises ValueError for an invalid name or too many names, UnreadableFile for a damaged file, and OSError.
        """
        if not NAME.match(name):
            raise ValueError(
                "A name consists of at most 64 letters, digits, dots, hyphens and underscores, and starts with a "
                "letter, a digit or an underscore."
            )
        models = self.all()
        if name not in models and len(models) >= MAX_NAMES:
            raise ValueError(f"There are {MAX_NAMES:,} names already. Remove one first.")
        self._save({**models, name: model})

    def remove(self, name: str) -> bool:
        """Stop serving ``name``; return False if there is no such name. Raises UnreadableFile and OSError."""
        models = self.all()
        if name not in models:
            return False
        self._save({other: model for other, model in models.items() if other != name})
        return True

    def _save(self, models: dict[str, Production]) -> None:
        write_json(self._path, _File(models))
        self._read = None
