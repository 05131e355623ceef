"""Models and values that a network loads itself: once, outside of the graphs in which it is built."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from digits.worker.network.variables import set_once


def saved_model(export_dir: Any, tags: Any = None, options: Any = None) -> Any:
    """``tf.saved_model.load`` for a network. All builds of the network share the variables of the loaded model."""
    return _load(str(export_dir), tuple(tags) if isinstance(tags, (list, set, tuple)) else tags)


@functools.cache
def _load(folder: str, tags: Any) -> Any:
    # Another thread has no graph under construction and no variable creators.
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(
            tf.saved_model.load, folder, list(tags) if isinstance(tags, tuple) else tags
        ).result()


class Saver:
    """``tf.train.Saver`` for a network: `restore` assigns values once; `save` does nothing."""

    def __init__(self, var_list: Any = None, *args: Any, **kwargs: Any) -> None:
        self._variables = var_list

    def restore(self, sess: Any, save_path: Any) -> None:
        wanted = tf.compat.v1.global_variables() if self._variables is None else self._variables
        load_values(save_path, wanted)

    def save(self, sess: Any, save_path: Any, *args: Any, **kwargs: Any) -> str:
        return str(save_path)


def load_values(path: Any, variables: Any, ignore_missing: bool = False) -> None:
    """Assign values of the checkpoint ``path``, once, to a list of variables or a dict of them by checkpoint name.

    Variables that are not in the checkpoint raise an error, or keep their values with ``ignore_missing``.
    """
    named = variables if isinstance(variables, dict) else {item.op.name: item for item in variables}
    reader = tf.train.load_checkpoint(str(path))
    for name, given in named.items():
        if ignore_missing and not reader.has_tensor(name.removesuffix(":0")):
            continue
        variable: Any = getattr(given, "master", given)
        with set_once(variable) as is_first:
            if is_first:
                variable.assign(reader.get_tensor(name.removesuffix(":0")))


def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Any) -> None:
    """Implement ``tf.train.init_from_checkpoint``: maps names or scopes (``"a/": "b/"``) to variables, names or
    scopes.
    """
    known = {item.op.name: item for item in tf.compat.v1.global_variables()}
    shapes = tf.train.load_checkpoint(str(ckpt_dir_or_file)).get_variable_to_shape_map()
    pairs = assignment_map.items() if isinstance(assignment_map, dict) else assignment_map
    for old, new in pairs:
        if not isinstance(new, str):
            load_values(ckpt_dir_or_file, {old: new})
        elif not old.endswith("/"):
            load_values(ckpt_dir_or_file, {old: known[new] if new in known else known[_add_scope(new)]})
        else:
            for name, variable in known.items():
                inner = _below(name, new)
                prefix = old.removeprefix("/")
                if inner and f"{prefix}{inner}" in shapes:
                    load_values(ckpt_dir_or_file, {f"{prefix}{inner}": variable})


def _below(name: str, scope: str) -> str:
    """Return the part of ``name`` below ``scope``, which may be relative to the current scope; "" if it is
    elsewhere.
    """
    for prefix in (scope.removeprefix("/"), _add_scope(scope.removeprefix("/"))):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""


def _add_scope(name: str) -> str:
    scope = tf.compat.v1.get_variable_scope().name
    return f"{scope}/{name}" if scope else name


def assign_from_checkpoint_fn(model_path: Any, var_list: Any, ignore_missing_vars: bool = False) -> Any:
    """Implement ``slim.assign_from_checkpoint_fn``: return a function of a session that restores the variables."""
    return lambda session=None: load_values(model_path, var_list, ignore_missing_vars)


def assign_from_checkpoint(model_path: Any, var_list: Any, ignore_missing_vars: bool = False) -> Any:
    """Implement ``slim.assign_from_checkpoint``: restore immediately; the returned operation does nothing."""
    load_values(model_path, var_list, ignore_missing_vars)
    return tf.no_op(), {}


def train() -> dict[str, Any]:
    """Return the functions for ``tf.train``, by name."""
    return {"Saver": Saver, "init_from_checkpoint": init_from_checkpoint}


def framework() -> dict[str, Any]:
    """Return the functions for ``tf.contrib.framework`` and slim, by name."""
    return {
        "init_from_checkpoint": init_from_checkpoint,
        "assign_from_checkpoint": assign_from_checkpoint,
        "assign_from_checkpoint_fn": assign_from_checkpoint_fn,
    }
