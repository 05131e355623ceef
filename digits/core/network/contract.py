"""The requirements on a network's class, checked statically for the form, and the error messages for the worker.

The worker checks the class after running the code. `faults_in` reports only what the source code proves: errors of a
class that is defined once, at the top level. The worker rejects such a network too, and others. Standard library only.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from digits.core.network.source_code import Fault

PROPERTIES = ("inference", "loss")

_OUTLINE = "A network is a class UserModel(Tower) with the properties inference and loss."
_TOWERS = ("Tower", "Model")
# Code that uses these can define or change names in ways that its text does not show.
_DYNAMIC = frozenset(
    "exec eval execfile globals locals vars setattr delattr modules builtins __builtin__ __builtins__ __globals__ "
    "__init_subclass__ __bases__ __setattr__ __delattr__ f_globals f_locals f_back *".split()
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def undefined(other: str = "", line: int | None = None) -> Fault:
    """Return the error for a missing class UserModel; ``other`` names a class that derives from Tower, if any."""
    if not other:
        return Fault("The network defines no class UserModel.", _OUTLINE)
    return Fault(
        f"The network defines a class {other}(Tower) and no class UserModel.",
        f"Rename the class {other} to UserModel.",
        line,
    )


def not_a_tower(line: int | None) -> Fault:
    return Fault("UserModel does not derive from Tower.", "Write class UserModel(Tower):", line)


def missing(name: str, line: int | None) -> Fault:
    """Return the error for a class, defined on ``line``, without the property ``name``."""
    return Fault(f"UserModel has no property {name}.", _OUTLINE, line)


def not_a_property(name: str, line: int | None) -> Fault:
    """Return the error for an attribute ``name`` that is not a property; a method is defined on ``line``."""
    return Fault(f"UserModel.{name} is not a property.", "Write @model_property above it.", line)


def line_of_class(tree: ast.Module | None, name: str) -> int | None:
    """Return the line of the last definition of the class ``name``, or None."""
    classes = (node for node in ast.walk(tree or ast.Module([], [])) if isinstance(node, ast.ClassDef))
    return max((node.lineno for node in classes if node.name == name), default=None)


def faults_in(tree: ast.Module) -> list[Fault]:
    """Return the provable errors in a network's class; the worker reports the first one."""
    nodes = list(ast.walk(tree))
    if any(_mentioned_by(node) in _DYNAMIC for node in nodes):
        return []
    bound = Counter(name for node in nodes for name in _bound_by(node))
    classes = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and bound[node.name] == 1
    }
    if "UserModel" not in classes:
        is_bound = bound["UserModel"] or bound["build_model"]
        return [] if is_bound else [undefined(*_other_tower(classes, bound))]
    assigned = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and not isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    family, has_tower = _family(classes["UserModel"], classes, bound)
    if family and not has_tower:
        return [not_a_tower(family[0].lineno)]
    properties = (name for name in PROPERTIES if family and name not in assigned)
    return [fault for name in properties for fault in _faults_of_property(family, name)]


def _other_tower(classes: Mapping[str, ast.ClassDef], bound: Counter[str]) -> tuple[str, int | None]:
    """Return the name and line of the first class that derives from Tower."""
    for name, node in classes.items():
        family, has_tower = _family(node, classes, bound)
        if family and has_tower:
            return name, node.lineno
    return "", None


def _family(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], bound: Counter[str]
) -> tuple[list[ast.ClassDef], bool]:
    """Return the class and its bases in the text, depth first, and whether Tower is among the bases.

    They are empty if there may be other bases.
    """
    family: list[ast.ClassDef] = []
    has_tower, pending = False, [node]
    while pending:
        node = pending.pop()
        if node in family:
            continue
        if node.decorator_list or node.keywords:
            return [], False
        family.append(node)
        for base in reversed(node.bases):
            name = base.id if isinstance(base, ast.Name) else ""
            if name in classes and classes[name].lineno < node.lineno:
                pending.append(classes[name])
            elif bound[name] or name not in (*_TOWERS, "object"):
                return [], False
            has_tower |= name in _TOWERS and name not in classes
    return family, has_tower


def _faults_of_property(family: Sequence[ast.ClassDef], name: str) -> Iterator[Fault]:
    definitions = [found for node in family if (found := _members(node, name))]
    if not definitions:
        yield missing(name, family[0].lineno)
    elif len(definitions[0]) == 1 and all(len(node.bases) < 2 for node in family):
        (member,) = definitions[0]
        is_certain = any(member in node.body for node in family)
        if is_certain and isinstance(member, _Function) and not member.decorator_list:
            yield not_a_property(name, member.lineno)


def _members(node: ast.ClassDef, name: str) -> list[ast.AST]:
    """Return what binds ``name`` in the body of a class, also in conditions and loops."""
    pending: list[ast.AST] = list(node.body)
    found = []
    while pending:
        item = pending.pop()
        if name in _bound_by(item):
            found.append(item)
        if not isinstance(item, _Function | ast.ClassDef):  # other scopes
            pending += ast.iter_child_nodes(item)
    return found


def _mentioned_by(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.alias(name=name):
            return name
    return ""


def _bound_by(node: ast.AST) -> list[str]:
    """Return the names that a node itself binds, in any scope; not those of DIGITS that it imports."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.ImportFrom(module="model", level=0, names=names):
            return [item.asname for item in names if item.asname] + [
                item.name for item in names if not item.asname and item.name not in _TOWERS
            ]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [item.asname or item.name.partition(".")[0] for item in names]
        case ast.Global(names=names):
            return names
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []
