"""The maps in docs/architecture.md: files exist, and lists of names stay in sync."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from digits.cli.commands import MODULES
from digits.core import recipe as recipes
from digits.core import schedules
from digits.data.targets.forms import FORMS
from digits.data.targets.picture import PictureTarget
from digits.web.models.form import POLICY_CHOICES, SOLVERS, ModelForm
from digits.worker.run import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def files_in(text: str) -> list[str]:
    """Return paths in backticks that start with a folder of the checkout."""
    return re.findall(r"`((?:digits|static|templates|tests|docs|benchmarks)/[\w/.-]*)`", text)


@pytest.mark.parametrize(
    "title", ["Where is …?", "To add a … touch …", "Kinds", "The path of a request", "Running tasks"]
)
def test_files_in_the_map_exist(title: str) -> None:
    found = files_in(section(title))
    assert found
    assert [name for name in found if not (ROOT / name).exists()] == []


def test_every_row_of_the_map_has_a_test() -> None:
    rows = [line for line in section("To add a … touch …").splitlines() if line.startswith("| a")]
    assert len(rows) > 10
    assert [row for row in rows if not any(name.startswith("tests/") for name in files_in(row))] == []


def test_the_form_offers_all_optimizers() -> None:
    assert sorted(choice.value for choice in SOLVERS) == sorted(get_args(recipes.SolverType))


def test_targets_decide_themselves() -> None:
    """Behavior that depends on the form of a target is a method of its class, not a test of its attributes."""
    forms = "|".join(form.__name__ for form in (*FORMS, PictureTarget))
    is_test = re.compile(
        rf"\.(?:in_image|spatial|multi_hot)\b|\btarget\.classes\b|isinstance\([^()]*\b(?:{forms})\b"
    )
    own = [ROOT / "digits" / name for name in ("data/targets", "networks", "worker/input/target_tensors.py")]
    found = [
        f"{path}: {match.group()}"
        for path in sorted((ROOT / "digits").rglob("*.py"))
        if not any(path.is_relative_to(folder) for folder in own)
        for match in is_test.finditer(path.read_text())
    ]
    assert len(found) <= 15, found


@pytest.mark.tensorflow
def test_the_worker_has_all_optimizers(in_child) -> None:
    assert in_child(_optimizers) == set(get_args(recipes.SolverType))


def _optimizers() -> set[str]:
    from digits.worker.training.step.optimizers import ALGORITHMS

    return set(ALGORITHMS)


def test_the_form_has_all_schedules_and_their_settings() -> None:
    assert sorted(choice.value for choice in POLICY_CHOICES) == sorted(schedules.POLICIES)
    page = (ROOT / "templates" / "_model_form.html").read_text()
    for name, schedule in schedules.POLICIES.items():
        for setting in set(schedule.__struct_fields__) - set(schedules.Schedule.__struct_fields__):
            field = f"lr_{name}_{setting}"
            # In the list of its section, which renders the fields of a schedule by their prefix.
            assert hasattr(ModelForm, field) and f"'{field}'" in page, field
    assert "item.name.startswith('lr_' ~ policy ~ '_')" in page


def test_every_command_is_in_the_table() -> None:
    defining = {
        f"digits.cli.{path.stem}"
        for path in (ROOT / "digits" / "cli").glob("*.py")
        if re.search(r"^(def command\(|command = )", path.read_text(), re.M)
    }
    assert defining == set(MODULES.values())


def _recipes_with_a_task() -> set[str]:
    """The names of the classes of recipes that the worker has a task for. Call it with `in_child`."""
    return {recipe_class.__name__ for recipe_class, _ in PROGRAMS.values()}


def test_every_recipe_has_a_task(in_child: Callable[..., Any]) -> None:
    own = {
        recipe_class.__name__
        for base in (recipes.Recipe, recipes.Train, recipes.PredictSplit)
        for recipe_class in base.__subclasses__()
        if recipe_class.__module__ == recipes.__name__ and recipe_class is not recipes.PredictSplit
    }
    assert in_child(_recipes_with_a_task) == own


def test_no_view_module_imports_another() -> None:
    """Functions that several views use belong to a module without routes. DIGITS 6 is an adapter above the views."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(text)
        for path in (ROOT / "digits" / "web").rglob("*.py")
        if re.search(r"\b(Blueprint|Activity)\(", text := path.read_text())
    }
    views = {name for name, tree in trees.items() if makes_blueprint(tree)}
    views.remove("digits.web.jobs.activities")  # makes those of the declarations
    assert len(views) > 20
    for name in views:
        if not name.startswith("digits.web.digits6."):
            assert imported(trees[name]) & views == set(), name


def makes_blueprint(tree: ast.Module) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(function, ast.Name) and function.id in ("Blueprint", "Activity") for function in calls
    )


def imported(tree: ast.Module) -> set[str]:
    """Return the modules and the names that a module imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module} | {
                part for each in node.names for part in (each.name, f"{node.module}.{each.name}")
            }
    return names
