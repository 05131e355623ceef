"""The requirements on a network's class, checked statically for the form, and the error messages for the worker.

The worker checks the class after running the code. `faults_in` reports only errors that the source code proves, so the
worker rejects such a network too; it does not report anything that depends on running the code. Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from digits.core.network.source_code import Fault

PROPERTIES = ("inference", "loss")

_OUTLINE = "A network is a class UserModel(Tower) with the properties inference and loss."


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
    module = _Module(tree)
    return [] if module.is_dynamic else list(_faults(module))


def _faults(module: _Module) -> Iterator[Fault]:
    index, value = module.find("UserModel")
    if value is _UNBOUND:
        _, function = module.find("build_model")
        if function is _UNBOUND or isinstance(function, ast.Constant):
            yield undefined(*_other_tower(module))
        return
    if isinstance(value, (ast.Constant, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield not_a_tower(None)
    elif isinstance(value, ast.ClassDef):
        ancestry = module.ancestry(index, value)
        if ancestry.is_known and not ancestry.has_tower:
            yield not_a_tower(value.lineno)
        elif ancestry.is_known:
            for name in PROPERTIES:
                yield from _faults_of_property(module, ancestry, name)


def _other_tower(module: _Module) -> tuple[str, int | None]:
    """Return the name and line of the first class that derives from Tower."""
    for name in module.bindings:
        _, value = module.find(name)
        if isinstance(value, ast.ClassDef) and value in module.towers:
            return name, value.lineno
    return "", None


def _faults_of_property(module: _Module, ancestry: _Ancestry, name: str) -> Iterator[Fault]:
    if name in module.reassigned:
        return
    first = ancestry.classes[0].lineno
    definitions = [
        definition for node in ancestry.classes if (definition := _member(node, name)) is not _UNBOUND
    ]
    if not definitions:
        yield missing(name, first)
    elif ancestry.is_line:
        definition = definitions[0]
        if isinstance(definition, ast.Constant):
            yield missing(name, first) if definition.value is None else not_a_property(name, None)
        elif (
            isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) and not definition.decorator_list
        ):
            yield not_a_property(name, definition.lineno)


_NOTED = (ast.Name, ast.Attribute, ast.FunctionDef, ast.alias, ast.Global, ast.NamedExpr)

# The value of a name: the AST node that binds it, or one of these constants.
_Value = ast.AST | str
_UNBOUND, _UNKNOWN = "unbound", "unknown"
_TOWER, _OBJECT = "tower", "object"
_TOWER_MODULE = "module with Tower"

_TOWER_NAMES = ("Tower", "Model")
_INITIAL = {**dict.fromkeys(_TOWER_NAMES, _TOWER), "object": _OBJECT}

# Code that uses these can define or modify names in ways that static analysis cannot see.
_DYNAMIC_NAMES = frozenset(
    "exec eval execfile globals locals vars setattr delattr modules builtins __builtin__ __builtins__ "
    "__init_subclass__".split()
)
_DYNAMIC_ATTRIBUTES = frozenset(
    "modules __globals__ __bases__ __setattr__ __delattr__ f_globals f_locals f_back".split()
)

_MAX_ALIASES = 10


@dataclass
class _Ancestry:
    """A class and its transitive bases defined in the source, in depth-first order.

    ``is_line`` is False with multiple inheritance. ``is_known`` is False if there may be other bases.
    """

    classes: list[ast.ClassDef]
    has_tower: bool = False
    is_line: bool = True
    is_known: bool = True


class _Module:
    """The names of a module, with the statements that bind them in order.

    ``is_dynamic`` means that names may be bound in other ways too. ``reassigned`` contains attributes assigned to
    objects other than self, ``towers`` the classes that provably derive from Tower.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.bindings = _bindings(tree.body)
        self.reassigned: set[str] = set()
        self.is_dynamic = "*" in self.bindings
        for node in _walk(tree):
            if isinstance(node, _NOTED):
                self._note(node)
        self.towers: set[ast.ClassDef] = set()
        for index, statement in enumerate(tree.body):
            if isinstance(statement, ast.ClassDef):
                bases = [self._base(expression, index)[1] for expression in statement.bases]
                if any(base is _TOWER or base in self.towers for base in bases):
                    self.towers.add(statement)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.alias(name=name):
                if name in _DYNAMIC_NAMES:
                    self.is_dynamic = True
            case ast.Attribute(attr=name, ctx=context, value=owner):
                self.is_dynamic |= name in _DYNAMIC_ATTRIBUTES
                is_own = isinstance(owner, ast.Name) and owner.id == "self"
                if not isinstance(context, ast.Load) and not is_own:
                    self.reassigned.add(name)
            case ast.Global(names=names):
                for name in names:
                    self.bindings.setdefault(name, []).append((-1, _UNKNOWN))
            case ast.NamedExpr(target=ast.Name(id=name)):
                self.bindings.setdefault(name, []).append((-1, _UNKNOWN))

    def find(self, name: str, before: int | None = None) -> tuple[int, _Value]:
        """Return the position of the binding of a name and its value.

        Only bindings earlier than the statement at position ``before`` count; by default, all of the module's.
        """
        initial = _UNBOUND
        for _ in range(_MAX_ALIASES):
            places = self.bindings.get(name, [])
            if not places:
                return 0, _INITIAL.get(name, initial)
            earlier = [binding for binding in places if before is None or binding[0] < before]
            if not earlier or any(value is _UNKNOWN for _, value in places):
                return 0, _UNKNOWN
            before, value = earlier[-1]
            if not isinstance(value, ast.Name):
                return before, _UNBOUND if _is_none(value) else value
            name = value.id  # an alias of an earlier name
            initial = _UNKNOWN
        return 0, _UNKNOWN

    def ancestry(self, index: int, node: ast.ClassDef) -> _Ancestry:
        """Return the bases of the class defined by the statement at position ``place``."""
        ancestry = _Ancestry([])
        pending = [(index, node)]
        visited: set[ast.ClassDef] = set()
        while pending:
            index, node = pending.pop()
            if node in visited:
                continue
            visited.add(node)
            ancestry.classes.append(node)
            ancestry.is_known &= not (node.decorator_list or node.keywords)
            ancestry.is_line &= len(node.bases) < 2
            for expression in reversed(node.bases):
                where, base = self._base(expression, index)
                if isinstance(base, ast.ClassDef):
                    pending.append((where, base))
                else:
                    ancestry.has_tower |= base is _TOWER
                    ancestry.is_known &= base in (_TOWER, _OBJECT)
        return ancestry

    def _base(self, expression: ast.expr, index: int) -> tuple[int, _Value]:
        match expression:
            case ast.Name(id=name):
                return self.find(name, index)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _TOWER_NAMES:
                _, owner = self.find(name, index)
                return 0, _TOWER if owner is _TOWER_MODULE else _UNKNOWN
        return 0, _UNKNOWN


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes except literals, contexts and operators; several times faster than `ast.walk`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            children = value if isinstance(value, list) else (value,)
            pending += [
                item for item in children if isinstance(item, ast.AST) and not isinstance(item, _LEAVES)
            ]


