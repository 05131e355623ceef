"""Python packages that networks import, installed or not, and the import statements that they lack.

Standard library only; Keras is consulted only if it is already loaded.
"""

from __future__ import annotations

import importlib.util
import sys

# Packages that networks commonly import and that DIGITS does not install.
_PACKAGES = {
    "tensorpack": "Write the layers with tf.layers or slim, which have the same ones.",
    "tflearn": "Write the layers with tf.layers or tf.keras.layers.",
    "tensorlayer": "Write the layers with tf.layers or tf.keras.layers.",
    "sonnet": "Write the layers with tf.keras.layers.",
    "prettytensor": "Write the layers with tf.layers.",
    "tensorflow_probability": "Install it beside DIGITS, or implement the densities.",
    "tensorflow_addons": "Install it beside DIGITS, or use the layer of tf.keras.layers.",
    "nets": "Write from tensorflow.contrib.slim.nets import …",
    "keras_hub": "Install it beside DIGITS: pip install 'digits[vit]'.",
    "caffe": "Use a network for TensorFlow.",
    "torch": "Use a network for TensorFlow.",
    "mxnet": "Use a network for TensorFlow.",
}

# Modules, builtins and methods of Python 2, with their names in Python 3.
_PYTHON_3 = {
    "ConfigParser": "configparser",
    "Queue": "queue",
    "StringIO": "io.StringIO",
    "basestring": "str",
    "cPickle": "pickle",
    "cStringIO": "io",
    "has_key": "key in dict",
    "iteritems": "items",
    "iterkeys": "keys",
    "itervalues": "values",
    "izip": "zip",
    "long": "int",
    "maxint": "maxsize",
    "raw_input": "input",
    "reduce": "functools.reduce",
    "unichr": "chr",
    "unicode": "str",
    "urllib2": "urllib.request",
}


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


def name_in_python3(name: str) -> str:
    """Return the current name of something in Python 2 called ``name``, or ""."""
    return _PYTHON_3.get(name, "")


def is_installed(package: str) -> bool:
    """Whether the top-level module ``package`` is installed."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # such as __main__
        return False


def advice(name: str) -> str:
    """Return a hint for the import of ``name``, a package or module that is not installed."""
    top = name.partition(".")[0]
    if top != name and is_installed(top):
        return f"{top} is installed but has no {name}: check the spelling and the version that the network requires."
    if new := name_in_python3(name):
        return f"Write {new}: the name is that of Python 2."
    return _PACKAGES.get(
        top,
        f"Only installed packages can be imported by a network: install {top} beside DIGITS, "
        "or, if it is your own file, put its code into the network.",
    )


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
    if name in sys.stdlib_module_names or is_installed(name):
        return _write(f"import {name}")
    return advice(name) if name in _PACKAGES else ""


def _write(statement: str) -> str:
    package = statement.split()[1].partition(".")[0]
    if not is_installed(package):
        return advice(package)
    return f"Add {statement} at the top of the network."
