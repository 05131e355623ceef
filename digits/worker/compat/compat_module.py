"""The TensorFlow 1 face of TensorFlow 2 that networks see, and the modules they may import.

A name such as ``tf.nn.dropout`` is looked up among our own stand-ins first, then in
``tf.compat.v1``, then in TensorFlow 2. Imports inside a network go through a private
``__import__``, so that ``import tensorflow as tf`` gives this face and not the real
module, without a trace in ``sys.modules``.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from digits.worker.compat import (
    compat_ops,
    contrib_cells,
    contrib_distributions,
    contrib_image,
    contrib_layers,
    contrib_lookup,
    contrib_sequences,
    hints,
    keras1,
    missing_modules,
    python2,
    slim_patches,
)
from digits.worker.failure import NETWORK_FILE
from digits.worker.network import api, fused_norm, loading, summaries, tower
from digits.worker.precision import autocast, full_precision

v1 = tf.compat.v1


class Face(types.ModuleType):
    """A module made of others: its own names first, then those of each source in turn."""

    def __init__(self, name: str, *sources: Any, **own: Any) -> None:
        super().__init__(name)
        self.__dict__.update(own)
        self.__dict__["_sources"] = sources
        self.__dict__["__path__"] = []  # a package, so that its parts can be imported

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # what `from module import *` takes
            return [item for item in dir(self) if not item.startswith("_") and hasattr(self, item)]
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        for source in self._sources:
            try:
                return getattr(source, name)
            except AttributeError:
                continue
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        raise hints.MissingName(self.__name__, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *(item for source in self._sources for item in dir(source))})


class _Contrib(Face):
    """A part of ``tensorflow.contrib``. Its inner modules, which have left, are the part itself."""

    def __getattr__(self, name: str) -> Any:
        if name in ("python", "ops", "api", self.__name__.rpartition(".")[2]):
            return self
        return super().__getattr__(name)


@functools.cache
def tensorflow() -> Face:
    """The face itself: what networks call ``tf``."""
    slim = slim_patches.install()
    keras1.install()
    fused_norm.install()
    face = Face(
        "tensorflow",
        v1,
        tf,
        **compat_ops.top(),
        **{name: full_precision.in_float32(getattr(v1, name)) for name in _IN_PYTHON},
        **_with_one_type(v1),
        layers=slim_patches.layer_functions(),
        summary=summaries.SummaryFunctions(),
        nn=_nn(),
        contrib=_contrib(slim),
        losses=Face(
            "tensorflow.losses", v1.losses, tf.losses, **full_precision.functions_in_float32(v1.losses)
        ),
        distributions=_distributions(),
        data=Face("tensorflow.data", v1.data, tf.data),
        train=Face("tensorflow.train", v1.train, tf.train, **compat_ops.train(), **loading.train()),
        image=Face("tensorflow.image", v1.image, tf.image, **compat_ops.image()),
        math=Face("tensorflow.math", v1.math, tf.math, **_with_one_type(v1.math), **compat_ops.math()),
        random=Face("tensorflow.random", v1.random, tf.random),
        linalg=Face("tensorflow.linalg", v1.linalg, tf.linalg, **_with_one_type(v1.linalg)),
        signal=Face(
            "tensorflow.signal", v1.signal, tf.signal, **full_precision.functions_in_float32(tf.signal)
        ),
        saved_model=Face("tensorflow.saved_model", v1.saved_model, tf.saved_model, load=loading.saved_model),
        estimator=Face("tensorflow.estimator", ModeKeys=compat_ops.ModeKeys),
    )
    face.__dict__["keras"] = _Keras("tensorflow.keras", face, tf.keras, keras)
    face.__dict__["compat"] = Face("tensorflow.compat", tf.compat, v1=face, v2=tf.compat.v2)
    face.contrib.__dict__["keras"] = face.keras
    face.__dict__["python"] = _Internal("tensorflow.python", face)
    return face


# Functions of NumPy work with float32.
_IN_PYTHON = ("py_func", "py_function", "numpy_function")

# Functions that compare the types of their tensors themselves.
_COMPARING = ("accumulate_n", "div_no_nan", "divide_no_nan", "matmul", "multiply_no_nan", "one_hot")


def _with_one_type(module: Any) -> dict[str, Any]:
    names = (name for name in _COMPARING if hasattr(module, name))
    return {name: autocast.with_one_type(getattr(module, name)) for name in names}


# Losses below ``tf.nn``, which half precision would make wrong.
_LOSSES = (
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits",
    "sigmoid_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
    "log_poisson_loss",
    "l2_loss",
    "ctc_loss",
    "ctc_loss_v2",
    "nce_loss",
    "sampled_softmax_loss",
)

# What GPUs know in float32 only.
_FULL_ONLY = ("lrn", "local_response_normalization")


def _nn() -> Face:
    own = {**{name: getattr(v1.nn, name) for name in (*_LOSSES, *_FULL_ONLY)}, **compat_ops.nn()}
    own.update({name: full_precision.in_float32(own[name]) for name in _LOSSES})
    own.update({name: full_precision.through_float32(own[name]) for name in _FULL_ONLY})
    return Face("tensorflow.nn", v1.nn, tf.nn, rnn_cell=_rnn_cell(), seq2seq=_legacy_seq2seq(), **own)


def _legacy_seq2seq() -> Face:
    return _Contrib("tensorflow.contrib.legacy_seq2seq", **contrib_sequences.legacy_seq2seq())


def _rnn_cell() -> Face:
    from tensorflow.python.ops import rnn_cell

    return Face("tensorflow.nn.rnn_cell", rnn_cell, **contrib_cells.names())


def _distributions() -> Face:
    return _Contrib("tensorflow.contrib.distributions", v1.distributions, **contrib_distributions.names())


def _contrib(slim: types.ModuleType) -> Face:
    nets = importlib.import_module("tf_slim.nets")
    step = dict.fromkeys(
        ("get_or_create_global_step", "get_global_step", "create_global_step"), compat_ops.global_step
    )
    names = {
        "layers": _Contrib("tensorflow.contrib.layers", slim.layers, slim, **slim_patches.contrib_layers()),
        "rnn": _Contrib("tensorflow.contrib.rnn", _rnn_cell(), v1.nn),
        "framework": _Contrib(
            "tensorflow.contrib.framework",
            slim,
            v1,
            **step,
            **contrib_layers.framework(),
            **loading.framework(),
        ),
        "slim": _slim(slim, nets),
        "losses": _losses(slim),
        "metrics": _Contrib(
            "tensorflow.contrib.metrics", slim.metrics, v1.metrics, **contrib_layers.metrics()
        ),
        "seq2seq": _Contrib("tensorflow.contrib.seq2seq", **contrib_sequences.seq2seq()),
        "legacy_seq2seq": _legacy_seq2seq(),
        "crf": _Contrib("tensorflow.contrib.crf", **contrib_sequences.crf()),
        "lookup": _Contrib("tensorflow.contrib.lookup", tf.lookup, **contrib_lookup.names()),
        "learn": _Contrib("tensorflow.contrib.learn", ModeKeys=compat_ops.ModeKeys),
        "training": _Contrib(
            "tensorflow.contrib.training",
            HParams=compat_ops.HParams,
            **{name: getattr(slim.learning, name) for name in _OF_LEARNING},
        ),
        "opt": _Contrib("tensorflow.contrib.opt", compat_ops.OtherOptimizers()),
        "cudnn_rnn": _Contrib("tensorflow.contrib.cudnn_rnn", **contrib_cells.cudnn()),
        "ctc": _Contrib("tensorflow.contrib.ctc", v1.nn),
        "image": _Contrib("tensorflow.contrib.image", **contrib_image.names()),
        "resampler": _Contrib("tensorflow.contrib.resampler", resampler=contrib_image.resampler),
        "signal": _Contrib("tensorflow.contrib.signal", tf.signal),
        "linalg": _Contrib(
            "tensorflow.contrib.linalg",
            tf.linalg,
            LinearOperatorTriL=tf.linalg.LinearOperatorLowerTriangular,
            LinearOperatorMatrix=tf.linalg.LinearOperatorFullMatrix,
            LinearOperatorUDVHUpdate=tf.linalg.LinearOperatorLowRankUpdate,
        ),
        "distributions": _distributions(),
        "nn": _Contrib("tensorflow.contrib.nn", v1.nn, alpha_dropout=contrib_layers.alpha_dropout),
        "deprecated": _Contrib("tensorflow.contrib.deprecated", **compat_ops.old_summaries()),
        "summary": summaries.SummaryFunctions(),
        "tensorboard": _tensorboard(),
        "util": _Contrib("tensorflow.contrib.util", v1, tf, constant_value=tf.get_static_value),
    }
    return Face("tensorflow.contrib", **names)


# What slim.learning shares with tf.contrib.training.
_OF_LEARNING = ("add_gradients_summaries", "clip_gradient_norms", "create_train_op", "multiply_gradients")


def _tensorboard() -> Face:
    name = "tensorflow.contrib.tensorboard.plugins"
    projector = Face(f"{name}.projector", _Projector(), visualize_embeddings=lambda *args: None)
    return _Contrib("tensorflow.contrib.tensorboard", plugins=_Contrib(name, projector=projector))


class _Projector:
    """The records of TensorBoard's projector, for networks that describe their embeddings to it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("tensorboard.plugins.projector"), name)


