"""Restoring pretrained weights by name and shape.

Sources are snapshots and other checkpoints of TensorFlow 1 or 2, frozen graphs (their constants), SavedModels and
Keras models. A variable ``model/conv1/weights`` gets the first of these values that exists with its shape:

1. the value with the same name; for a layer frozen by renaming, with its original name;
2. the name without ``model/``, as in other programs, or the other name without its first part, which Keras
   derives from the model;
3. the same with ``kernel`` for ``weights`` and ``bias`` for ``biases``, or the reverse.

Keras numbers unnamed layers, such as ``conv2d_4``. So if no name of a Keras file matches, its variables are
restored in order, up to the first whose shape differs.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.models.pretrained_catalog import CATALOG, Pretrained
from digits.worker.failure import UserFault, first_line
from digits.worker.network import applications
from digits.worker.network.variables import MODEL_SCOPE
from digits.worker.training.weights.snapshots import FROZEN_SUFFIX, choose_another, listed

_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OF_AN_OBJECT = "/.ATTRIBUTES/VARIABLE_VALUE"
_TWINS = {"weights": "kernel", "kernel": "weights", "biases": "bias", "bias": "biases"}


@dataclass(frozen=True)
class Source:
    """Values by name, read on demand. ``is_ordered``: the order of the names is that of the layers.

    ``path`` is the file or folder, for messages.
    """

    shapes: dict[str, list[int]]
    read: Callable[[str], NDArray[Any]]
    is_ordered: bool = False
    path: Path = Path()


@dataclass(frozen=True)
class Report:
    """The outcome of a restore, with the names of the network's variables.

    ``taken`` maps restored variables to the names in the file, and ``other_shape`` variables to a description of
    both shapes; ``unused`` are names in the file that match no variable. ``by_order``: names were ignored.
    """

    taken: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    other_shape: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    by_order: bool = False

    def followed_by(self, later: Report) -> Report:
        """Return the outcome of this restore and a ``later`` one of the same variables."""
        taken = {**self.taken, **later.taken}
        return Report(
            taken,
            [name for name in later.missing if name not in taken],
            {name: shapes for name, shapes in later.other_shape.items() if name not in taken},
            [*self.unused, *later.unused],
            later.by_order,
        )

    @property
    def remark(self) -> str:
        """A text about the variables that keep their initial values; empty if there are none."""
        if not self.missing and not self.other_shape:
            return ""
        total = len(self.taken) + len(self.missing) + len(self.other_shape)
        order = " in their order" if self.by_order else ""
        sentences = [f"Restored {len(self.taken)} of {total} variables from the weights{order}."]
        if self.missing:
            sentences.append(f"Not in the weights: {listed(self.missing)}.")
        if self.other_shape:
            shapes = [f"{name} ({shapes})" for name, shapes in self.other_shape.items()]
            sentences.append(f"Shape mismatch: {listed(shapes)}.")
        if self.unused:
            sentences.append(f"Unused values: {listed(self.unused)}.")
        return " ".join(sentences)


def restore(path: Path, variables: Mapping[str, tf.Variable]) -> Report:
    """Assign to ``variables``, by name, the matching values in the file or folder ``path``.

    Raises UserFault if it is unreadable.
    """
    return assign(open_source(path), variables)


def open_source(path: Path) -> Source:
    """Return the values in the file or folder ``path``. Raises UserFault if it is unreadable."""
    with _explaining_errors(path):
        return replace(_source(path), path=path)


def open_application(path: Path, entry: Pretrained, model: Any = None) -> Source:
    """Return the values in the weights file ``path`` of a network in the catalog.

    ``model`` is that network, for other classes perhaps, if it is built already. Raises UserFault if the file is
    unreadable or contains the weights of another network.
    """
    with _explaining_errors(path):
        if _is_whole_model(path):
            return replace(_keras_model(path), path=path)
        if model is not None and (values := _by_layer(path, model)):
            shapes = {name: list(value.shape) for name, value in values.items()}
            return Source(shapes, values.__getitem__, True, path)
        return replace(_application(path, entry), path=path)


def assign(source: Source, variables: Mapping[str, tf.Variable]) -> Report:
    """Assign to ``variables``, by name, the matching values of ``source``. Raises UserFault if it is damaged."""
    matches, by_order = _match(source, variables)
    with _explaining_errors(source.path):
        return _assigned(source, variables, matches, by_order)


def names_in(source: Source, variables: Mapping[str, tf.Variable]) -> list[str]:
    """Return the names of the ``variables`` to which `assign` would assign a value."""
    return [name for name, (_, fits) in _match(source, variables)[0].items() if fits]


def _match(source: Source, variables: Mapping[str, tf.Variable]) -> tuple[dict[str, tuple[str, bool]], bool]:
    """For each variable with a value in ``source``, its name there and whether the shape fits.

    Also returns whether names were ignored.
    """
    matches = _by_name(source, variables)
    if source.is_ordered and not any(fits for _, fits in matches.values()):
        return _by_order(source, variables), True
    return matches, False


class Frozen:
    """The names of frozen variables: those renamed with `FROZEN_SUFFIX`, and those that match a pattern.

    Patterns have the wildcards of file names: ``conv*`` or ``*/weights``. The name of a layer matches its
    variables, and ``model/`` is optional.
    """

    def __init__(self, weights: Path | None = None, patterns: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        if weights is not None:
            with _explaining_errors(weights):
                names = _source(weights).shapes
                self._known = {*names, *(f"{MODEL_SCOPE}/{name}" for name in names)}
        self._unmatched = dict.fromkeys(pattern.strip() for pattern in patterns if pattern.strip())
        self._patterns = list(self._unmatched)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        # Try every pattern, to find those that match nothing.
        matching = [pattern for pattern in self._patterns if _matches(name, pattern)]
        for pattern in matching:
            self._unmatched.pop(pattern, None)
        renamed = name.endswith(FROZEN_SUFFIX) and name.removesuffix(FROZEN_SUFFIX) in self._known
        return bool(matching) or renamed

    @property
    def unmatched(self) -> list[str]:
        """The patterns that have matched no variable so far."""
        return list(self._unmatched)


def _matches(name: str, pattern: str) -> bool:
    names = (name, name.removeprefix(f"{MODEL_SCOPE}/"))
    return any(fnmatch.fnmatchcase(each, form) for each in names for form in (pattern, f"{pattern}/*"))


def _by_name(source: Source, variables: Mapping[str, tf.Variable]) -> dict[str, tuple[str, bool]]:
    """For each variable that has one, the name in ``source`` and whether the shape fits."""
    without_first = {name.partition("/")[2]: name for name in source.shapes}
    matches = {}
    for name, variable in variables.items():
        candidates = [each for each in _candidates(name, source.shapes, without_first) if each]
        shape = variable.shape.as_list()
        fitting = [each for each in candidates if source.shapes[each] == shape]
        if candidates:
            matches[name] = (fitting or candidates)[0], bool(fitting)
    return matches


def _candidates(name: str, shapes: Mapping[str, Any], without_first: Mapping[str, str]) -> Iterator[str]:
    for whole in dict.fromkeys((name, name.removesuffix(FROZEN_SUFFIX))):
        scope, _, last = whole.rpartition("/")
        twin = f"{scope}/{_TWINS[last]}" if last in _TWINS else whole
        for spelled in dict.fromkeys((whole, twin)):
            bare = spelled.removeprefix(f"{MODEL_SCOPE}/")
            for each in (spelled, bare):
                if each in shapes:
                    yield each
            for each in (spelled, bare):
                if each in without_first and "/" in each:
                    yield without_first[each]


def _by_order(source: Source, variables: Mapping[str, tf.Variable]) -> dict[str, tuple[str, bool]]:
    matches = {}
    numbers = [(name, item) for name, item in variables.items() if item.dtype.is_floating]
    for (name, variable), (other, shape) in zip(numbers, source.shapes.items(), strict=False):
        if variable.shape.as_list() != shape:
            matches[name] = other, False
            break
        matches[name] = other, True
    return matches


def _assigned(
    source: Source,
    variables: Mapping[str, tf.Variable],
    matches: Mapping[str, tuple[str, bool]],
    by_order: bool,
) -> Report:
    report = Report(by_order=by_order)
    for name, variable in variables.items():
        other, fits = matches.get(name, ("", False))
        if fits:
            variable.assign(tf.cast(source.read(other), variable.dtype))
            report.taken[name] = other
        elif other:
            report.other_shape[name] = f"{source.shapes[other]}, not {variable.shape.as_list()}"
        elif variable.dtype.is_floating:  # states of random generators do not matter
            report.missing.append(name)
    used = {other for other, _ in matches.values()}
    report.unused.extend(name for name in source.shapes if name not in used and _is_of_a_network(name))
    return report


def _is_of_a_network(name: str) -> bool:
    return not name.startswith(("optimizer/", "train/", "random/")) and name not in (
        "global_step",
        "save_counter",
    )


def _source(path: Path) -> Source:
    if path.suffix in _KERAS_SUFFIXES:
        return _keras(path)
    if path.name == "saved_model.pb":
        return _saved_model(path.parent)
    if path.suffix in (".pb", ".pbtxt"):
        return _frozen_graph(path)
    if (path / "saved_model.pb").is_file():
        return _saved_model(path)
    if path.is_dir():
        return _folder(path)
    prefix = str(path)
    for ending in (".index", ".meta", ".data-"):
        prefix = prefix.partition(ending)[0]
    return _checkpoint(prefix)


def _checkpoint(prefix: str) -> Source:
    reader = tf.train.load_checkpoint(prefix)
    shapes = {name: list(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    if _OBJECT_GRAPH not in shapes:
        return Source(shapes, reader.get_tensor)
    keys = _keys_of_objects(reader, shapes)
    return Source(
        {name: shapes[key] for name, key in keys.items()}, lambda name: reader.get_tensor(keys[name])
    )


def _keys_of_objects(reader: Any, shapes: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a checkpoint of objects, by the names of their variables and by their paths."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    attributes = [item for node in graph.nodes for item in node.attributes if item.checkpoint_key in shapes]
    keys = {key.removesuffix(_OF_AN_OBJECT): key for item in attributes if (key := item.checkpoint_key)}
    names = [item.full_name for item in attributes]
    named = {
        item.full_name: item.checkpoint_key
        for item in attributes
        if item.full_name and names.count(item.full_name) == 1
    }
    return {**keys, **named}


def _saved_model(folder: Path) -> Source:
    return _checkpoint(str(folder / "variables" / "variables"))


def _frozen_graph(path: Path) -> Source:
    graph = tf.compat.v1.GraphDef()
    if path.suffix == ".pbtxt":
        from google.protobuf import text_format

        text_format.Parse(path.read_text(), graph)
    else:
        graph.ParseFromString(path.read_bytes())
    constants = {
        node.name: node.attr["value"].tensor
        for node in graph.node
        if node.op == "Const" and tf.dtypes.as_dtype(node.attr["dtype"].type).is_floating
    }
    shapes = {name: [size.size for size in value.tensor_shape.dim] for name, value in constants.items()}
    return Source(shapes, lambda name: tf.make_ndarray(constants[name]))


def _folder(path: Path) -> Source:
    latest = tf.train.latest_checkpoint(str(path))
    if latest is not None:
        return _checkpoint(latest)
    # An uploaded file is the only one in its folder.
    files = [item for item in path.iterdir() if item.suffix in _KERAS_SUFFIXES and item.is_file()]
    if len(files) != 1:
        raise FileNotFoundError(
            "The folder contains neither a SavedModel nor a checkpoint, nor a single file of Keras."
        )
    return _source(files[0])


def _keras(path: Path) -> Source:
    if _is_whole_model(path):
        return _keras_model(path)
    tensors = len(_datasets(path))
    for entry in _candidates_by_name(path.name) or CATALOG.values():
        if applications.is_installed(entry) and tensors in (file.tensors for file in entry.files):
            with contextlib.suppress(ValueError):  # the file of another network with as many arrays
                return _application(path, entry)
    values = _datasets(path)
    return Source({name: list(value.shape) for name, value in values.items()}, values.__getitem__, True)


def _is_whole_model(path: Path) -> bool:
    """Return whether a file of Keras contains a model, not only its weights."""
    import h5py

    if path.suffix == ".keras":
        return True
    with h5py.File(path, "r") as file:
        return "model_config" in file.attrs


def _keras_model(path: Path) -> Source:
    import keras

    model = keras.saving.load_model(path, compile=False, safe_mode=True)
    return _of_model(model)


def _candidates_by_name(name: str) -> list[Pretrained]:
    return [entry for entry in CATALOG.values() if any(file.name == name for file in entry.files)]


def _application(path: Path, entry: Pretrained) -> Source:
    """Return the weights of a network in the catalog, by the names of its variables.

    Keras itself matches the contents of the file, in which names depend on the version that wrote it. Raises
    ValueError if they do not fit.
    """
    tensors, counts = len(_datasets(path)), [file.tensors for file in entry.files]
    if tensors not in counts:
        known = ", or without the classifier ".join(map(str, counts))
        raise ValueError(f"It contains {tensors} arrays; weights of {entry.title} have {known}.")
    include_top = entry.full is not entry.without_top and tensors == entry.full.tensors
    model = applications.build(entry, (224, 224, 3), include_top=include_top)
    model.load_weights(path)
    return _of_model(model)


def _by_layer(path: Path, model: Any) -> dict[str, NDArray[Any]]:
    """Return the weights in a file by the names of the variables of ``model``, which Keras would load from it.

    The last layer may have another shape, or be missing in the file. Empty if the file has no list of layers, or if
    they do not fit: to build the network of the file takes seconds, but then Keras says why.
    """
    import h5py

    with h5py.File(path, "r") as file:
        groups = [file[name] for name in file.attrs.get("layer_names", ())]
        stored = [[group[name][()] for name in group.attrs["weight_names"]] for group in groups]
    stored = [arrays for arrays in stored if arrays]
    # Keras loads layers in order, and the variables that are trained before the others.
    layers = [
        [*layer.trainable_weights, *layer.non_trainable_weights] for layer in model.layers if layer.weights
    ]
    values: dict[str, NDArray[Any]] = {}
    for variables, arrays in zip(layers, stored, strict=False):
        fits = [item.shape for item in variables] == [array.shape for array in arrays]
        if len(variables) != len(arrays) or not (fits or variables is layers[-1]):
            return {}
        values |= {item.path: array for item, array in zip(variables, arrays, strict=True)}
    return values if len(stored) in (len(layers), len(layers) - 1) else {}


def _of_model(model: Any) -> Source:
    values = {variable.path: np.asarray(variable.value) for variable in model.weights}
    return Source({name: list(value.shape) for name, value in values.items()}, values.__getitem__, True)


def _datasets(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an HDF5 file by their paths, without those of an optimizer."""
    import h5py

    values: dict[str, NDArray[Any]] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            values[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(add)
    return values


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    """Convert errors while reading the file ``path`` to UserFault."""
    try:
        yield
    except UserFault:
        raise
    except Exception as error:  # several libraries read here, with errors of their own
        raise UserFault(
            f"The weights {path.name} cannot be read: {first_line(error)}",
            choose_another(path)
            or "Choose a snapshot, a checkpoint, a frozen graph, a SavedModel or a .keras file.",
        ) from error
