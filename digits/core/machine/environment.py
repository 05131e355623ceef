"""The environment variables that programs started by the server inherit.

Exact names only: a prefix such as ``TF_`` or ``NVIDIA_`` would also cover access tokens
(``TF_TOKEN_…``, ``NVIDIA_API_KEY``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# The setting ``max_image_pixels``, which the server passes to all programs that decode images.
MAX_IMAGE_PIXELS = "DIGITS_MAX_IMAGE_PIXELS"
DEFAULT_MAX_IMAGE_PIXELS = 50_000_000
# General variables needed by programs.
SYSTEM_VARIABLES = (
    *"PATH HOME LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME TZ TMPDIR "
    "VIRTUAL_ENV PYTHONPATH LD_LIBRARY_PATH".split(),
    MAX_IMAGE_PIXELS,
)
# Variables that affect TensorFlow's computation.
COMPUTE_VARIABLES = tuple(
    "CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_CACHE_PATH CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_HOME "
    "CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY CUDA_PATH "
    "CUDA_VISIBLE_DEVICES KERAS_HOME NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES "
    "OMP_DYNAMIC OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_STACKSIZE OMP_WAIT_POLICY "
    "TF_CPP_MAX_VLOG_LEVEL TF_CPP_MIN_LOG_LEVEL TF_CPP_VMODULE TF_CUDNN_DETERMINISTIC TF_CUDNN_USE_AUTOTUNE "
    "TF_CUDNN_USE_FRONTEND TF_DETERMINISTIC_OPS TF_ENABLE_ONEDNN_OPTS TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_ALLOCATOR "
    "TF_GPU_THREAD_COUNT TF_GPU_THREAD_MODE TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS TF_XLA_FLAGS "
    "XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XLA_FLAGS".split()
)
TASK_VARIABLES = (*SYSTEM_VARIABLES, *COMPUTE_VARIABLES)


def max_image_pixels() -> int:
    """Return the setting ``max_image_pixels`` of the server that started this process."""
    return int(os.environ.get(MAX_IMAGE_PIXELS) or DEFAULT_MAX_IMAGE_PIXELS)


def inherited(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables of ``environment`` with these ``names``.

    Relative folders in ``PYTHONPATH`` become absolute, because the program may start in a
    folder whose modules it must not import.
    """
    kept = {name: environment[name] for name in names if name in environment}
    if "PYTHONPATH" in kept:
        folders = filter(None, kept["PYTHONPATH"].split(os.pathsep))
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders))
    return kept


def for_program(kept: Mapping[str, str]) -> dict[str, str]:
    """Return the variables ``kept`` for a program of this package that starts in another folder."""
    path = [
        str(Path(__file__).resolve().parents[3]),
        *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}
