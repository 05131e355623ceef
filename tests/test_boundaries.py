"""Modules loaded by each zone at run time, in a fresh interpreter, module by module.

The contracts in ``pyproject.toml`` define which zone may import which; import-linter checks them.
"""

from __future__ import annotations

import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
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
# They import optional packages, where these are installed.
OPTIONAL = {"digits.runtime.executors.ray.gang"}
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
    """Return all modules of the package except the shipped networks, which are read as text, and those in `OPTIONAL`."""
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / "digits").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.startswith("digits.networks.") and name not in OPTIONAL]


def in_zone(*wanted: str) -> list[str]:
    """Return the modules of these zones. A zone is a folder or module directly below the package."""
    return [name for name in modules() if name.split(".")[1:2] and name.split(".")[1] in wanted]


def load(
    run_clean: Callable[..., subprocess.CompletedProcess[str]], names: Iterable[str], errors: str = ""
) -> dict[str, list[str]]:
    """Import modules in a fresh interpreter, and return the third-party packages of each."""
    answer = run_clean("-W", "error::SyntaxWarning", "-c", LOAD, *names, TF_CPP_MIN_LOG_LEVEL="3")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("loaded "), f"importing printed: {answer.stdout[:500]}"
    assert re.fullmatch(errors, answer.stderr, re.DOTALL), "importing printed something"
    loaded: dict[str, list[str]] = json.loads(answer.stdout.removeprefix("loaded "))
    return loaded


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


def test_each_zone_of_the_server_loads_only_its_packages(run_clean):
    # The lowest zones come first, because only the first import of a package is seen. The runtime also imports kinds.
    zones = ("core", "data", "runtime", *(zone for zone in SERVER if zone not in ("core", "data", "runtime")))
    names = [name for zone in zones for name in in_zone(zone)]
    loaded = load(
        run_clean, [name for name in names if name != "digits.__main__" and not of_the_worker(name)]
    )
    assert offenders(loaded, TENSORS) == {}

    def came(zone: str) -> set[str]:
        return {package for name in in_zone(zone) for package in loaded[name]}

    assert came("core") <= CORE
    assert {package for package in came("data") if not package.startswith("_")} <= DATA
    assert came("runtime") & WEB <= {"gevent"}


# tests/worker/test_run.py checks all that a training loads, and the contracts what each module imports.
@pytest.mark.nightly
@pytest.mark.tensorflow
def test_the_worker_never_loads_web_packages(run_clean):
    names = [name for name in modules() if of_the_worker(name)] + in_zone("worker")
    loaded = load(run_clean, [name for name in names if name != "digits.worker.__main__"], errors=".*")
    assert offenders(loaded, WEB - {"werkzeug"}) == {}  # TensorBoard's log writer loads Werkzeug


def test_creating_a_dataset_does_not_load_tensorflow(run_clean):
    names = ["digits.worker.run", "digits.worker.tasks.create_dataset", "digits.worker.forkserver"]
    assert offenders(load(run_clean, names), TENSORS | WEB) == {}
