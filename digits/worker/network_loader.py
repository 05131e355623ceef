"""Loading a user's network: from its text to its class.

The text runs on top of the compatibility layer, which provides the `tf` of TensorFlow 1, Keras 1 and Python 2.
"""

from __future__ import annotations

import linecache
import sys
import types
from pathlib import Path
from typing import Any

from digits.core.files import UnreadableFile, read_bytes
from digits.core.model_job import MAX_NETWORK_BYTES
from digits.core.network import contract, source_code
from digits.core.network.source_code import Fault
from digits.data.manifest import Manifest
from digits.data.targets.target import Target
from digits.kinds import kind_named
from digits.kinds.network.metrics import Metrics
from digits.worker import build_context, packages, user_text
from digits.worker.compat import compat_module, missing_modules
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network import tower
from digits.worker.network.network import Network
from digits.worker.network.variables import record_outside_variables

# The name of the module in which the text runs.
_MODULE = "network"


def load_for(manifest: Manifest, dataset: Path, path: Path, shape: tuple[int, int, int]) -> Network:
    """Load the network in the file ``path`` for the dataset in the folder ``dataset``, with images of ``shape``.

    The shape is that after preparation.

    Raises SyntaxError, UserFault, or whatever its text raises.
    """
    metrics: Metrics = kind_named(manifest.kind).load("network.metrics").Metrics(manifest.target)
    return load(path, shape, manifest.target, metrics, dataset)


def load(
    path: Path,
    shape: tuple[int, int, int],
    target: Target,
    metrics: Metrics | None = None,
    dataset: Path | None = None,
) -> Network:
    """Load the network in the file ``path`` for images of ``shape`` (height, width, channels) and a ``target``.

    ``metrics`` are those of the dataset's kind. Raises SyntaxError, UserFault, or whatever its text raises.
    """
    text = read(path)
    folder = path.absolute().parent
    dataset = dataset and dataset.absolute()
    with record_outside_variables() as own, build_context.extend(folder=folder, dataset=dataset):
        tower_class = user_model(text)
    if not hasattr(tower_class, "target"):
        tower_class.target = target  # type: ignore[attr-defined]
    return Network(tower_class, shape, target, metrics or Metrics(target), folder, dataset, own=own)


def read(path: Path) -> str:
    """Return the text of a network; raises UserFault if it cannot be read."""
    try:
        # Not through a link: errors show lines of the text.
        return read_bytes(path, MAX_NETWORK_BYTES).decode("utf-8-sig", "replace")
    except UnreadableFile as error:
        raise UserFault(f"The network cannot be read: {error}.") from error


class _Source:
    """The loader of the network's module: AutoGraph clears `linecache` and asks it for the text again."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:
        return self._text


def user_model(text: str) -> type:
    """Run the ``text`` of a network and return its class. Raises SyntaxError, UserFault, or whatever it raises."""
    text = source_code.normalize(text)
    # Tracebacks find the text under one fixed name.
    linecache.cache[NETWORK_FILE] = (len(text), None, user_text.lines(text), NETWORK_FILE)
    code = source_code.compile_tree(source_code.parse(text))
    # Data classes look their module up by name.
    module = sys.modules[_MODULE] = types.ModuleType(_MODULE)
    names = vars(module)
    missing = missing_modules.Imports()
    names.update(compat_module.namespace(missing))
    names["__loader__"] = _Source(text)
    exec(code, names)  # noqa: S102 - running the user's network is what this process is for
    try:
        return _tower_class_in(names)
    except UserFault as fault:
        for package, line in missing.lines.items():
            # The text is probably a network for another framework.
            words = f"{fault.message} It imports {package}, which is not installed."
            raise UserFault(words, packages.advice(package), line) from None
        raise


def _tower_class_in(names: dict[str, Any]) -> type:
    tower_class = names.get("UserModel")
    if tower_class is None and callable(names.get("build_model")):
        tower_class = tower.from_function(names["build_model"])
    if tower_class is None:
        raise _fault(contract.undefined(*_other_tower(names)))
    if not isinstance(tower_class, type) or not issubclass(tower_class, tower.Tower):
        raise _fault(contract.not_a_tower(_line_of(tower_class)))
    for name in contract.PROPERTIES:
        _check_property(tower_class, name)
    return tower_class


def _other_tower(names: dict[str, Any]) -> tuple[str, int | None]:
    """Return the name and line of the network's first class that derives from Tower."""
    for name, value in names.items():
        if isinstance(value, type) and issubclass(value, tower.Tower) and value is not tower.Tower:
            return name, _line_of(value)
    return "", None


def _check_property(tower_class: type, name: str) -> None:
    attribute = getattr(tower_class, name, None)
    if attribute is None:
        raise _fault(contract.missing(name, _line_of(tower_class)))
    if not isinstance(attribute, property):
        raise _fault(contract.not_a_property(name, user_text.line_of_function(attribute)))


def _line_of(value: Any) -> int | None:
    return contract.line_of_class(user_text.tree(), getattr(value, "__name__", ""))


def _fault(fault: Fault) -> UserFault:
    return UserFault(fault.message, fault.hint, fault.line)
