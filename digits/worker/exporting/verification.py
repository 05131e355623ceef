"""Verify an export: run it in its own runtime, and compare its outputs with those of the network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.network.targets import Targets
from digits.worker.exporting import runtime_program
from digits.worker.exporting.exported import SIGNATURE, LayerOutputs, NotExportable, input_name
from digits.worker.failure import UserFault
from digits.worker.training.models.outputs import named, restore_structure
from digits.worker.training.models.trained import Trained

# Relative differences up to this size result from a different order of summation.
TOLERANCE = 1e-4
# Timeout for a runtime, in seconds.
MAX_SECONDS = 1800.0


class RuntimeRefusal(UserFault):
    """Raised if an exported file fails in its own runtime."""


Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Verified:
    """The result of a verification; see `digits.data.models.export.ModelExport`."""

    difference: float | None
    worst_output: str
    agreement: float | None
    milliseconds: float
    any_batch: bool
    runtime: str


def verify(model: Trained, target: Path, runtime: str, inputs: NDArray[np.float32], batch: int) -> Verified:
    """Run the export ``target`` on ``inputs``, float32 [images, ...], and compare its outputs with the network's.

    ``runtime`` is ``savedmodel``, ``keras``, ``litert`` or ``onnx``. Raises UserFault if its runtime cannot run it.
    """
    expected, again = _expected(model, inputs, batch), _expected(model, inputs[:batch], batch)
    if runtime == "savedmodel":
        given, measured = _run_saved_model(model, target, inputs, batch)
    elif runtime == "keras":
        given, measured = _run_keras(target, inputs, batch)
    else:
        given, measured = _run_program(runtime, target, inputs, batch)
    known = model.targets if not model.traced.latent else None
    is_random = _largest({name: expected[name][: len(value)] for name, value in again.items()}, again)[0]
    difference, worst = _largest(expected, given, known)
    return Verified(
        difference=None if is_random > TOLERANCE else difference,
        worst_output=worst,
        agreement=_agreement(model, expected, given),
        milliseconds=round(measured["milliseconds"], 3),
        any_batch=measured["any_batch"],
        runtime=measured["runtime"],
    )


def differing_layer(layers: LayerOutputs, target: Path, runtime: str, inputs: NDArray[np.float32]) -> str:
    """Return the name of the first layer whose output differs in the runtime; empty if none does.

    ``target`` is an export of ``layers``, and ``inputs`` float32 [images, ...], one batch.
    """
    expected = _arrays(layers.predict(tf.constant(inputs)))
    given, _ = _run_program(runtime, target, inputs, len(inputs))
    differing = (name for name in layers.names if _apart(given[name], expected[name]) > TOLERANCE)
    return layers.names[name] if (name := next(differing, "")) else ""


def _expected(model: Trained, inputs: NDArray[np.float32], batch: int) -> Outputs:
    def call(images: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        return _arrays(named(model.outputs(tf.constant(images))))

    parts = [call(inputs[start : start + batch]) for start in range(0, len(inputs), batch)]
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}


def _arrays(outputs: Mapping[str, tf.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.numpy() for name, value in outputs.items()}


def _run_saved_model(
    model: Trained, target: Path, inputs: NDArray[np.float32], batch: int
) -> tuple[Outputs, dict[str, Any]]:
    signature = tf.saved_model.load(str(target.parent)).signatures[SIGNATURE]
    name = input_name(model)
    outputs, measured = runtime_program.measure(
        lambda images: _arrays(signature(**{name: tf.constant(images)})), inputs, batch
    )
    return outputs, {**measured, "runtime": f"TensorFlow {tf.__version__}"}


def _run_keras(target: Path, inputs: NDArray[np.float32], batch: int) -> tuple[Outputs, dict[str, Any]]:
    try:
        model = keras.saving.load_model(target, compile=False)
    except Exception as error:  # layers raise anything
        reason = " ".join(str(error).split())[:300]
        raise NotExportable(
            f"The exported Keras model cannot be loaded: {reason}",
            "The network contains a layer that Keras cannot save, such as one defined in the network itself. "
            "Export it as a SavedModel.",
        ) from error
    predict = tf.function(lambda images: named(model(images, training=False)), autograph=False)
    outputs, measured = runtime_program.measure(
        lambda images: _arrays(predict(tf.constant(images))), inputs, batch
    )
    return outputs, {**measured, "runtime": f"Keras {keras.__version__}"}


def _run_program(
    runtime: str, target: Path, inputs: NDArray[np.float32], batch: int
) -> tuple[Outputs, dict[str, Any]]:
    """Run `runtime_program` in a separate process that does not import TensorFlow."""
    before, after = target.parent / ".inputs.npy", target.parent / ".outputs.npz"
    try:
        np.save(before, inputs)
        done = subprocess.run(
            [sys.executable, "-P", runtime_program.__file__, runtime, target, before, after, str(batch)],
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            reason = lines[-1][:600] if lines else f"the process ended with exit status {done.returncode}."
            raise RuntimeRefusal(
                f"The exported file does not run in its runtime: {reason}",
                "Export the network as a SavedModel, or replace the operation that the error names.",
            )
        with np.load(after, allow_pickle=False) as loaded:
            return dict(loaded), json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise UserFault(
            f"The exported file took longer than {MAX_SECONDS:.0f} seconds to process {len(inputs)} images.",
            "Use smaller images or a smaller network.",
        ) from error
    finally:
        for path in (before, after):
            path.unlink(missing_ok=True)


def _largest(expected: Outputs, given: Outputs, targets: Targets | None = None) -> tuple[float, str]:
    """Return the largest relative difference and the name of that output."""
    if set(given) != set(expected):
        return float("inf"), ", ".join(sorted(set(given) ^ set(expected)))
    apart = [
        (_apart(targets.align(value, given[name]) if targets else given[name], value), name)
        for name, value in expected.items()
    ]
    return max(apart, default=(0.0, ""))


def _apart(one: NDArray[Any], other: NDArray[Any]) -> float:
    if one.shape != other.shape:
        return float("inf")
    if not one.size or np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"):
        return 0.0
    scale = max(float(np.abs(other).max()), 1e-12)
    difference = float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max()) / scale
    return difference if np.isfinite(difference) else float("inf")


def _agreement(model: Trained, expected: Outputs, given: Outputs) -> float | None:
    if model.traced.latent or set(expected) != set(given):
        return None
    structure = model.traced.function.structured_outputs

    def predict(outputs: Outputs) -> NDArray[Any]:
        values = restore_structure(structure, dict(outputs))
        predicted: NDArray[Any] = model.targets.predict(tf.nest.map_structure(tf.constant, values)).numpy()
        return predicted

    one, other = predict(expected), predict(given)
    return model.targets.agreement(one, other) if one.shape == other.shape else 0.0
