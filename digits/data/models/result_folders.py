"""Results of a model, such as evaluations: sub-folders of one folder of the model, each described by a JSON file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_json
from digits.data.arrays import MAX_ARRAY_BYTES, Shape, load_array

Result = TypeVar("Result", bound=Struct)

# Of a result that is named after its snapshot.
NAME = re.compile(r"(?a:[\w-][\w.-]{0,200})\Z")
# A running evaluation replaces its result every few seconds.
_ATTEMPTS = 5


class ArrayFormat(NamedTuple):
    """The type and the shape of an array; None for any type or side."""

    dtype: np.dtype[Any] | None
    shape: Shape


@dataclass(frozen=True)
class ResultFolders(Generic[Result]):
    """The results of the type ``result`` in the folder ``name``, each described by its ``file``.

    ``pattern`` matches the names of their folders, and ``noun`` is the word for one in messages. `load_all` sorts by
    ``key``, in ``reverse`` order if that is set. ``array_bytes`` is the maximum size of an array, and ``arrays``
    returns the type and shape of each array of a result, by file name.
    """

    name: str
    file: str
    result: type[Result]
    noun: str
    key: Callable[[Result], Any]
    reverse: bool = False
    pattern: re.Pattern[str] = NAME
    array_bytes: int = MAX_ARRAY_BYTES
    arrays: Callable[[Result], dict[str, ArrayFormat]] = lambda result: {}

    def folder_of(self, model_folder: Path, name: str) -> Path:
        """Return the folder of the result ``name``; raises UnreadableFile for an invalid name."""
        if not self.pattern.match(name):
            raise UnreadableFile(f"There is no {self.noun} called {name[:40]!r}")
        return model_folder / self.name / name

    def load(self, model_folder: Path, name: str) -> Result:
        """Load the description of the result ``name``; raises UnreadableFile."""
        return read_json(self.folder_of(model_folder, name) / self.file, self.result, below=model_folder)

    def load_all(self, model_folder: Path) -> list[Result]:
        """Load the descriptions of all results of a model, sorted, without those that are damaged."""
        folder, found = model_folder / self.name, []
        for path in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(UnreadableFile):  # being removed, or damaged
                found.append(self.load(model_folder, path.name))
        return sorted(found, key=self.key, reverse=self.reverse)

    def load_array(self, model_folder: Path, name: str, file_name: str) -> NDArray[Any]:
        """Load one of the arrays of a result; raises UnreadableFile, also if there is none like it."""
        (array,) = self.load_arrays(model_folder, name, file_name)
        return array

    def load_arrays(self, model_folder: Path, name: str, *file_names: str) -> list[NDArray[Any]]:
        """Load arrays of a result, all of the same state, though a later one may replace it; see `load_array`."""
        folder = self.folder_of(model_folder, name)
        for attempt in range(1, _ATTEMPTS + 1):
            result = self.load(model_folder, name)
            formats = self.arrays(result)
            try:
                arrays = [self._read(folder / file, model_folder, formats[file]) for file in file_names]
            except UnreadableFile:
                if attempt == _ATTEMPTS or self.load(model_folder, name) == result:
                    raise
            else:
                if self.load(model_folder, name) == result:
                    return arrays
        raise UnreadableFile(f"The {self.noun} {name} is replaced while it is read")

    def _read(self, path: Path, model_folder: Path, expected: ArrayFormat) -> NDArray[Any]:
        dtype, shape = expected
        return load_array(path, below=model_folder, max_bytes=self.array_bytes, dtype=dtype, shape=shape)
