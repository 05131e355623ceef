"""Gradient accumulation, several devices, half precision and XLA."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events
from digits.core.events import Measured, Progressed, Warned
from digits.core.recipe import Solver
from digits.data.targets.class_index import ClassIndex
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot
from tests.worker.lazily import (
    device_config,
    network_loader,
    optimizers,
    preparation,
    step_function,
    streams,
    tf,
    training_step,
    variables,
)
from tests.worker.training.loop.test_activations import histograms

SGD = {"type": "SGD", "learning_rate": 0.05}
MOMENTUM = {"type": "MOMENTUM", "learning_rate": 0.02, "momentum": 0.9}

# Convolutions and regularization, without randomness, and with no batch statistics other than means.
CONVOLUTIONS = networks.classifier(
    """
with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.001)):
    x = slim.conv2d(self.x / 100.0, 4, [3, 3], scope='conv')
    x = slim.flatten(slim.max_pool2d(x, [2, 2]))
    return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)


def _weights(outcome: Outcome, name: str) -> dict[str, np.ndarray]:
    assert outcome.code == 0, outcome.output
    return snapshot(outcome.job_folder, name)


def _assert_alike(
    first: dict[str, np.ndarray], second: dict[str, np.ndarray], tolerance: float = 1e-5
) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-3, abs=tolerance), name


# Gradient accumulation

ACCUMULATED: dict[str, Any] = {
    "epochs": 3,
    "solver": SGD,
    "crop_size": 10,
    "batch_size": 4,
    "batch_accumulation": 4,
    "lr_policy": {"policy": "step", "size": 50, "gamma": 0.1},
}


@pytest.mark.parametrize(
    "solver",
    [SGD, pytest.param({"type": "ADAM", "learning_rate": 0.001}, marks=pytest.mark.nightly)],
    ids=["sgd", "adam"],
)
def test_accumulated_batches_match_one_larger_batch(train: Any, trained: Any, solver: dict[str, Any]) -> None:
    settings = {**ACCUMULATED, "solver": solver}
    large = train(CONVOLUTIONS, name="large", **{**settings, "batch_size": 16, "batch_accumulation": 1})
    small = trained(CONVOLUTIONS, name="small", **settings)
    _assert_alike(_weights(large, "snapshot_3.ckpt"), _weights(small, "snapshot_3.ckpt"), 1e-4)
    assert small.values("val", "loss") == pytest.approx(large.values("val", "loss"), rel=1e-3)
    # The batches of a step count as one.
    assert _weights(small, "snapshot_3.ckpt")["global_step"] == 12
    assert [row.step for row in small.of(Measured) if row.stage == "val"] == [0, 4, 8, 12]
    assert small.values("train", "learning_rate")[-1] == pytest.approx(0.1 * solver["learning_rate"])


def test_several_losses_are_accumulated_separately(train: Any) -> None:
    large = train(TWO_LOSSES, name="large", batch_size=16, solver=SGD)
    small = train(TWO_LOSSES, name="small", batch_size=4, batch_accumulation=4, solver=SGD)
    _assert_alike(_weights(large, "snapshot_2.ckpt"), _weights(small, "snapshot_2.ckpt"))


# Both losses depend on both weights, but each trains only one of them.
TWO_LOSSES = """
class UserModel(Tower):
    @model_property
    def inference(self):
        x = slim.flatten(self.x / 100.0)
        self.first = tf.get_variable('first', [144, 4], initializer=tf.constant_initializer(0.1))
        self.second = tf.get_variable('second', [4, 4], initializer=tf.constant_initializer(0.2))
        return tf.matmul(tf.tanh(tf.matmul(x, self.first)), self.second)

    @model_property
    def loss(self):
        entropy = digits.classification_loss(self.inference, self.y)
        size = tf.reduce_mean(tf.square(self.inference))
        return [{'loss': entropy, 'vars': [self.first]}, {'loss': size, 'vars': [self.second]}]
"""

PICTURES = CONVOLUTIONS.replace(
    "accuracy = ",
    "self.summaries.append(tf.summary.histogram('logits', self.inference))\n        accuracy = ",
)


