"""Modules loaded by each zone at run time, in a fresh interpreter, module by module.

The contracts in ``pyproject.toml`` define which zone may import which; import-linter checks them.
"""

from __future__ import annotations

import graphlib
import json
import subprocess
import sys
from pathlib import Path

import grimp
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

# Packages that core and data may use: typed JSON; pixels and checksums.
CORE = {"msgspec", "typing_extensions"}
DATA = {
    "numpy",
    "PIL",
    "cykooz_resizer",
    "deflate",
    "google",
    "google_crc32c",
    "pyspng",
    "simplejpeg",
    "cython_runtime",
} | CORE
SERVER = ("core", "data", "kinds", "runtime", "web", "cli", "client", "__main__")

# Print the third-party packages loaded by each module in turn.
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
    """Return all modules of the package except the shipped networks, which are read as text and never imported."""
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / "digits").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.startswith("digits.networks.")]


def in_zone(*wanted: str) -> list[str]:
    """Return the modules of these zones. A zone is a folder or module directly below the package."""
    return [name for name in modules() if name.split(".")[1:2] and name.split(".")[1] in wanted]


@pytest.fixture
def load(run_clean):
    """Return a function that imports modules in a fresh interpreter, and returns the third-party packages of each."""

    def run(names, **variables):
        answer = run_clean("-W", "error::SyntaxWarning", "-c", LOAD, *names, **variables)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.startswith("loaded "), f"importing printed: {answer.stdout[:500]}"
        return json.loads(answer.stdout.removeprefix("loaded ")), answer.stderr

    return run


def offenders(loaded: dict[str, list[str]], forbidden: set[str]) -> dict[str, list[str]]:
    return {name: sorted(forbidden & set(came)) for name, came in loaded.items() if forbidden & set(came)}


def test_imports_between_zones_obey_the_contracts():
    program = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run([program, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


def test_there_are_no_import_cycles():
    graph = grimp.build_graph("digits")
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 200
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def test_every_module_belongs_to_a_zone():
    assert set(modules()) == {"digits", *in_zone(*SERVER, "worker", "networks")}


def of_the_worker(name: str) -> bool:
    """Return whether a module of a kind is for the worker only; a contract forbids the server to import it."""
    return name.startswith("digits.kinds.") and "network" in name.split(".")


def test_the_server_never_loads_tensorflow(load):
    names = [name for name in in_zone(*SERVER) if name != "digits.__main__" and not of_the_worker(name)]
    loaded, output = load(names)
    assert offenders(loaded, TENSORS) == {}
    assert output == "", "importing printed something"


def test_the_runtime_never_loads_a_web_framework(load):
    loaded, _ = load(in_zone("runtime"))
    assert offenders(loaded, WEB - {"gevent"}) == {}


def test_core_loads_only_the_standard_library_and_msgspec(load):
    loaded, _ = load(in_zone("core"))
    assert {name: came for name, came in loaded.items() if not set(came) <= CORE} == {}


def test_data_loads_few_third_party_packages(load):
    loaded, _ = load(in_zone("data"))
    came = {package for packages in loaded.values() for package in packages if not package.startswith("_")}
    assert came <= DATA


@pytest.mark.tensorflow
def test_the_worker_never_loads_web_packages(load):
    loaded, _ = load(
        [
            name
            for name in modules()
            if of_the_worker(name) or (name in in_zone("worker") and name != "digits.worker.__main__")
        ],
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    assert offenders(loaded, WEB - {"werkzeug"}) == {}  # TensorBoard's log writer loads Werkzeug


@pytest.mark.parametrize(
    "name", ["digits.worker.run", "digits.worker.tasks.create_dataset", "digits.worker.forkserver"]
)
def test_creating_a_dataset_does_not_load_tensorflow(load, name):
    loaded, _ = load([name])
    assert offenders(loaded, TENSORS | WEB) == {}
