"""The contents of an installed DIGITS, and its requirements."""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from tests import once

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent
# Packages whose name differs from that of their module.
PACKAGES = {
    "PIL": "pillow",
    "ai_edge_litert": "ai-edge-litert",
    "argon2": "argon2-cffi",
    "cykooz_resizer": "cykooz-resizer",
    "flask_socketio": "flask-socketio",
    "flask_wtf": "flask-wtf",
    "google_crc32c": "google-crc32c",
    "google": "protobuf",
    # TensorFlow pins a compatible version.
    "h5py": "tensorflow",
    "markupsafe": "jinja2",
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "socketio": "python-socketio",
    "tf_slim": "tf-slim",
}
# Required but not imported by name: Flask-SocketIO looks for these, and TensorBoard is a separate program.
INDIRECT = {"jinja2", "python-socketio", "simple-websocket", "tensorboard"}


@pytest.fixture(scope="module")
def build(run_folder: Path) -> tuple[Path, str]:
    """The wheel that ``pip wheel`` builds from a copy of the checkout with bundled scripts, and what the build prints."""
    made = once.make_once(run_folder / "wheel", build_wheel)
    (path,) = made.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    return path, (made / "output").read_text()


def build_wheel(folder: Path) -> None:
    assert (ROOT / "static" / "vendor" / ".stamp").is_file(), (
        "the scripts are not bundled: run ./digits-devserver once"
    )
    copy = copy_checkout(folder)
    # The build uses the setuptools of this environment, without network access.
    options = ["--verbose", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, "."]
    built = subprocess.run(
        command, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert built.returncode == 0, built.stdout
    (folder / "output").write_text(built.stdout)


def copy_checkout(folder: Path) -> Path:
    copy = folder / "digits"
    unwanted = [".git", ".venv", "node_modules", "tests", "__pycache__", "*.egg-info", "build", ".*_cache"]
    anywhere = shutil.ignore_patterns(*unwanted)
    data = {str(ROOT / "jobs"), str(ROOT / "samples")}
    shutil.copytree(
        ROOT,
        copy,
        ignore=lambda folder, names: (
            anywhere(folder, names) | {name for name in names if str(Path(folder, name)) in data}
        ),
    )
    return copy


def test_a_checkout_is_installed_without_building_the_documentation(tmp_path):
    copy = copy_checkout(tmp_path)
    shutil.rmtree(copy / "static" / "docs", ignore_errors=True)
    build = f"import setuptools.build_meta as backend; backend.build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=copy, stdout=subprocess.DEVNULL, check=True)
    assert list(tmp_path.glob("*.whl")) and not (copy / "static" / "docs").exists()


def test_the_scripts_are_bundled_without_installed_packages():
    command = [sys.executable, "-I", "-S", ROOT / "tools" / "frontend.py"]
    subprocess.run(command, env={}, check=True)


@pytest.fixture(scope="module")
def wheel(build: tuple[Path, str]) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(build[0]) as archive:
        yield archive


def test_the_documentation_builds_without_warnings_such_as_broken_links(build):
    lines = build[1].splitlines()
    assert any("running build_docs" in line for line in lines)
    # Lines of the build are indented; others are those of pip.
    assert [line for line in lines if line.startswith(" ") and re.search("WARNING|ERROR", line)] == []


def own_files(folder: str, *suffixes: str) -> set[str]:
    """Return paths below a folder of the checkout as expected in the wheel."""
    return {
        f"digits/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*") if path.suffix in suffixes
    }


