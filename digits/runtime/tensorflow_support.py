"""Check whether tasks can use TensorFlow, without importing it, which would cost seconds and memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import NamedTuple

REMEDY = (
    'Install it into the environment of this server: pip install "tensorflow>=2.21,<2.22" "tf-slim==1.1.0"'
)


class TensorFlowSupport(NamedTuple):
    """The availability of TensorFlow; ``reason`` and ``remedy`` are sentences for the user, empty if available."""

    available: bool
    reason: str = ""
    remedy: str = ""


def find_tensorflow(find: Callable[[str], ModuleSpec | None] = importlib.util.find_spec) -> TensorFlowSupport:
    """Return whether the modules that the worker imports are installed. ``find`` looks up a module by name."""
    for module in ("tensorflow", "tf_slim"):
        spec = find(module)
        if spec is None:
            return TensorFlowSupport(False, f"The Python module {module} is not installed.", REMEDY)
        if spec.origin is None:
            # An interrupted uninstall leaves a folder that imports as an empty module.
            reason = f"The Python module {module} is damaged: its folder contains no code."
            return TensorFlowSupport(False, reason, REMEDY)
    return TensorFlowSupport(True)