def test_histograms_are_written_from_accumulated_steps(train: Any, trained: Any) -> None:
    plain = trained(CONVOLUTIONS, name="plain", **ACCUMULATED)
    pictured = train(PICTURES, name="pictured", **ACCUMULATED)
    _assert_alike(_weights(plain, "snapshot_3.ckpt"), _weights(pictured, "snapshot_3.ckpt"))
    assert histograms(plain.job_folder / "tb" / "train") == {}
    shown = histograms(pictured.job_folder / "tb" / "train")
    # The step after each validation except the last: its first batch of 4 images, with 4 outputs each.
    assert [(step, count) for step, (_, _, count, *_) in shown["logits"]] == [(1, 16), (5, 16), (9, 16)]


# Several devices


@pytest.mark.parametrize(
    ("weights_on", "batch"),
    [
        ("cpu", 7),
        *(
            pytest.param(weights_on, batch, marks=pytest.mark.nightly)
            for weights_on, batch in [("first_gpu", 7), ("first_gpu", 16), ("cpu", 16)]
        ),
    ],
)
# `test_several_devices_with_gradient_accumulation` has the weights on the first device.
def test_two_devices_match_one(
    trained: Any, model: Any, in_own_child: Any, weights_on: str, batch: int
) -> None:
    settings = {"epochs": 3, "solver": MOMENTUM, "batch_size": batch}
    one = trained(CONVOLUTIONS, name="one", **settings)
    two = _on_processors(in_own_child, model(REPORTING, name="two", weights_on=weights_on, **settings))
    _assert_alike(_weights(one, "snapshot_3.ckpt"), _weights(two, "snapshot_3.ckpt"), 1e-4)
    assert two.values("val", "loss") == pytest.approx(one.values("val", "loss"), rel=1e-3)
    assert two.values("val", "accuracy") == pytest.approx(one.values("val", "accuracy"))
    assert {f"training {batch // 2} on CPU:0", f"training {-(-batch // 2)} on CPU:1"} <= seen(two)


# Its first operation reports the number of records that a replica receives.
REPORTING = CONVOLUTIONS.replace("self.x / 100.0", "self.seen / 100.0").replace(
    "class UserModel(Tower):",
    """class UserModel(Tower):
    @property
    def seen(self):
        if not self.is_training:
            return self.x
        shown = tf.print('training', tf.shape(self.x)[0], 'on', tf.constant(self.x.device[-5:]))
        with tf.control_dependencies([shown]):
            return tf.identity(self.x)
""",
)


def seen(outcome: Outcome) -> set[str]:
    """Return what the replicas of `REPORTING` report."""
    lines = outcome.output.replace('"', "").splitlines()
    return {line for line in lines if line.startswith("training ")}


@pytest.mark.nightly
def test_several_devices_with_gradient_accumulation(train: Any, model: Any, in_own_child: Any) -> None:
    """Images are blended with the one before, which another device may have."""
    augment = {"mixup": 0.4, "cutmix": 1.0, "flip": "fliplr", "noise": 0.02}
    settings = {"solver": MOMENTUM, "epochs": 2, "weights_on": "first_gpu", "augment": augment}
    one = train(PICTURES, name="one", batch_size=18, **settings)
    task = model(PICTURES, name="two", batch_size=6, batch_accumulation=3, **settings)
    two = _on_processors(in_own_child, task)
    _assert_alike(_weights(one, "snapshot_2.ckpt"), _weights(two, "snapshot_2.ckpt"), 1e-4)


NORMALIZED = networks.classifier(
    """
x = slim.conv2d(self.x / 100.0, 4, [3, 3], normalizer_fn=slim.batch_norm,
                normalizer_params={'is_training': self.is_training, 'decay': 0.9})
return slim.fully_connected(slim.flatten(x), self.nclasses, activation_fn=None, scope='fc')
"""
)


def test_each_device_compiles_its_replica(model: Any, in_own_child: Any) -> None:
    settings = {"solver": MOMENTUM, "epochs": 2, "batch_size": 5, "batch_accumulation": 2}
    plain, compiled = (
        _on_processors(in_own_child, model(NORMALIZED, name=name, xla=xla, **settings))
        for name, xla in [("plain", False), ("compiled", True)]
    )
    assert not compiled.of(Warned), compiled.of(Warned)
    weights = _weights(plain, "snapshot_2.ckpt")
    _assert_alike(weights, _weights(compiled, "snapshot_2.ckpt"), 1e-4)
    # Every replica contributes to the moving averages once per step, with its two batches.
    assert 0 < weights["model/Conv/BatchNorm/moving_variance"].max() < 1


