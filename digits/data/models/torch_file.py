"""Read the arrays of a checkpoint of PyTorch, in the format before version 1.6, without PyTorch."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The format begins with four pickles: a magic number, the version, facts about the machine, and the arrays.
_PICKLES_BEFORE_ARRAYS = 3
_TYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}


def read_torch(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a state dictionary by name.

    Nothing but arrays of float32 and int64 is constructed. Raises pickle.UnpicklingError for other content.
    """
    file = io.BytesIO(data)
    storages: dict[str, NDArray[Any]] = {}
    for _ in range(_PICKLES_BEFORE_ARRAYS):
        _Unpickler(file, storages).load()
    arrays = _Unpickler(file, storages).load()
    for key in _Unpickler(file, storages).load():
        storage = storages[key]
        assert int.from_bytes(file.read(8), "little") == storage.size
        storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return dict(arrays)


class _Unpickler(pickle.Unpickler):
    """Creates ``storages``, whose contents follow in the file, and arrays that are views of them."""

    def __init__(self, file: io.BytesIO, storages: dict[str, NDArray[Any]]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Callable[..., Any] | str] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _view,
            **{("torch", storage): kind for storage, kind in _TYPES.items()},
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array.")
        return known[module, name]

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        _, kind, key, _, size, _ = pid
        return self._storages.setdefault(key, np.empty(size, kind))


def _view(storage: NDArray[Any], offset: int, shape: Any, strides: Any, *_: Any) -> NDArray[Any]:
    bytes_between = [stride * storage.itemsize for stride in strides]
    return np.ndarray(shape, storage.dtype, storage, offset * storage.itemsize, bytes_between)
