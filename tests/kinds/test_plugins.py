"""Installed packages that become kinds and views, and the reasons why others are refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, PackageLoader
from werkzeug.datastructures import MultiDict

from digits.core.errors import BadRequest
from digits.kinds import BUILT_IN, BUILT_IN_VIEWS, DATA_PLUGINS, VIEW_PLUGINS, Kind, PredictionView, Refusal
from digits.kinds.kind import MODULES, TEMPLATES
from digits.kinds.plugins import load_plugins
from digits.kinds.predictions.rendering import Prediction, check_options
from tests.conftest import ROOT
from tests.kinds.installed_plugins import (
    OLD_DATA_PLUGIN,
    OLD_DATA_PLUGIN_WITHOUT_BASE,
    OLD_VIEW_PLUGIN,
    install,
    install_kind,
    install_view,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, removed from this process after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded() -> list[str]:
    """Return the names of kinds from plugins; fail if any was refused."""
    kinds, refusals = load_plugins(DATA_PLUGINS, Kind, BUILT_IN)
    assert refusals == []
    return [kind.name for kind in kinds]


def refused() -> Refusal:
    """Return the only refused plugin for a kind."""
    kinds, refusals = load_plugins(DATA_PLUGINS, Kind, BUILT_IN)
    assert kinds == []
    (refusal,) = refusals
    return refusal


def test_kinds_are_found_by_their_entry_points(folder):
    install_kind(folder, "second", "image-b", "images/b")
    install_kind(folder, "first", "image-a", "images/a")
    assert loaded() == ["image-a", "image-b"]


@pytest.mark.parametrize("code", [OLD_DATA_PLUGIN, OLD_DATA_PLUGIN_WITHOUT_BASE])
def test_a_data_plugin_of_digits_6_is_refused_by_name(folder, code):
    install(folder, "digits_text_plugin", code, target="DataIngestion")
    refusal = refused()
    assert refusal.plugin == "digits_text_plugin (digits_text_plugin:DataIngestion)"
    assert "written for the plugin interface of DIGITS 6" in refusal.reason
    assert "digits.kinds.Kind" in refusal.hint and "Plugins" in refusal.hint


@pytest.mark.parametrize(
    "before", ["import caffe_of_old\n", "from flask.ext.wtf import Form\n", "print 'Python 2'\n"]
)
def test_a_digits_6_plugin_is_recognized_if_its_import_fails(folder, before):
    package = install(folder, "old", "from .data import DataIngestion", target="DataIngestion")
    (package / "data.py").write_text(f"{before}from digits.extensions.data import interface\n")
    assert "DIGITS 6" in refused().reason


def test_a_view_plugin_of_digits_6_is_refused_by_name(folder):
    install(folder, "digits_boxes", OLD_VIEW_PLUGIN, VIEW_PLUGINS, "Visualization")
    views, (refusal,) = load_plugins(VIEW_PLUGINS, PredictionView)
    assert views == []
    assert refusal.plugin == "digits_boxes (digits_boxes:Visualization)"
    assert "DIGITS 6" in refusal.reason and "digits.kinds.PredictionView" in refusal.hint


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import not_installed_here", "No module named 'not_installed_here'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("", "has no attribute 'KIND'"),
        ("from digits.kinds import Kind; KIND = Kind('A b', '', 'images/a', 'bad')", "'A b' must consist"),
        ("from digits.kinds import Kind; KIND = Kind('a', '', 'images', 'bad')", "'images' must consist"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_refused_with_the_error(folder, code, reason):
    install(folder, "bad", code)
    refusal = refused()
    assert refusal.plugin == "bad (bad:KIND)"
    assert "cannot be imported" in refusal.reason and reason in refusal.reason


def test_a_plugin_that_imports_functions_for_targets_is_told_where_their_classes_are(folder):
    install(folder, "bad", "from digits.data.target import label_set")
    assert refused().hint.startswith("Import the class of its target from digits.data.targets")


def test_other_objects_are_refused(folder):
    install(folder, "other", "KIND = 3")
    assert "not a Kind" in refused().reason and "digits.kinds.Kind" in refused().hint


@pytest.mark.parametrize(
    "part",
    [*(f"{name.replace('.', '/')}.py" for name in MODULES), *(f"templates/{name}" for name in TEMPLATES)],
)
def test_an_incomplete_package_is_refused_with_the_missing_file(folder, part):
    (install_kind(folder, "parts", "image-a", "images/a") / part).unlink()
    assert refused().reason == f"Its package has no {part}."


@pytest.mark.parametrize("name", ["targets", "metrics", "evaluation"])
def test_modules_for_the_worker_outside_the_folder_network_are_refused(folder, name):
    package = install_kind(folder, "flat", "image-a", "images/a")
    (package / "network" / f"{name}.py").unlink(missing_ok=True)
    (package / f"{name}.py").touch()
    refusal = refused()
    assert refusal.reason == f"Its package has no network/{name}.py."
    assert "into its folder “network”" in refusal.hint


@pytest.mark.parametrize(
    ("name", "route", "taken"),
    [
        (BUILT_IN[0].name, "images/a", f"name “{BUILT_IN[0].name}”"),
        ("image-a", BUILT_IN[0].route, f"route “{BUILT_IN[0].route}”"),
    ],
)
def test_a_name_in_use_is_refused(folder, name, route, taken):
    install_kind(folder, "parts", name, route)
    assert refused().reason == f"The {taken} is taken."


def test_the_second_of_two_plugins_with_the_same_name_is_refused(folder):
    install_kind(folder, "one", "image-a", "images/a")
    install_kind(folder, "two", "image-a", "images/b")
    kinds, (refusal,) = load_plugins(DATA_PLUGINS, Kind, BUILT_IN)
    assert [kind.package for kind in kinds] == ["one"]
    assert refusal.plugin == "two (two:KIND)"


def test_a_plugin_does_not_affect_the_others(folder):
    install(folder, "bad", "1 / 0")
    install_kind(folder, "good", "image-a", "images/a")
    kinds, refusals = load_plugins(DATA_PLUGINS, Kind, BUILT_IN)
    assert ([kind.name for kind in kinds], len(refusals)) == (["image-a"], 1)


def test_the_view_in_the_documentation_has_options(folder):
    page = (ROOT / "docs" / "plugins.md").read_text()
    code = dict(re.findall(r"`(digits_table/[\w/.]+)`(?:(?!```).)*?```\w+\n(.*?)```", page, re.DOTALL))
    package = install(folder, "digits_table", code["digits_table/__init__.py"], VIEW_PLUGINS, "VIEW")
    (package / "view.py").write_text(code["digits_table/view.py"])
    (package / "templates").mkdir()
    (package / "templates" / "predictions.html").write_text(code["digits_table/templates/predictions.html"])
    (view,), refusals = load_plugins(VIEW_PLUGINS, PredictionView, BUILT_IN_VIEWS)
    assert refusals == [] and view.is_for("image-classification") and not view.is_for("generic")
    drawing = view.load()
    found = Prediction("image-classification", [["cat", 75.125]], [["cat", 75.125], ["dog", 24.875]])
    assert drawing.fits(found)
    options = drawing.Options(MultiDict({"decimals": "2"}))
    check_options(options)
    shown = drawing.context(found, options)
    environment = Environment(loader=PackageLoader("digits_table"), autoescape=True)
    assert "<td>75.12%</td>" in environment.get_template("predictions.html").render(shown=shown)
    with pytest.raises(BadRequest, match="“decimals”: Number must be between 0 and 6"):
        check_options(drawing.Options(MultiDict({"decimals": "9"})))


def test_a_plugin_cannot_have_the_name_of_a_built_in_view(folder):
    package = install_view(folder, "views", (), "")
    source = package / "__init__.py"
    source.write_text(source.read_text().replace("shouting", "all-raw-data"))
    _, (refusal,) = load_plugins(VIEW_PLUGINS, PredictionView, BUILT_IN_VIEWS)
    assert refusal.reason == "The name “all-raw-data” is taken."


def test_a_view_requires_its_template(folder):
    package = install_view(folder, "views", ("image-classification",), "")
    (view,), refusals = load_plugins(VIEW_PLUGINS, PredictionView)
    assert (view.title, refusals) == ("In capitals", [])
    (package / "templates" / "predictions.html").unlink()
    _, (refusal,) = load_plugins(VIEW_PLUGINS, PredictionView)
    assert refusal.reason == "Its package has no templates/predictions.html."