@functools.cache
def _losses(slim: types.ModuleType) -> Face:
    in_full = types.SimpleNamespace(**full_precision.functions_in_float32(slim.losses))
    name = "tensorflow.contrib.losses"
    metric_learning = _Contrib(f"{name}.metric_learning", slim.losses.metric_learning)
    own = contrib_layers.losses(in_full)
    return _Contrib(name, slim.losses, metric_learning=metric_learning, **own)


def _slim(slim: types.ModuleType, nets: types.ModuleType) -> Face:
    # Networks reach the nets by the inner path of contrib too.
    own = {
        "nets": nets,
        "losses": _losses(slim),
        "get_or_create_global_step": compat_ops.global_step,
        "get_global_step": compat_ops.global_step,
        **slim_patches.contrib_layers(),
        **loading.framework(),
    }
    inner = Face("tensorflow.contrib.slim.python.slim", slim, **own)
    python = Face("tensorflow.contrib.slim.python", slim=inner)
    return Face("tensorflow.contrib.slim", slim, python=python, **own)


class _Internal(Face):
    """A module below ``tensorflow.python``: its own names, and those that it once had.

    What has moved is found where the same names are today; Keras' are those of Keras 3.
    """

    def __init__(self, name: str, face: Any) -> None:
        try:
            source = importlib.import_module(name)
        except ImportError:
            source = types.ModuleType(name)
        super().__init__(name, source)
        self.__dict__["_face"] = face

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full == "tensorflow.python.keras":
            return self._face.keras
        found = self._sources[0].__dict__.get(name)
        if isinstance(found, types.ModuleType) or (found is None and _is_module(full)):
            inner = found if found is not None and found.__name__ != full else None
            part = inner or _Internal(full, self._face)
            self.__dict__[name] = part
            return part
        for source in (self._sources[0], *self._moved()):
            # What TensorFlow loads when it is asked for may be of Keras 2, which is not installed.
            with contextlib.suppress(AttributeError, ImportError):
                return getattr(source, name)
        raise hints.MissingName(self.__name__, name)

    def _moved(self) -> list[Any]:
        """Where the names of this module may be today."""
        last = self.__name__.rpartition(".")[2]
        face = self._face
        known = {
            "rnn": types.SimpleNamespace(rnn=face.nn.rnn, bidirectional_rnn=face.nn.bidirectional_rnn),
            "rnn_cell": face.nn.rnn_cell,
            "rnn_cell_impl": face.nn.rnn_cell,
            "layers": face.layers,
            "normalization": face.layers,
            "function": types.SimpleNamespace(Defun=face.Defun),
        }
        return [known.get(last, face), face.nn, face]