_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def _is_none(value: _Value) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _member(node: ast.ClassDef, name: str) -> _Value:
    values = [value for _, value in _bindings(node.body).get(name, [])]
    if not values:
        return _UNBOUND
    return _UNKNOWN if _UNKNOWN in values else values[-1]


def _bindings(body: list[ast.stmt]) -> dict[str, list[tuple[int, _Value]]]:
    """Return the position and value of each binding in ``body``, by name.

    Names bound in a condition, loop or exception handler have an unknown value.
    """
    bindings: dict[str, list[tuple[int, _Value]]] = {}
    for index, statement in enumerate(body):
        for name, value in _bound_by(statement):
            bindings.setdefault(name, []).append((index, value))
    return bindings


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, _Value]]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, statement
        case ast.Assign(targets=targets, value=value) if all(isinstance(node, ast.Name) for node in targets):
            yield from ((node.id, value) for node in targets if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            if value is not None:
                yield name, value
        case ast.Import(names=names):
            for alias in names:
                name = alias.asname or alias.name.partition(".")[0]
                yield name, _TOWER_MODULE if alias.name == "model" else _UNKNOWN
        case ast.ImportFrom(module="model", level=0, names=names):
            for alias in names:
                yield alias.asname or alias.name, _TOWER if alias.name in _TOWER_NAMES else _UNKNOWN
        case _:
            yield from ((name, _UNKNOWN) for name in _names_bound_below(statement))


def _names_bound_below(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement and its nested statements bind in the same scope."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
                continue  # another scope
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
        pending += ast.iter_child_nodes(node)
