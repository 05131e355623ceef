"""The TensorFlow 1 face of TensorFlow 2 that networks see, and the modules they may import.

A name such as ``tf.nn.dropout`` is looked up among our own stand-ins first, then in
``tf.compat.v1``, then in TensorFlow 2. Imports inside a network go through a private
``__import__``, so that ``import tensorflow as tf`` gives this face and not the real
module, without a trace in ``sys.modules``.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from digits.worker import functions, slim_repair, summaries, tower

v1 = tf.compat.v1


class Face(types.ModuleType):
    """A module made of others: its own names first, then those of each source in turn."""

    def __init__(self, name: str, *sources: Any, **own: Any) -> None:
        super().__init__(name)
        self.__dict__.update(own)
        self.__dict__["_sources"] = sources
        self.__dict__["__path__"] = []  # a package, so that its parts can be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            try:
                return getattr(source, name)
            except AttributeError:
                continue
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        raise AttributeError(f"TensorFlow has no {self.__name__.replace('tensorflow', 'tf', 1)}.{name}")


@functools.cache
def tensorflow() -> Face:
    """The face itself: what networks call ``tf``."""
    slim = slim_repair.install()
    face = Face(
        "tensorflow",
        v1,
        tf,
        layers=slim_repair.layer_functions(),
        summary=summaries.SummaryFunctions(),
        nn=_nn(),
        contrib=_contrib(slim),
        keras=tf.keras,
        data=tf.data,
        image=Face("tensorflow.image", v1.image, tf.image),
        math=Face("tensorflow.math", v1.math, tf.math),
        random=Face("tensorflow.random", v1.random, tf.random),
        histogram_fixed_width=_histogram_fixed_width,
        function=tf.function,
    )
    compat = Face("tensorflow.compat", tf.compat, v1=face)
    face.__dict__["compat"] = compat
    return face


def _nn() -> Face:
    from tensorflow.python.ops import rnn_cell

    return Face("tensorflow.nn", v1.nn, tf.nn, rnn_cell=rnn_cell)


def _contrib(slim: types.ModuleType) -> Face:
    from tensorflow.python.ops import rnn_cell

    nets = importlib.import_module("tf_slim.nets")
    layers = Face("tensorflow.contrib.layers", slim.layers, slim)
    rnn = Face("tensorflow.contrib.rnn", rnn_cell, v1.nn)
    framework = Face("tensorflow.contrib.framework", slim, v1)
    return Face(
        "tensorflow.contrib",
        layers=layers,
        rnn=rnn,
        framework=framework,
        slim=_slim(slim, nets),
        summary=summaries.SummaryFunctions(),
    )


def _slim(slim: types.ModuleType, nets: types.ModuleType) -> Face:
    # Networks reach the nets by the inner path of contrib too.
    inner = Face("tensorflow.contrib.slim.python.slim", slim, nets=nets)
    python = Face("tensorflow.contrib.slim.python", slim=inner)
    return Face("tensorflow.contrib.slim", slim, nets=nets, python=python)


def _histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = tf.int32, name: Any = None
) -> Any:
    # A float dtype was legal once and networks use it.
    return tf.cast(v1.histogram_fixed_width(values, value_range, nbins, tf.int32, name), dtype)


def namespace() -> dict[str, Any]:
    """The names that a network's text finds without importing anything."""
    import datetime
    import inspect
    import json
    import logging
    import math
    import os
    import time

    import numpy

    face = tensorflow()
    own_builtins = {**vars(builtins), "__import__": _importer(), "xrange": range}
    return {
        "__builtins__": own_builtins,
        "__name__": "network",
        "Tower": tower.Tower,
        "Model": tower.Tower,
        "model_property": tower.model_property,
        "tf": face,
        "slim": face.contrib.slim,
        "digits": functions,
        "keras": tf.keras,
        "tf_data": _module("tf_data"),
        "lr_policy": _module("lr_policy"),
        "np": numpy,
        "math": math,
        "os": os,
        "json": json,
        "time": time,
        "logging": logging,
        "inspect": inspect,
        "datetime": datetime,
    }


def _module(name: str, **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(names)
    return module


def _importer() -> Callable[..., Any]:
    """An ``__import__`` that answers for the modules DIGITS provides, and for TensorFlow."""
    face = tensorflow()
    own: dict[str, Any] = {
        "tensorflow": face,
        "tf_slim": face.contrib.slim,
        "model": _module("model", Tower=tower.Tower, Model=tower.Tower, model_property=tower.model_property),
        "utils": Face("utils", functions, model_property=tower.model_property),
        "digits": functions,
        "tf_data": _module("tf_data"),
        "lr_policy": _module("lr_policy"),
    }

    def importer(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        top, _, rest = name.partition(".")
        if level or top not in own:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = own[top]
        for part in rest.split(".") if rest else ():
            module = _part(module, part, name)
        for part in fromlist or ():
            if part != "*":
                _part(module, part, name)
        return module if fromlist else own[top]

    return importer


def _part(module: Any, part: str, wanted: str) -> Any:
    try:
        return getattr(module, part)
    except AttributeError:
        pass
    try:
        return importlib.import_module(f"{module.__name__}.{part}")
    except ImportError as error:
        raise ImportError(f"cannot import {part!r} from {wanted!r}", name=wanted) from error
