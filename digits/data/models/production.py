"""Production models: stable names that map to snapshots of models.

They are stored in one file in the jobs folder, which only the server writes. Trainings read it to keep their snapshots
that are in production.
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
# Python and HTML read it alike.
NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}"


class Production(Struct, frozen=True):
    """The ``snapshot`` of the job ``model`` that serves a name, its ``epoch``, and the Unix time of its promotion."""

    model: Annotated[str, Meta(pattern=rf"^(?a:{ID})\Z")]
    snapshot: FileName
    epoch: float
    since: UnixTime


class _File(Struct):
    models: dict[str, Production] = field(default_factory=dict)


class ProductionModels:
    """The production models stored in ``folder``, reloaded only when the file changes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / FILE_NAME
        self._read: tuple[tuple[int, int], dict[str, Production]] | None = None

    def all(self) -> dict[str, Production]:
        """Return the production models by name, in alphabetical order. Raises UnreadableFile if the file is damaged."""
        try:
            stat = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return {}
        version = stat.st_mtime_ns, stat.st_size
        if self._read is None or self._read[0] != version:
            self._read = version, dict(sorted(read_json(self._path, _File).models.items()))
        return self._read[1]

    @property
    def exists(self) -> bool:
        """Whether there are any production models; true if the file is damaged."""
        try:
            return bool(self.all())
        except UnreadableFile:
            return True

    def of(self, model: str) -> dict[str, Production]:
        """Return the entries of a model by production name; empty if the file is damaged."""
        try:
            return {name: entry for name, entry in self.all().items() if entry.model == model}
        except UnreadableFile:
            return {}

    def snapshots_of(self, model: str) -> set[str]:
        """Return the names of the snapshots of a model that are in production; raises UnreadableFile."""
        return {entry.snapshot for entry in self.all().values() if entry.model == model}

    def promote(self, name: str, model: Production) -> None:
        """Serve ``name`` with ``model``, replacing any previous model.

        Raises ValueError if the name is invalid or there are too many names, UnreadableFile if the file is damaged, and
        OSError.
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(
                "The name is invalid. Use up to 64 letters, digits, dots, hyphens and underscores, starting with a "
                "letter, digit or underscore."
            )
        models = self.all()
        if name not in models and len(models) >= MAX_NAMES:
            raise ValueError(f"There are already {MAX_NAMES:,} production models. Remove one first.")
        self._save({**models, name: model})

    def remove(self, name: str) -> bool:
        """Remove ``name``; return False if it does not exist. Raises UnreadableFile and OSError."""
        models = self.all()
        if name not in models:
            return False
        self._save({other: model for other, model in models.items() if other != name})
        return True

    def _save(self, models: dict[str, Production]) -> None:
        write_json(self._path, _File(models))
        self._read = None