def test_replicas_share_variables_created_directly(model: Any, in_own_child: Any) -> None:
    network = networks.RAW.replace(
        "accuracy =", "loss_weight = tf.Variable(1.0, trainable=False, name='share')\n        accuracy =", 1
    )
    outcome = _on_processors(in_own_child, model(network, epochs=1, batch_accumulation=2))
    assert outcome.code == 0, outcome.output
    names = set(snapshot(outcome.job_folder, "snapshot_1.ckpt"))
    made = {"model/conv/w", "model/conv/b", "model/out", "model/out_1", "loss/share"}
    assert names == {*made, "global_step"}


def test_replicas_draw_numbers_of_their_own(model: Any, in_own_child: Any) -> None:
    outcome = _on_processors(in_own_child, model(networks.NOISES, epochs=1))
    weights = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert networks.equal_noises(weights) == []


def test_a_network_can_require_one_device(train: Any, model: Any, in_own_child: Any) -> None:
    network = REPORTING.replace("(Tower):", "(Tower):\n    disableAutoDataParallelism = True")
    outcome = _on_processors(in_own_child, model(network, batch_size=7))
    assert outcome.code == 0, outcome.output
    assert {line.split(" on ")[0] for line in seen(outcome)} == {"training 7"}


def _on_processors(in_own_child: Any, task: Path, count: int = 2) -> Outcome:
    """Run a task in a child process in which the CPU counts as several devices."""
    code = in_own_child(_run_on_processors, str(task), count)
    return Outcome(
        code, events.read(task / "events.jsonl")[0], (task / "output.log").read_text(), task.parent
    )


def _run_on_processors(task: str, count: int) -> int:
    from digits.worker import run

    output = os.open(Path(task) / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    return run.run_task(Path(task))


# Half precision

# float16 has the smaller range, so that more can go wrong.
EACH_HALF = pytest.mark.parametrize(
    "precision", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.nightly)]
)


@EACH_HALF
def test_networks_learn_in_half_precision(train: Any, precision: str) -> None:
    outcome = train(
        networks.KERAS_LENET,
        epochs=10,
        solver=MOMENTUM,
        precision=precision,
        val_interval=10,
        snapshot_interval=10,
    )
    assert not outcome.of(Warned)
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert_no_half_precision(_weights(outcome, "snapshot_10.ckpt"))


def assert_no_half_precision(weights: dict[str, np.ndarray]) -> None:
    kinds = {value.dtype for name, value in weights.items() if name.startswith("model")}
    assert kinds <= {np.dtype(np.float32), np.dtype(np.int64)}


@EACH_HALF
def test_layers_compute_in_half_precision_and_the_loss_in_float32(train: Any, precision: str) -> None:
    """Sums of squares of tensors that the network keeps, also in tuples and dicts, would overflow in half precision."""
    network = networks.classifier(
        """
x = keras.layers.Flatten()(keras.layers.Conv2D(4, 3)(self.x))
self.features = x * 2.0
self.levels = [self.features, collections.OrderedDict(deep=(self.features,))]
print('types inside', x.dtype.name, self.features.dtype.name)
return keras.layers.Dense(self.nclasses)(self.features / 100.0)
""",
        head="import collections",
    ).replace(
        "        return digits",
        """        others = [self.features, self.levels[0], self.levels[1]['deep'][0], self.inference]
        print('types in the loss', *(item.dtype.name for item in others))
        far = tf.reduce_sum(tf.square(self.levels[0]))
        assert digits.mse_loss(self.features, tf.cast(self.levels[0], tf.float16)).dtype == tf.float32
        self.summaries.append(tf.summary.scalar('far', far))
        return 1e-9 * far + digits""",
    )
    outcome = train(network, epochs=1, precision=precision)
    low = precision.removeprefix("mixed_")
    printed = {line for line in outcome.output.splitlines() if line.startswith("types ")}
    assert printed == {f"types inside {low} {low}", "types in the loss" + 4 * " float32"}
    assert min(outcome.values("train", "far")) > 65504
    assert np.isfinite(outcome.values("train", "far")).all()


def test_half_precision_approximates_float32(train: Any) -> None:
    full, half = (
        train(networks.KERAS_LINEAR, name=precision, precision=precision, epochs=4, solver=SGD)
        for precision in ("float32", "mixed_float16")
    )
    expected = _weights(full, "snapshot_4.ckpt")
    found = _weights(half, "snapshot_4.ckpt")
    assert not np.array_equal(found["model/fc/kernel"], expected["model/fc/kernel"])
    assert found["model/fc/kernel"] == pytest.approx(expected["model/fc/kernel"], abs=0.01)
    assert half.values("val", "loss") == pytest.approx(full.values("val", "loss"), rel=0.05)


