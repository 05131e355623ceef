"""Suggest the import statement for a library name that a network uses without importing it.

Standard library only; Keras is consulted only if it is already loaded.
"""

from __future__ import annotations

import sys

from digits.worker import packages

# Common aliases of libraries, and functions and classes that are usually imported individually.
_USUAL = {
    "plt": "import matplotlib.pyplot as plt",
    "pd": "import pandas as pd",
    "K": "from keras import backend as K",
    "layers": "from keras import layers",
    "Image": "from PIL import Image",
    "OrderedDict": "from collections import OrderedDict",
    "defaultdict": "from collections import defaultdict",
    "namedtuple": "from collections import namedtuple",
    "deepcopy": "from copy import deepcopy",
    "partial": "from functools import partial",
    "ops": "from tensorflow.python.framework import ops",
    "array_ops": "from tensorflow.python.ops import array_ops",
    "rnn_cell": "from tensorflow.contrib import rnn as rnn_cell",
    "xavier_initializer": "from tensorflow.contrib.layers import xavier_initializer",
}
_NETS = ("alexnet", "inception", "inception_v3", "overfeat", "resnet_v1", "resnet_v2", "vgg")


def statement_for(name: str, has_attributes: bool) -> str:
    """A hint for the undefined ``name``; empty if it does not belong to a library.

    ``has_attributes``: the network uses attributes of it, as of a module.
    """
    if name in _USUAL:
        return _write(_USUAL[name])
    if has_attributes and name in _NETS:
        return _write(f"from tensorflow.contrib.slim.nets import {name}")
    for module in ("keras", "keras.layers"):
        if isinstance(getattr(sys.modules.get(module), name, None), type):
            return _write(f"from {module} import {name}")
    if not has_attributes:
        return ""
    if name in sys.stdlib_module_names or packages.is_installed(name):
        return _write(f"import {name}")
    return packages.advice(name) if packages.is_known_package(name) else ""


def _write(statement: str) -> str:
    package = statement.split()[1].partition(".")[0]
    if not packages.is_installed(package):
        return packages.advice(package)
    return f"Add {statement} at the top of the network."
