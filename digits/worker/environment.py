"""The software and the machine that a task runs on, for reports."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

import tensorflow as tf

import digits

_PACKAGES = ("TensorFlow", "Keras", "NumPy")


def describe() -> dict[str, str]:
    """Return the versions of the main packages, and the names of the system, the processor and the visible GPUs."""
    gpus = [
        str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
        for gpu in tf.config.get_visible_devices("GPU")
    ]
    return {
        "DIGITS": digits.__version__,
        "Python": platform.python_version(),
        **{name: version(name.lower()) for name in _PACKAGES},
        "System": f"{platform.system()} {platform.machine()}",
        "Processor": machine(),
        **({"GPUs": ", ".join(gpus)} if gpus else {}),
    }


def machine() -> str:
    """Return the name of this machine's processor and the number of its cores."""
    try:
        name = re.search(r"^model name\s*:(.*\S)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        name = None
    return f"{name[1].strip() if name else 'unknown processor'}, {os.cpu_count()} cores"