def test_regularization_is_exact_in_half_precision(train: Any) -> None:
    """The sum of squares of 144 * 4 weights of 50 would overflow in half precision."""
    network = networks.KERAS_LINEAR.replace("0.0, 0.0, 0.01", "50.0, 0.25, 0.0")
    outcome = train(
        network, epochs=1, precision="mixed_float16", solver={"type": "SGD", "learning_rate": 0.1}
    )
    weights = _weights(outcome, "snapshot_1.ckpt")["model/fc/kernel"]
    assert weights == pytest.approx(np.full((144, 4), 50 * 0.95**8, np.float32), rel=1e-4)


def test_a_network_of_tensorflow_1_computes_in_float32_and_says_so(train: Any) -> None:
    full, asked = (
        train(CONVOLUTIONS, name=precision, precision=precision, epochs=2, solver=SGD)
        for precision in ("float32", "mixed_bfloat16")
    )
    (warning,) = asked.of(Warned)
    assert warning.message.startswith("The network computes in float32: ")
    assert "slim.arg_scope (line " in warning.message
    expected, found = (_weights(outcome, "snapshot_2.ckpt") for outcome in (full, asked))
    assert all(np.array_equal(found[name], value) for name, value in expected.items())


def test_a_step_that_overflows_is_skipped(in_child: Any) -> None:
    changes, scales = in_child(_overflowing_steps)
    assert changes == [1, 1, 2, 3, 3]
    assert scales == [8.0, 4.0, 4.0, 8.0, 4.0]


def _overflowing_steps() -> tuple[list[int], list[float]]:
    """Run steps of which the second and the last overflow; two finite ones in a row double the scale."""
    scale = optimizers.LossScale(first=8.0, patience=2)
    count = tf.Variable(0)

    @tf.function
    def step(gradient: Any) -> None:
        scale.guard([gradient, tf.zeros([3])], lambda: count.assign_add(1))

    counts, scales = [], []
    for value in (1.0, np.inf, 1.0, 1.0, np.nan):
        step(tf.constant([0.5, value]))
        counts.append(int(count.numpy()))
        scales.append(float(scale.value.numpy()))
    return counts, scales


def test_the_loss_scale_decreases_until_gradients_are_finite(train: Any) -> None:
    """Gradients in the thousands overflow in half precision with the initial scale."""
    network = networks.KERAS_LINEAR.replace(
        "return digits.classification_loss(", "return 3000.0 * digits.classification_loss("
    )
    solver = {"type": "SGD", "learning_rate": 1e-5}
    outcome = train(network, precision="mixed_float16", epochs=4, solver=solver)
    weights = _weights(outcome, "snapshot_4.ckpt")
    assert weights["optimizer/loss_scale"] < 2**15
    losses = outcome.values("val", "loss")
    assert losses[-1] < losses[0]


# XLA


def test_a_compiled_training_has_the_same_result(train: Any) -> None:
    settings = {"epochs": 2, "solver": {"type": "ADAM", "learning_rate": 0.001}}
    plain = train(PICTURES, name="plain", **settings)
    compiled = train(PICTURES, name="compiled", xla=True, **settings)
    assert not compiled.of(Warned)
    doing = [[event.doing for event in outcome.of(Progressed)] for outcome in (plain, compiled)]
    assert "Compiling a step" in doing[1] and "Compiling a step" not in doing[0]
    _assert_alike(_weights(plain, "snapshot_2.ckpt"), _weights(compiled, "snapshot_2.ckpt"), 1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("network", "precision"),
    [(networks.KERAS_LENET, "mixed_bfloat16"), (networks.LENET.replace("[5, 5]", "[3, 3]"), "float32")],
    ids=["keras", "lenet"],
)
def test_compiled_networks_learn(train: Any, network: str, precision: str) -> None:
    for first in ("x = self.x", "x = tf.reshape(self.x"):
        network = network.replace(first, f"print('built', self.is_training); {first}")
    outcome = train(
        network,
        epochs=15,
        val_interval=15,
        snapshot_interval=15,
        solver=MOMENTUM,
        xla=True,
        precision=precision,
    )
    assert not outcome.of(Warned)
    assert outcome.output.count("built True") == 1
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert_no_half_precision(_weights(outcome, "snapshot_15.ckpt"))


