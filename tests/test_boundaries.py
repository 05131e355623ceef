"""Who may import what. Each zone is loaded in a fresh interpreter, module by module, as the folders list them.

A new module belongs to the web zone until it is named below, or to the worker when it lies in its folder.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

TENSORS = {"tensorflow", "keras", "tf_slim", "tf_keras"}
WEB = {
    "flask",
    "flask_socketio",
    "flask_wtf",
    "wtforms",
    "werkzeug",
    "jinja2",
    "socketio",
    "engineio",
    "gevent",
}

# Shared by the server and the worker: the standard library only.
DOMAIN = {
    f"digits.{name}"
    for name in (
        "environment errors events files job kinds messages metrics output recipe resources schema settings shim status "
        "task times tensorflow_support dataset.manifest dataset.job model.job model.lr_policy model.preflight "
        "model.resume model.watch"
    ).split()
}
# Domain as well, and allowed to hold pixels and checksums.
RECORDS = {"digits.data.records": {"numpy", "google_crc32c"}, "digits.data.images": {"numpy", "PIL"}}
# The server's engine room: gevent and files, no pages.
RUNNING = {f"digits.{name}" for name in "devices executor roots scheduler store".split()}

# Prints, for each module in turn, which outside packages came with it.
LOAD = """
import importlib, json, sys
start, loaded = set(sys.modules), {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    new = {key.partition(".")[0] for key in set(sys.modules) - before}
    loaded[name] = sorted(new - sys.stdlib_module_names - {"digits"})
print("loaded", json.dumps(loaded))
"""


def modules() -> list[str]:
    """Every module of the package but the shipped networks, which are read as text and never imported."""
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / "digits").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.startswith("digits.networks.")]


def zone(name: str) -> str:
    if name.startswith("digits.worker"):
        return "worker"
    if name in DOMAIN or name in RECORDS:
        return "domain"
    return "running" if name in RUNNING else "web"


def in_zone(*wanted: str) -> list[str]:
    return [name for name in modules() if zone(name) in wanted]


@pytest.fixture
def load(run_clean):
    """Imports modules in one fresh interpreter: a dict of name to the outside packages that came with it."""

    def run(names, **variables):
        answer = run_clean("-W", "error::SyntaxWarning", "-c", LOAD, *names, **variables)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.startswith("loaded "), f"importing printed: {answer.stdout[:500]}"
        return json.loads(answer.stdout.removeprefix("loaded ")), answer.stderr

    return run


def offenders(loaded: dict[str, list[str]], forbidden: set[str]) -> dict[str, list[str]]:
    return {name: sorted(forbidden & set(came)) for name, came in loaded.items() if forbidden & set(came)}


def test_the_zones_name_modules_that_exist():
    assert {*DOMAIN, *RECORDS, *RUNNING} - set(modules()) == set()


def test_the_server_never_loads_tensorflow(load):
    loaded, said = load(in_zone("domain", "running", "web"))
    assert offenders(loaded, TENSORS) == {}
    assert said == "", "importing said something"


def test_the_engine_room_has_no_pages(load):
    loaded, _ = load(in_zone("running"))
    assert offenders(loaded, WEB - {"gevent"}) == {}


def test_the_domain_needs_the_standard_library_only(load):
    names = [name for name in in_zone("domain") if name not in RECORDS]
    loaded, _ = load(names)
    assert {name: came for name, came in loaded.items() if came} == {}


@pytest.mark.parametrize("name", RECORDS)
def test_records_need_little_more(load, name):
    loaded, _ = load([name])
    packages = {package for package in loaded[name] if not package.startswith("_")}
    assert packages <= RECORDS[name]


@pytest.mark.tensorflow
def test_the_worker_never_loads_the_web(load):
    loaded, _ = load(
        [name for name in in_zone("worker") if name != "digits.worker.__main__"], TF_CPP_MIN_LOG_LEVEL="3"
    )
    assert offenders(loaded, WEB - {"werkzeug"}) == {}  # tensorboard's writer of logs brings werkzeug


@pytest.mark.parametrize(
    "name", ["digits.worker.run", "digits.worker.tasks.create_dataset", "digits.worker.forkserver"]
)
def test_making_a_dataset_does_not_wait_for_tensorflow(load, name):
    loaded, _ = load([name])
    assert offenders(loaded, TENSORS | WEB) == {}


@pytest.mark.parametrize("name", in_zone("domain", "running", "web"))
def test_nothing_outside_the_worker_imports_it(name):
    path = ROOT.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    assert [module for module in imported(path) if module.startswith("digits.worker")] == []


def imported(path: Path) -> list[str]:
    """Every module that a file imports, wherever in the file it does so."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