def test_the_wheel_contains_pages_and_scripts(wheel):
    files = set(wheel.namelist())
    assert own_files("templates", ".html") <= files
    partials = {
        str(path.relative_to(ROOT)) for path in (ROOT / "digits" / "kinds").glob("*/templates/*.html")
    }
    assert partials and partials <= files
    built = {f"digits/static/docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert built | {"digits/static/docs/searchindex.js", "digits/static/docs/_static/site.css"} <= files
    assert own_files("static/js", ".js") | own_files("static/css", ".css") <= files
    assert own_files("static/img", ".svg", ".png", ".ico") <= files


def test_the_wheel_contains_bundled_scripts_and_their_licenses(wheel):
    names = {name.removeprefix("digits/static/vendor/") for name in wheel.namelist() if "/vendor/" in name}
    built = {f"{path.stem}{path.suffix}" for path in (ROOT / "static" / "src").glob("*.[jc]s*")}
    assert names == built | {"THIRD_PARTY_LICENSES.txt"}
    notices = wheel.read("digits/static/vendor/THIRD_PARTY_LICENSES.txt").decode()
    for package in ("socket.io-client 4", "uplot 1", "@codemirror/view 6"):
        assert package in notices


def test_installing_the_wheel_needs_no_node(wheel, tmp_path):
    """Pip only copies the files, and the installed program finds its pages, documentation and scripts."""
    target = tmp_path / "site"
    install = "-m pip install --quiet --no-deps --no-index --no-compile --target".split()
    empty = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *install, str(target), str(wheel.filename)],
        env=empty,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    program = (
        "from digits.core.resources import checkout_folder, resource_folder\n"
        "assert checkout_folder() is None\n"
        "print(*(resource_folder(name) for name in ('static', 'templates')), sep='\\n')\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**empty, "PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == [str(target / "digits" / name) for name in ("static", "templates")]
    assert list((target / "digits" / "static" / "vendor").glob("*.js"))


def test_the_wheel_contains_every_module(wheel):
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "digits").rglob("*.py")}
    assert modules <= set(wheel.namelist())


def test_the_wheel_contains_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"digits"}
    unwanted = re.compile(r"tests/|node_modules|static/src|__pycache__|axe\.")
    assert [name for name in wheel.namelist() if unwanted.search(name)] == []


def test_the_command_and_the_extras_are_declared(wheel):
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "digits = digits.cli.main:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    about = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert set(about.get_all("Provides-Extra")) == {
        "docs",
        "gpu",
        "heif",
        "parquet",
        "ray",
        "s3",
        "test",
        "vit",
    }
    assert about["License-Expression"] == "BSD-3-Clause"
    needs = [need for need in about.get_all("Requires-Dist") if "extra" not in need]
    assert any(need.startswith("tensorflow") for need in needs)


def test_every_import_is_required(wheel):
    assert outside_packages() <= requirements(wheel)


def test_every_requirement_is_used(wheel):
    assert requirements(wheel) <= outside_packages() | INDIRECT


def requirements(wheel: zipfile.ZipFile) -> set[str]:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist")
    return {re.match(r"[\w-]+", need)[0].lower() for need in needs if "extra" not in need}


@functools.cache
def outside_packages() -> set[str]:
    """Return all packages whose modules the program imports, except those of extras."""
    found: set[str] = set()
    for path in (ROOT / "digits").rglob("*.py"):
        if path.parent.name == "networks":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.partition(".")[0])
    return {
        PACKAGES.get(name, name) for name in found - sys.stdlib_module_names - {"digits", "__future__", "ray"}
    }


def test_every_requirement_has_an_exact_version(wheel):
    pinned = {
        line.partition("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert requirements(wheel) <= pinned


def test_every_exact_version_is_locked_with_hashes():
    """The lock files of all purposes together cover constraints.txt; tools/lock.py generates them."""
    locked: dict[str, str] = {}
    for path in (ROOT / "requirements").glob("*.txt"):
        for block in re.findall(r"^\w.*\n(?: .*\n)*", path.read_text(), re.M):
            name, version = re.match(r"([\w.-]+)==(\S+)", block).groups()
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), name
            assert name not in locked, "locked for more than one purpose"
            locked[name] = version
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert locked == {re.sub(r"[._-]+", "-", name): version for name, version in pinned.items()}


def test_no_file_names_a_download_host():
    names = ["constraints.txt", "setup.py", "pyproject.toml", ".npmrc"]
    folders = [*(ROOT / "tools").iterdir(), *(ROOT / "requirements").iterdir()]
    for path in [*map(ROOT.joinpath, names), *filter(Path.is_file, folders)]:
        assert not re.search(r"https?://|--(extra-)?index-url|index-url *=|registry *=", path.read_text()), (
            path.name
        )
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()


def test_third_party_scripts_are_pinned_exactly():
    about = json.loads((ROOT / "package.json").read_text())
    for name, version in {**about["dependencies"], **about["devDependencies"]}.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), name


def test_our_scripts_import_only_existing_names(tmp_path):
    """esbuild follows every import of the unbuilt scripts and knows what each module exports."""
    scripts = [str(path) for path in (ROOT / "static" / "js").rglob("*.js")]
    assert scripts
    esbuild = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    command = [
        str(esbuild),
        *scripts,
        "--bundle",
        "--format=esm",
        "--log-level=warning",
        f"--outdir={tmp_path}",
    ]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