def test_summary_operations_are_not_compiled(train: Any) -> None:
    """XLA does not support strings; this network uses them only in steps that write summaries."""
    outcome = train(networks.GAN, epochs=1, xla=True)
    assert not [event.message for event in outcome.of(Warned) if "XLA" in event.message]


def test_an_operation_that_cannot_be_compiled_is_named(train: Any) -> None:
    network = networks.classifier(
        """
x = tf.py_func(lambda images: images / 100.0, [self.x], tf.float32)
x = tf.reshape(x, [-1, 144])
return slim.fully_connected(x, self.nclasses, activation_fn=None)
"""
    )
    outcome = train(network, epochs=1, xla=True)
    assert len(outcome.of(Warned)) == 1
    assert "PyFunc" in outcome.of(Warned)[0].message


def test_a_variable_on_another_device_is_named(in_own_child: Any, tmp_path: Path) -> None:
    """On a GPU, this applies to int32 variables; here all variables are on another device."""
    (tmp_path / "network.py").write_text(networks.LINEAR)
    message = in_own_child(_remark_on_variables_elsewhere, tmp_path / "network.py")
    assert message.startswith("XLA cannot compile this network: the variable model/fc/")
    assert "int64" in message


def _remark_on_variables_elsewhere(path: Path) -> str:
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    shape, store = (12, 12, 1), variables.VariableStore(device="/device:CPU:1")
    prepare = preparation.Preparation(np.zeros(1, np.float32), None, shape)
    config = device_config.DeviceConfig(devices=("/device:CPU:0",), batch_size=4, compiled=True)
    net = network_loader.load(path, shape, ClassIndex.of(list("abcd")))
    # XLA cannot use variables created in the same trace, so create them in a separate one.
    for options in (
        training_step.StepOptions(training_step.Phase(optimizers.Optimizer(Solver())), 1),
        training_step.StepOptions(training_step.Phase(optimizers.Optimizer(Solver())), 1, config),
    ):
        warnings = list[str]()
        step = training_step.TrainingStep(net, store, prepare, streams.Randomness(1), options)
        training = step_function.StepFunction(step, warnings.append)
        assert not training.is_compiled
    (warning,) = warnings
    return warning


def test_a_step_that_fails_at_run_time_is_trained_without_xla(train: Any) -> None:
    """The compiled program is valid but calls a kernel that the device lacks."""
    network = networks.classifier(
        """
x = slim.flatten(self.x / 100.0)
if self.is_training and len(asked) < 1:
    asked.append(1)
    x = gen_xla_ops.xla_custom_call([x], 'no_such_kernel', '', tf.float32, tf.TensorShape([8, 144]))
    x = tf.reshape(x, [-1, 144])
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
""",
        head="from tensorflow.compiler.tf2xla.ops import gen_xla_ops\nasked = []",
    )
    outcome = train(network, name="asked", epochs=1, xla=True)
    (message,) = [event.message for event in outcome.of(Warned)]
    assert message.startswith("XLA cannot compile this network: No registered")
    assert "no_such_kernel" in message and message.endswith("It is trained without XLA.")
    usual = train(network.replace("asked = []", "asked = [1]"), name="usual", epochs=1)
    _assert_alike(_weights(usual, "snapshot_1.ckpt"), _weights(outcome, "snapshot_1.ckpt"), 1e-6)


# Errors


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("precision", "mixed_float8", "mixed_float8"),
        ("weights_on", "tape", "tape"),
        ("batch_accumulation", 0, "batch_accumulation"),
    ],
)
def test_unknown_settings_are_refused(fail: Any, setting: str, value: Any, word: str) -> None:
    outcome = fail(networks.LINEAR, **{setting: value})
    assert word in outcome.failure.message


def test_mixed_types_get_a_hint(fail: Any) -> None:
    network = networks.classifier(
        "return keras.layers.Dense(4)(keras.layers.Flatten()(self.x)) * tf.ones([4])"
    )
    outcome = fail(network, precision="mixed_bfloat16")
    assert "tf.cast(" in outcome.failure.hint and outcome.failure.line


def test_errors_are_the_same_with_and_without_xla(fail: Any) -> None:
    outcome = fail(networks.classifier("return nothing"), xla=True)
    assert not outcome.of(Warned)
    assert "nothing" in outcome.failure.message
