"""Python packages that networks import, installed or not.

Standard library only.
"""

from __future__ import annotations

import importlib.util

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


def name_in_python3(name: str) -> str:
    """Return the current name of something in Python 2 called ``name``, or ""."""
    return _PYTHON_3.get(name, "")


def is_installed(package: str) -> bool:
    """Whether the top-level module ``package`` is installed."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # such as __main__
        return False


def is_known_package(name: str) -> bool:
    """Whether ``name`` is a package that networks commonly use but DIGITS does not install."""
    return name in _PACKAGES


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
