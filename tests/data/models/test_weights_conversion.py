"""Converting the weights of other programs, in files as these programs write them."""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from digits.data.models.torch_file import read_torch
from digits.data.models.weights_conversion import read_efficientnet_lite, read_resnet50, write_keras

Array = NDArray[np.float32] | NDArray[np.int64]


class FloatStorage:
    """The type of a storage of PyTorch."""


class LongStorage:
    """The type of a storage of PyTorch."""


class Key(str):
    """The key of a storage, which a pickle contains as a persistent id."""


class Tensor:
    def __init__(self, key: str, array: Array) -> None:
        self._key, self._array = Key(key), array

    def __reduce__(self) -> object:
        strides = tuple(size // self._array.itemsize for size in self._array.strides)
        return _rebuild_tensor_v2, (self._key, 0, self._array.shape, strides, False, OrderedDict())


def _rebuild_tensor_v2() -> None:
    """The function of PyTorch that a pickle of a tensor calls."""


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pickles contain names of PyTorch."""
    for name, items in (("torch", (FloatStorage, LongStorage)), ("torch._utils", (_rebuild_tensor_v2,))):
        module = ModuleType(name)
        for item in items:
            monkeypatch.setattr(item, "__module__", name)
            setattr(module, item.__name__, item)
        monkeypatch.setitem(sys.modules, name, module)


def torch_file(arrays: dict[str, Array]) -> bytes:
    """Return ``arrays`` as PyTorch saved them before version 1.6."""
    file = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: object) -> object:
            if not isinstance(item, Key):
                return None
            kind = FloatStorage if arrays[item].dtype == np.float32 else LongStorage
            return "storage", kind, str(item), "cpu", arrays[item].size, None

    for head in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(head, file, protocol=2)
    Pickler(file, protocol=2).dump(OrderedDict((name, Tensor(name, array)) for name, array in arrays.items()))
    pickle.dump(list(arrays), file, protocol=2)
    for array in arrays.values():
        file.write(array.size.to_bytes(8, "little") + array.tobytes("A"))
    return file.getvalue()


def floats(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_a_checkpoint_of_pytorch_is_read_without_it() -> None:
    arrays: dict[str, Array] = {"a": floats(2, 3), "b": floats(4, 2).T, "n": np.array(7)}
    read = read_torch(torch_file(arrays))
    assert list(read) == list(arrays)
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())


def test_a_checkpoint_constructs_nothing_else() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"pathlib\.\w+ is not part of an array"):
        read_torch(pickle.dumps(Path("/")))


def test_layers_of_pytorch_become_layers_of_keras(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {
        "conv.weight": floats(4, 3, 5, 5),
        "bn0.weight": floats(4),
        "bn0.bias": floats(4),
        "bn0.running_mean": floats(4),
        "bn0.running_var": floats(4),
        "bn0.num_batches_tracked": np.array(7),
        "depthwise_conv.weight": floats(4, 1, 3, 3),
        "fc.weight": floats(2, 4),
        "fc.bias": floats(2),
    }
    write_keras(read_efficientnet_lite({"x.pth": torch_file(arrays)}), tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert list(file.attrs["layer_names"]) == ["conv", "bn0", "depthwise_conv", "fc"]
        assert list(file["bn0"].attrs["weight_names"]) == ["gamma", "beta", "moving_mean", "moving_variance"]
        assert list(file["fc"].attrs["weight_names"]) == ["kernel", "bias"]
        assert file["conv/kernel"].shape == (5, 5, 3, 4)
        assert file["depthwise_conv/kernel"].shape == (3, 3, 4, 1)
        assert np.array_equal(file["fc/kernel"], arrays["fc.weight"].T)
    assert [path.name for path in tmp_path.iterdir()] == ["x.h5"]


def test_resnet_of_tensorflow_js_has_the_order_and_the_epsilon_of_keras() -> None:
    names = ["res2a_branch2c", "res2a_branch1", "bn2a_branch2c", "bn2a_branch1"]
    config = {"layers": [{"config": {"name": name, "epsilon": 0.001}} for name in (*names, "relu")]}
    weights = [{"name": f"{name}/moving_variance", "shape": [2]} for name in names]
    manifest = [{"paths": ["a", "b"], "weights": weights}]
    spec = {"modelTopology": {"model_config": {"config": config}}, "weightsManifest": manifest}
    data = np.arange(8, dtype=np.float32).tobytes()
    read = read_resnet50({"model.json": json.dumps(spec).encode(), "a": data[:12], "b": data[12:]})
    assert list(read) == ["res2a_branch1", "res2a_branch2c", "bn2a_branch1", "bn2a_branch2c"]
    assert read["res2a_branch1"]["moving_variance"] == pytest.approx([2.00099, 3.00099], abs=1e-6)