class _Keras(Face):
    """A module of Keras: that of `tf.keras`, of Keras 3, and what they have no more.

    What were modules inside of it, such as ``layers.core`` or ``engine``, is the module itself.
    """

    def __init__(self, name: str, face: Any, *sources: Any) -> None:
        super().__init__(name, *sources, **keras1.names(name.rpartition(".")[2], face))
        self.__dict__["_face"] = face

    def __getattr__(self, name: str) -> Any:
        try:
            found = super().__getattr__(name)
        except hints.MissingName:
            if name in _INSIDE_KERAS:
                return self
            if name == "objectives":
                return self.losses
            raise
        if isinstance(found, types.ModuleType) and not isinstance(found, Face):
            parts = [getattr(source, name) for source in self._sources if hasattr(source, name)]
            found = self.__dict__[name] = _Keras(f"{self.__name__}.{name}", self._face, *parts)
        return found


_INSIDE_KERAS = set(
    "_impl advanced_activations api base_layer conv_utils convolutional core embeddings engine experimental "
    "input_layer keras merge network noise normalization np_utils pooling preprocessing python recurrent "
    "tensorflow_backend topology training wrappers".split()
)


@functools.cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def namespace(missing: missing_modules.Imports | None = None) -> dict[str, Any]:
    """The global names of a network's text. ``missing`` records its imports of packages that are not installed."""
    import datetime
    import inspect
    import json
    import logging
    import math
    import os
    import time

    import numpy

    python2.restore_aliases()
    python2.let_tensors_be_keys()
    face = tensorflow()
    own_builtins = {
        **vars(builtins),
        **python2.names(),
        "__import__": _importer(missing or missing_modules.Imports()),
    }
    return {
        "__builtins__": own_builtins,
        "__name__": "network",
        "__file__": NETWORK_FILE,
        "Tower": tower.Tower,
        "Model": tower.Tower,
        "model_property": tower.model_property,
        "tf": face,
        "slim": face.contrib.slim,
        "digits": api,
        "keras": face.keras,
        "FLAGS": compat_ops.FLAGS,
        "template": face.python.ops.template,
        "timeline": face.python.client.timeline,
        "device_lib": face.python.client.device_lib,
        "file_io": face.python.lib.io.file_io,
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


def _importer(missing: missing_modules.Imports) -> Callable[..., Any]:
    """An ``__import__`` that answers for the modules DIGITS provides, and for TensorFlow."""
    face = tensorflow()
    own: dict[str, Any] = {
        "tensorflow": face,
        "tf_slim": face.contrib.slim,
        "keras": face.keras,
        "model": _module("model", Tower=tower.Tower, Model=tower.Tower, model_property=tower.model_property),
        "utils": Face("utils", api, model_property=tower.model_property, tf=face),
        "digits": api,
        "tf_data": _module("tf_data"),
        "lr_policy": _module("lr_policy"),
    }

    def importer(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        top, _, rest = name.partition(".")
        if level or top not in own:
            return _other(missing, name, globals, locals, fromlist, level)
        module = own[top]
        for part in rest.split(".") if rest else ():
            module = _part_or_absent(module, part, name)
        for part in fromlist or ():
            if part != "*":
                _part_or_absent(module, part, name)
            elif isinstance(module, missing_modules.Absent):
                module.check(at_once=True)
        return module if fromlist else own[top]

    return importer


def _other(
    missing: missing_modules.Imports, name: str, globals: Any, locals: Any, fromlist: Any, level: int
) -> Any:
    """Any other module; those of Python 2 under the names they have today."""
    try:
        return builtins.__import__(name, globals, locals, fromlist, level)
    except ModuleNotFoundError as error:
        found = None if level else python2.module(name)
        if found is not None:
            return found
        if error.name and name.partition(".")[0] == error.name.partition(".")[0]:
            return missing.import_missing(name, fromlist, error.name)
        raise


def _part_or_absent(module: Any, part: str, wanted: str) -> Any:
    if isinstance(module, missing_modules.Absent):
        return module.part(part)
    try:
        found = _part(module, part, wanted)
    except MissingPart as error:
        found = missing_modules.in_place_of(wanted, error)
        setattr(module, part, found)  # where the import looks for it
    if isinstance(found, missing_modules.Absent):
        found.check()
    return found


def _part(module: Any, part: str, wanted: str) -> Any:
    try:
        return getattr(module, part)
    except AttributeError:
        pass
    if isinstance(module, _Contrib) and ".python" in wanted:
        module.__dict__[part] = module  # an inner module, whose names are those of the whole
        return module
    try:
        return importlib.import_module(f"{module.__name__}.{part}")
    except ImportError as error:
        raise MissingPart(part, wanted) from error


class MissingPart(ImportError):
    """Something below TensorFlow that is not there."""

    def __init__(self, part: str, wanted: str) -> None:
        super().__init__(f"cannot import {part!r} from {wanted!r}", name=wanted)
        path = wanted if wanted.endswith(part) else f"{wanted}.{part}"
        self.hint = hints.instead(path.removeprefix("tensorflow."))
