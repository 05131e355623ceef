"""The register of the names of TensorFlow, Keras and tf_slim that the worker patches, or uses although they are private."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import digits.worker
from digits.worker import patched_names
from tests.worker.lazily import tf

LIBRARIES = ("tensorflow", "keras", "tf_slim", "numpy", "random")
PRIVATE = ("tensorflow.python", "tensorflow.core", "keras.src")
FOLDER = Path(digits.worker.__file__).parent
NAMES = {(each.owner, each.name) for each in patched_names.registered_names()}
OWNERS = {owner for owner, _ in NAMES}
# Of the standard library.
UNDERSCORED = {"_exit", "_current_frames", "_getframe", "_replace", "_fields"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(FOLDER.rglob("*.py")):
        yield str(path.relative_to(FOLDER)), ast.parse(path.read_text())


def imports(tree: ast.Module) -> dict[str, str]:
    """Return the full names of everything that a module imports, by its name there."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        if isinstance(node, ast.Import):
            found |= {each.asname or each.name: each.name for each in node.names}
    return found


def dotted(node: ast.expr) -> str:
    """Return the text of an attribute of attributes of a name; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def is_registered(path: str) -> bool:
    """Return whether a dotted name is registered, or contains registered names."""
    owner, _, name = path.rpartition(".")
    return (owner, name) in NAMES or any(f"{each}.".startswith(f"{path}.") for each in OWNERS)


def uses_of(tree: ast.Module) -> set[str]:
    """Return the private names of the libraries that a module uses, with those in them."""
    known = imports(tree)
    found = {name for name in known.values() if name.startswith(PRIVATE)}
    for node in ast.walk(tree):
        first, _, rest = dotted(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        whole = f"{known.get(first, '')}.{rest}"
        if rest and whole.startswith(PRIVATE):
            found.add(whole)
    return found


def missing(path: str) -> bool:
    """Return whether neither a private name nor the class that it belongs to is registered."""
    return not is_registered(path) and tuple(path.rsplit(".", 2)[:2]) not in NAMES


@pytest.mark.slow
def test_private_names_of_the_libraries_are_registered() -> None:
    used = {f"{module}: {path}" for module, tree in modules() for path in uses_of(tree) if missing(path)}
    assert sorted(used) == []


@pytest.mark.slow
def test_attributes_with_underscores_are_registered() -> None:
    own, read = set(), {}
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.id if isinstance(node, ast.Name) else node.attr)
            is_read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            is_own = is_read and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_read and not is_own and node.attr.startswith("_") and not node.attr.startswith("__"):
                read.setdefault(node.attr, f"{module}:{node.lineno}: {node.attr}")
    registered = {name for _, name in NAMES}
    assert [where for name, where in read.items() if name not in own | registered | UNDERSCORED] == []


@pytest.mark.slow
def test_modules_are_patched_through_the_register() -> None:
    patched = []
    for module, tree in modules():
        known = {name for name, path in imports(tree).items() if path.startswith(LIBRARIES)}
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [dotted(target) for target in targets if isinstance(target, ast.Attribute)]
            patched += [f"{module}: {name}" for name in names if name.partition(".")[0] in known]
    assert patched == []


def test_other_names_cannot_be_patched() -> None:
    with pytest.raises(LookupError, match=r"ast\.parse is not in the register"):
        patched_names.install(ast, "parse", None)
    assert ast.parse is not None


def test_the_installed_release_has_all_registered_names(in_child: Any) -> None:
    different = in_child(differences)
    assert not different, "The libraries differ from the register:\n" + "\n".join(different)


def differences() -> list[str]:
    import keras

    importlib.import_module("tf_slim.nets")
    assert keras.__version__ and tf.raw_ops
    return [text for each in patched_names.registered_names() if (text := difference(each))]


def difference(each: patched_names.RegisteredName) -> str:
    """Return how the installed release differs from the register; empty if it does not."""
    path = f"{each.owner}.{each.name}"
    owners = [owner_of(each.owner)] if not each.owner.endswith(".*") else slim_modules()
    if None in owners:
        return f"{each.owner} does not exist"
    if each.is_added:
        return f"{path} exists" if each.name in vars(owners[0]) else ""
    if not any(hasattr(owner, each.name) or is_set(owner, each.name) for owner in owners):
        return f"{path} does not exist"
    if not each.signature:
        return ""
    signature = signature_of(getattr(owners[0], each.name))
    return "" if signature == each.signature else f"{path}{each.signature} is {signature} now"


def owner_of(path: str) -> Any:
    """Return the module or class with this path, or None."""
    try:
        return importlib.import_module(path)
    except ImportError:
        pass
    module, _, name = path.rpartition(".")
    return getattr(owner_of(module), name, None) if module else None


def slim_modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.startswith("tf_slim")]


def is_set(owner: Any, name: str) -> bool:
    """Return whether the objects of a class have the attribute ``name``, or its methods set it."""
    classes = owner.__mro__[:-1] if inspect.isclass(owner) else ()
    return any(f".{name}" in inspect.getsource(each) for each in classes)


def signature_of(function: Any) -> str:
    """Return the parameters of a function, without types and the values of defaults."""
    texts = []
    for each in inspect.signature(function).parameters.values():
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        texts.append(f"{stars}{each.name}" + ("=..." if each.default is not each.empty else ""))
    return f"({', '.join(texts)})"
