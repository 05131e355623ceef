"""Check with TensorFlow's kernel registry, without a GPU, that the operations of a step can run on one.

An operation without a GPU kernel runs on the CPU, and its inputs and outputs are copied in every step. One that
modifies a variable on the GPU cannot run at all.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from digits.core import events, recipe
from digits.kinds import standard_networks
from tests.worker.conftest import write_dataset
from tests.worker.input.test_augment import ALL
from tests.worker.lazily import device_config, optimizers, setup, tensorboard_log, tf
from tests.worker.lazily import resources as training_resources

FOLDER = Path(standard_networks.__file__).resolve().parents[1] / "networks"

# Each geometric augmentation has its own implementation, unless combined with another one.
WAYS = {
    "plain": {},
    "turned": {"augment": {"quad_rotation": "rotall"}, "crop_size": 24},
    "shifted": {"augment": {"flip": "fliplr", "pad_crop": 2}, "precision": "mixed_bfloat16"},
    "all": {"augment": ALL, "precision": "mixed_float16", "batch_accumulation": 2},
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=way, marks=[] if way == "all" else pytest.mark.nightly)
        for way, settings in WAYS.items()
    ],
)
def test_gpus_support_all_operations_of_steps_and_validation(
    model: Any, in_own_child: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    dataset = write_dataset(tmp_path / "dataset", {"train": 16, "val": 8}, size=32, channels=3)
    text = (FOLDER / "lenet.py").read_text()
    assert in_own_child(_lacking, model(text, dataset=str(dataset), **settings)) == []


@pytest.mark.parametrize(
    ("name", "side"), [("resnet32", 16), pytest.param("alexnet", 68, marks=pytest.mark.nightly)]
)
def test_gpus_support_all_operations_of_normalization(
    model: Any, in_own_child: Any, tmp_path: Path, name: str, side: int
) -> None:
    write_dataset(tmp_path, {"train": 16, "val": 8}, size=side, channels=3)
    text = (FOLDER / f"{name}.py").read_text()
    # More blocks repeat the same operations.
    for old, new in {"resnet32": [("BLOCKS = 5\n", "BLOCKS = 1\n")], "alexnet": [("  4096,", "  16,")]}[name]:
        assert old in text
        text = text.replace(old, new)
    task = model(text, dataset=str(tmp_path), precision="mixed_float16")
    assert in_own_child(_lacking, task) == []


def test_gpus_support_all_operations_of_the_optimizers(in_own_child: Any) -> None:
    assert in_own_child(_lacking_in_optimizers) == {}


def test_a_missing_kernel_is_detected(in_own_child: Any) -> None:
    assert in_own_child(_lacking_to_gather_bytes) == ["GatherV2"]


def test_xla_supports_the_same_operations_on_gpus_and_cpus(in_own_child: Any) -> None:
    """A step that compiles for a CPU, as in the tests, therefore also compiles for a GPU."""
    cpu, gpu = in_own_child(_compiled_operations)
    assert len(cpu) > 300 and cpu.keys() == gpu.keys()
    missing = {name: types - gpu[name] for name, types in cpu.items() if types - gpu[name]}
    integers = ("Conv", "Conv2D", "Conv2DBackpropInput", "ExtractImagePatches")
    assert missing == {name: {("T", "int32")} for name in integers}


def _lacking(task: Path) -> list[str]:
    """Return operations of a task's steps and validations that GPUs lack."""
    asked = recipe.load(task, recipe.Train)
    with contextlib.closing(events.EventLog(task / "events.jsonl")) as log:
        config, _ = device_config.configure(asked, log)
        resources = training_resources.Resources(asked, task.parent, log, config, 1)
        gpu = SimpleNamespace(name="/device:GPU:0")
        with (
            tensorboard_log.TensorBoardLog(task.parent / "tb") as board,
            mock.patch.object(tf.config, "list_logical_devices", lambda kind=None: [gpu]),
        ):
            steps = setup.build(resources, board)
    graphs = [item._function.get_concrete_function().graph for item in (steps.training, steps.evaluation)]
    return [name for graph in graphs for name in without_kernel(graph)]


def _lacking_in_optimizers() -> dict[str, list[str]]:
    found = {}
    variable = tf.Variable([1.0, 2.0], name="model/w")
    for kind in optimizers.ALGORITHMS:
        optimizer = optimizers.Optimizer(recipe.Solver(type=kind))

        def step(rate: Any, step: Any, optimizer: Any = optimizer) -> None:
            optimizer.apply(tf.constant([0.1, 0.2]), variable, rate, step)

        traced = tf.function(step, autograph=False).get_concrete_function(
            tf.TensorSpec([]), tf.TensorSpec([], tf.int64)
        )
        if lacking := without_kernel(traced.graph):
            found[kind] = lacking
    return found


def _lacking_to_gather_bytes() -> list[str]:
    gather = tf.function(lambda x: tf.gather(x, [0]), autograph=False).get_concrete_function(
        tf.TensorSpec([2, 2], tf.uint8)
    )
    return without_kernel(gather.graph)


def without_kernel(graph: Any) -> list[str]:
    """Return names of operations in ``graph`` and its functions without a GPU kernel for their dtypes."""
    definition = graph.as_graph_def()
    functions = {function.signature.name for function in definition.library.function}
    nodes = [*definition.node, *(node for item in definition.library.function for node in item.node_def)]
    return sorted({node.op for node in nodes if node.op not in functions and not _has_kernel(node)})


def _has_kernel(node: Any) -> bool:
    from tensorflow.python.framework import kernels

    # DEFAULT kernels serve devices without a specific kernel.
    return any(
        kernel.device_type in ("GPU", "DEFAULT") and all(_fits(limit, node) for limit in kernel.constraint)
        for kernel in kernels.get_registered_kernels_for_op(node.op).kernel
    )


def _fits(limit: Any, node: Any) -> bool:
    attribute = node.attr[limit.name]
    types = attribute.list.type if attribute.HasField("list") else [attribute.type]
    return set(types) <= set(limit.allowed_values.list.type)


def _compiled_operations() -> tuple[dict[str, set[tuple[str, str]]], ...]:
    """Return the operations that XLA compiles for CPUs and GPUs, with the allowed types of their attributes."""
    from tensorflow.python.framework import kernels

    tf.function(lambda x: x + 1, autograph=False, jit_compile=True)(
        tf.constant(1.0)
    )  # the list is complete only after XLA was used
    known = kernels.get_all_registered_kernels().kernel
    found: dict[str, dict[str, set[tuple[str, str]]]] = {"XLA_CPU_JIT": {}, "XLA_GPU_JIT": {}}
    for kernel in known:
        if kernel.device_type in found:
            types = found[kernel.device_type].setdefault(kernel.op, set())
            for limit in kernel.constraint:
                types.update((limit.name, tf.as_dtype(item).name) for item in limit.allowed_values.list.type)
    return tuple(found.values())
