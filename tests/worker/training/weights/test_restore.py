"""Initial weights from every supported file type, and the report of weights that were not loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import Warned, WeightsLoaded
from digits.worker.failure import UserFault
from tests.worker import networks
from tests.worker.conftest import snapshot as read_snapshot
from tests.worker.lazily import restore, tf

WANTED = {"model/conv1/weights": [3, 2], "model/conv1/biases": [2], "model/fc/weights": [2, 4]}


def _values() -> dict[str, np.ndarray]:
    return {name: np.random.default_rng(3).normal(size=shape).astype("f") for name, shape in WANTED.items()}


def _restored(path: Path, values: dict[str, np.ndarray], other: dict[str, list[int]] | None = None) -> Any:
    """Return the report, and the names of variables that have the value of that name in ``values``."""
    variables = {name: tf.Variable(tf.zeros(shape)) for name, shape in {**WANTED, **(other or {})}.items()}
    report = restore.restore(path, variables)
    same = [
        name for name in values if name in variables and np.array_equal(values[name], variables[name].numpy())
    ]
    return report, same


def _old_checkpoint(folder: Path, version: int, prefix: str = "") -> Any:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        saved = [v1.get_variable(f"{prefix}{name}", initializer=value) for name, value in _values().items()]
        saved.append(v1.get_variable("global_step", initializer=np.int64(5)))
        saved.append(v1.get_variable("train/model/conv1/weights/Momentum", initializer=np.zeros([3, 2], "f")))
        session.run(v1.global_variables_initializer())
        v1.train.Saver(saved, write_version=version).save(session, str(folder / "snapshot_3.ckpt"))
    return folder / "snapshot_3.ckpt"


def _from_old(folder: Path, version: int, ending: str) -> Any:
    path = _old_checkpoint(folder, version)
    return _restored(Path(f"{path}{ending}"), _values())


@pytest.mark.parametrize(("version", "ending"), [(2, ""), (2, ".index"), (2, ".meta"), (1, "")])
def test_tensorflow_1_checkpoints_are_loaded(
    in_child: Any, tmp_path: Path, version: int, ending: str
) -> None:
    report, same = in_child(_from_old, tmp_path, version, ending)
    assert same == list(report.taken) == list(WANTED)
    assert report.remark == "" and report.unused == []


def _what_differs(folder: Path) -> Any:
    path = _old_checkpoint(folder, 2)
    other = {"model/fc/weights": [2, 5], "model/new/weights": [1], "model/conv1/biases_not_in_use": [2]}
    return _restored(path, _values(), other)


def test_weights_that_do_not_match_are_reported(in_child: Any, tmp_path: Path) -> None:
    report, _ = in_child(_what_differs, tmp_path)
    assert report.taken == {
        "model/conv1/weights": "model/conv1/weights",
        "model/conv1/biases": "model/conv1/biases",
        "model/conv1/biases_not_in_use": "model/conv1/biases",
    }
    assert report.missing == ["model/new/weights"]
    assert report.other_shape == {"model/fc/weights": "[2, 4], not [2, 5]"}
    assert "model/fc/weights ([2, 4], not [2, 5])" in report.remark
    assert "3 of 5 variables" in report.remark and "model/new/weights" in report.remark


def _from_a_folder(folder: Path) -> Any:
    return _restored(_old_checkpoint(folder, 2).parent, _values())


def _from_other_names(folder: Path) -> Any:
    names = ["conv1/kernel", "conv1/bias", "fc/weights", "extra"]
    tensors = [*_values().values(), np.zeros(3, "f")]
    tf.raw_ops.SaveV2(
        prefix=str(folder / "other"), tensor_names=names, shape_and_slices=[""] * 4, tensors=tensors
    )
    return _restored(folder / "other", _values())


def _from_frozen_graph(folder: Path) -> Any:
    with tf.Graph().as_default() as graph:
        for name, value in _values().items():
            tf.identity(tf.constant(value, name=name), name=f"{name}/read")
    (folder / "frozen_model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return _restored(folder / "frozen_model.pb", _values())


def _from_saved_model(folder: Path, name: str = "") -> Any:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = [tf.Variable(value, name=name) for name, value in _values().items()]

    tf.saved_model.save(Model(), str(folder))
    return _restored(folder / name, _values())


@pytest.mark.parametrize(
    ("load", "arguments"),
    [
        (_from_a_folder, ()),
        (_from_other_names, ()),
        (_from_frozen_graph, ()),
        (_from_saved_model, ()),
        (_from_saved_model, ("saved_model.pb",)),
    ],
)
def test_other_formats_and_names_are_loaded(
    in_child: Any, tmp_path: Path, load: Any, arguments: tuple[str, ...]
) -> None:
    report, same = in_child(load, tmp_path, *arguments)
    assert same == list(WANTED)
    assert load is not _from_other_names or report.unused == ["extra"]


def _from_keras(folder: Path, layer: str, ending: str) -> Any:
    import keras

    values = _values()
    first = keras.layers.Dense(2, name=layer)
    model = keras.Sequential([keras.Input([3]), first, keras.layers.Dense(4, use_bias=False, name="fc")])
    if layer != "conv1":
        model.layers[1].name = "something"
    model.set_weights(list(values.values()))
    if ending == ".weights.h5":
        model.save_weights(folder / f"model{ending}")
    else:
        model.save(folder / f"model{ending}")
    return _restored(folder / f"model{ending}", values, {"model/last/weights": [7, 7]})


@pytest.mark.parametrize(
    ("layer", "ending", "by_order"),
    [
        ("conv1", ".keras", False),
        ("dense_7", ".keras", True),
        ("conv1", ".h5", False),
        ("dense_7", ".weights.h5", True),
    ],
)
def test_a_keras_model_is_loaded(
    in_child: Any, tmp_path: Path, layer: str, ending: str, by_order: bool
) -> None:
    report, same = in_child(_from_keras, tmp_path, layer, ending)
    assert same == list(WANTED)
    assert report.by_order == by_order
    assert report.missing == ["model/last/weights"]


def _fault(path: Path) -> tuple[str, str]:
    try:
        restore.restore(path, {})
    except UserFault as fault:
        return fault.message, fault.hint
    raise AssertionError("no fault")


@pytest.mark.parametrize("name", ["nothing.ckpt", "broken.pb", "broken.keras", "empty", "broken.h5"])
def test_an_unreadable_file_is_reported(in_child: Any, tmp_path: Path, name: str) -> None:
    if name == "empty":
        (tmp_path / name).mkdir()
    elif name.startswith("broken"):
        (tmp_path / name).write_bytes(b"\x00broken\xff" * 30)
    message, hint = in_child(_fault, tmp_path / name)
    assert name in message and "SavedModel" in hint


def _frozen(path: Path) -> Any:
    frozen = restore.Frozen(_old_checkpoint(path, 2), ["conv1", "*/biases", "model/fc*", "nothing*"])
    names = [
        *WANTED,
        "model/conv2/weights",
        "model/conv2/biases",
        "model/conv1/weights_not_in_use",
        "model/new_not_in_use",
    ]
    return [name for name in names if name in frozen], frozen.unmatched


def test_freezing_by_patterns_and_by_renaming(in_child: Any, tmp_path: Path) -> None:
    assert in_child(_frozen, tmp_path) == (
        [*WANTED, "model/conv2/biases", "model/conv1/weights_not_in_use"],
        ["nothing*"],
    )


def test_a_training_loads_and_freezes_weights(train: Any, in_child: Any) -> None:
    first = train(networks.LENET.replace("[5, 5]", "[3, 3]"), epochs=1, seed=3)
    snapshot = str(first.job_folder / "snapshot_1.ckpt")
    changed = networks.LENET.replace("[5, 5]", "[3, 3]").replace("scope='fc2'", "scope='fc3'")
    second = train(
        changed,
        name="second",
        epochs=1,
        weights=f"{snapshot}.index",
        freeze=["conv*", "fc1/weights", "nonsense"],
    )
    warnings = [event.message for event in second.of(Warned)]
    assert any("model/fc3/weights" in message and "model/fc2/weights" in message for message in warnings)
    assert any("'nonsense'" in message for message in warnings)
    (loaded,) = second.of(WeightsLoaded)
    assert (
        loaded.source == "snapshot_1.ckpt.index"
        and loaded.taken["model/conv1/weights"] == "model/conv1/weights"
    )
    assert loaded.missing == ["model/fc3/weights", "model/fc3/biases"] and not loaded.of_other_shape
    assert sorted(loaded.unused) == ["model/fc2/biases", "model/fc2/weights"]
    assert loaded.frozen == [name for name in loaded.taken if "conv" in name] + ["model/fc1/weights"]
    assert "model/conv1/weights: loaded from model/conv1/weights" in second.output
    assert not first.of(WeightsLoaded)
    before = in_child(read_snapshot, first.job_folder, "snapshot_1.ckpt")
    after = in_child(read_snapshot, second.job_folder, "snapshot_1.ckpt")
    same = {name for name in before if name in after and np.array_equal(before[name], after[name])}
    weights = {name for name in same if name.startswith("model/")}
    assert weights == {
        "model/conv1/weights",
        "model/conv1/biases",
        "model/conv2/weights",
        "model/conv2/biases",
        "model/fc1/weights",
    }
