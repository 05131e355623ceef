"""Run an exported file in its own runtime, without TensorFlow or DIGITS.

Usage: ``python runtime_program.py RUNTIME FILE INPUTS OUTPUTS BATCH``. RUNTIME is ``litert`` or ``onnx``. INPUTS is a
``.npy`` file, float32 [images, ...]; OUTPUTS is the ``.npz`` file to write. Prints the measurements and the name of the
runtime as JSON. On failure, prints the error to standard error on one line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

Call = Callable[[NDArray[np.float32]], dict[str, NDArray[Any]]]


def measure(
    call: Call, inputs: NDArray[np.float32], batch: int
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Run a model on all ``inputs`` in batches of ``batch``; return its outputs and measurements.

    The measurements are ``milliseconds``, the median time per image, and ``any_batch``, whether a larger batch gives
    the same outputs. The number of inputs must be a multiple of ``batch``.
    """
    call(inputs[:batch])  # warm-up
    seconds, parts = [], []
    for start in range(0, len(inputs), batch):
        began = time.perf_counter()
        parts.append(call(inputs[start : start + batch]))
        seconds.append(time.perf_counter() - began)
    outputs = {
        name: np.concatenate([np.atleast_1d(np.array(part[name])) for part in parts]) for name in parts[0]
    }
    # The median is robust to brief interruptions by other programs.
    facts = {
        "milliseconds": 1000 * float(np.median(seconds)) / batch,
        "any_batch": _accepts_more(call, inputs, batch, parts[0]),
    }
    return outputs, facts


def _accepts_more(
    call: Call, inputs: NDArray[np.float32], batch: int, first: dict[str, NDArray[Any]]
) -> bool:
    more = inputs[np.arange(batch + 1) % len(inputs)]
    try:
        values = call(more)
    except Exception:  # each runtime has its own
        return False
    return all(
        len(np.atleast_1d(values[name])) == len(more)
        and np.allclose(np.atleast_1d(values[name])[:batch], value, 1e-3, 1e-3 * _size(value))
        for name, value in first.items()
    )


def _size(value: NDArray[Any]) -> float:
    return float(np.abs(value).max()) if value.size else 0.0


def _litert(path: str) -> tuple[Call, str]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=os.cpu_count() or 1)
    run = interpreter.get_signature_runner()
    (name,) = run.get_input_details()
    return lambda images: run(**{name: images}), f"LiteRT {version('ai-edge-litert')}"


def _onnx(path: str) -> tuple[Call, str]:
    # ONNX Runtime sends usage data to its developers by default.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    names = [item.name for item in session.get_outputs()]

    def call(images: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        return dict(zip(names, session.run(names, {taken.name: images}), strict=True))

    return call, f"ONNX Runtime {version('onnxruntime')}"


def main(runtime: str, file: str, inputs: str, outputs: str, batch: str) -> None:
    call, title = {"litert": _litert, "onnx": _onnx}[runtime](file)
    values, facts = measure(call, np.load(inputs), int(batch))
    np.savez(outputs, allow_pickle=False, **values)
    print(json.dumps({**facts, "runtime": title}))  # noqa: T201 - the output of a program


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # of any runtime
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
