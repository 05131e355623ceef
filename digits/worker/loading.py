"""Graphs and models that a network builds upon: loaded once, outside of the graphs it is built in."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf


def saved_model(export_dir: Any, tags: Any = None, options: Any = None) -> Any:
    """``tf.saved_model.load`` for a network; its variables stay as they are.

    A network is built several times, and loading makes variables: every build gets the same ones.
    """
    return _loaded(str(export_dir), tuple(tags) if isinstance(tags, (list, set, tuple)) else tags)


@functools.cache
def _loaded(folder: str, tags: Any) -> Any:
    # A thread of its own has no graph that is being built, and nobody there who answers for variables.
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(
            tf.saved_model.load, folder, list(tags) if isinstance(tags, tuple) else tags
        ).result()
