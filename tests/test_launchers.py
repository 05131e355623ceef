"""The scripts of a checkout, with a fake Python that records its calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent

# Imitates the Python, venv and pip calls of the scripts.
STAND_IN = """#!/bin/sh
echo "$*" >>"$STAND_IN_NOTES"
case "$*" in
    *"import sys; sys.exit(not"*) exit "${STAND_IN_UNFIT:-0}" ;;
    *"import ensurepip, venv"*) exit "${STAND_IN_NO_VENV:-0}" ;;
    *"-venv"*) echo python3.99-venv ;;
    "--version") echo "Python 3.99" ;;
    "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *"pip install"*)
        [ -z "$STAND_IN_OFFLINE" ] || { echo "ERROR: no connection"; exit 1; }
        folder="$(dirname "$0")"
        printf '#!/bin/sh\\necho "started $*"\\n' >"$folder/digits" && chmod +x "$folder/digits"
        [ -n "$STAND_IN_NO_UV" ] || cp "$0" "$folder/uv"
        mkdir -p "$folder/../../static/vendor" && : >"$folder/../../static/vendor/.stamp"
        ;;
esac
"""


class Checkout:
    """A copy of the scripts and the files they read, with a fake Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.python = folder / "stand-in"
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)
        for (
            name
        ) in "digits-devserver digits-test setup.py pyproject.toml package.json package-lock.json".split():
            shutil.copy(ROOT / name, folder)
        shutil.copytree(ROOT / "tools", folder / "tools")
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        shutil.copytree(ROOT / "static" / "src", folder / "static" / "src")

    def start(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        done = self.run("digits-devserver", *arguments, **variables)
        if done.returncode == 0:
            self.await_documentation()
        return done

    def await_documentation(self) -> None:
        """Wait until the documentation is built, beside the server."""
        until = time.monotonic() + 60
        while not (self.folder / ".venv/.ready-docs").exists():
            assert time.monotonic() < until
            time.sleep(0.01)

    def run(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        self.notes.write_text("")
        stand_in = {"DIGITS_PYTHON": str(self.python), "STAND_IN_NOTES": str(self.notes)}
        command = [str(self.folder / script), *arguments]
        environment = os.environ | stand_in | variables
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", check=False)

    @property
    def asked(self) -> list[str]:
        return self.notes.read_text().splitlines()

    @property
    def checks(self) -> list[str]:
        """Return the programs that checked the code and ran its tests."""
        asked = [line for line in self.asked if "--collect-only" not in line]
        return [line.split()[1] for line in asked if line.startswith(("-m ruff", "-m mypy", "-m pytest"))]

    @property
    def installed(self) -> set[str]:
        """Return the purposes for which packages were installed."""
        return set(re.findall(r"/requirements/(\w+)\.txt", "\n".join(self.asked))) - {"uv"}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_start_installs_packages_and_serves(checkout):
    answer = checkout.start("-p", "5001")
    assert (answer.returncode, answer.stdout) == (0, "started -p 5001\n")
    assert any("pip install" in line and str(checkout.folder) in line for line in checkout.asked)
    assert f"{checkout.folder}/tools/frontend.py" in checkout.asked
    assert "Ready." in answer.stderr


def test_packages_are_verified_by_hash(checkout):
    checkout.start()
    uv, packages, itself = (line for line in checkout.asked if "pip install" in line)
    for line in (uv, packages):
        assert "--require-hashes" in line and "--only-binary :all:" in line
    assert uv.endswith("/requirements/uv.txt") and packages.startswith("pip install --system-certs")
    assert "--no-deps" in itself and "--no-build-isolation" in itself
    assert checkout.installed == {"docs", "serve"}


def test_pip_installs_the_same_packages_where_uv_does_not_run(checkout):
    checkout.start(STAND_IN_NO_UV="1")
    _, packages, itself = (line for line in checkout.asked if "pip install" in line)
    assert packages.startswith("-m pip install") and "--require-hashes --only-binary :all:" in packages
    assert "--no-deps" in itself
    assert checkout.installed == {"docs", "serve"}


def test_uv_uses_the_package_index_of_pip(checkout):
    stand_in = STAND_IN.replace(
        "#!/bin/sh\n", '#!/bin/sh\necho "index $UV_DEFAULT_INDEX" >>"$STAND_IN_NOTES"\n'
    )
    checkout.python.write_text(stand_in)
    checkout.start(PIP_INDEX_URL="https://packages.example/simple")
    assert "index https://packages.example/simple" in checkout.asked
    checkout.folder.joinpath("setup.py").write_text("changed")
    checkout.start(
        UV_DEFAULT_INDEX="https://other.example/simple", PIP_INDEX_URL="https://packages.example/simple"
    )
    assert "index https://packages.example/simple" not in checkout.asked


def test_a_missing_node_is_installed_as_a_package(checkout, bare_system):
    checkout.start(PATH=str(bare_system))
    assert checkout.installed == {"docs", "node", "serve"}


def test_the_second_start_installs_nothing(checkout):
    checkout.start()
    answer = checkout.start("--debug")
    assert (answer.stdout, answer.stderr, checkout.asked) == ("started --debug\n", "", [])


@pytest.mark.parametrize(
    "changed", ["requirements/serve.txt", "setup.py", "package-lock.json", "static/src/uplot.js"]
)
def test_changed_requirements_are_installed_again(checkout, changed):
    checkout.start()
    with open(checkout.folder / changed, "a") as file:
        file.write("\n")
    checkout.start()
    assert any("pip install" in line for line in checkout.asked)
    assert not any("-m venv" in line for line in checkout.asked)


def test_the_documentation_is_built_beside_the_server_and_before_tests(checkout):
    gate = checkout.folder / "gate"
    waits = f'case "$*" in\n    *sphinx*) until [ -e {gate} ]; do sleep 0.01; done ;;'
    checkout.python.write_text(STAND_IN.replace('case "$*" in', waits, 1))
    stamp = checkout.folder / ".venv" / ".ready-docs"
    assert checkout.run("digits-devserver").stdout == "started \n"
    assert not stamp.exists()
    gate.touch()
    checkout.await_documentation()
    stamp.unlink()
    checkout.run("digits-test", "-q")
    assert [line for line in checkout.asked if "-m sphinx" in line] and stamp.exists()


def test_a_moved_checkout_is_set_up_again(checkout, tmp_path_factory):
    checkout.start()
    moved = tmp_path_factory.mktemp("moved") / "here"
    checkout.folder.rename(moved)
    checkout.folder, checkout.notes, checkout.python = moved, moved / "notes", moved / "stand-in"
    checkout.start()
    assert any("pip install" in line and str(moved) in line for line in checkout.asked)


def test_a_failed_install_is_reported_and_retried(checkout):
    answer = checkout.start(STAND_IN_OFFLINE="1")
    assert answer.returncode == 1
    assert "ERROR: no connection" in answer.stderr
    assert "HTTPS_PROXY" in answer.stderr
    assert answer.stdout == ""
    assert checkout.start().stdout == "started \n"


def test_an_unsuitable_python_is_reported_with_a_remedy(checkout):
    answer = checkout.start(STAND_IN_UNFIT="1")
    assert answer.returncode == 1
    assert "No Python 3.11, 3.12 or 3.13" in answer.stderr
    assert "DIGITS_PYTHON=" in answer.stderr


def test_a_missing_venv_module_is_reported_with_its_package(checkout):
    answer = checkout.start(STAND_IN_NO_VENV="1")
    assert answer.returncode == 1
    assert "apt-get install python3.99-venv" in answer.stderr


def test_an_nvidia_driver_selects_the_cuda_packages(checkout, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n")
    (tools / "nvidia-smi").chmod(0o755)
    checkout.start(PATH=f"{tools}:{os.environ['PATH']}")
    assert checkout.installed == {"docs", "gpu", "serve"}


# System programs used by the scripts.
SYSTEM = "bash sh cat cp dirname env grep mkdir nice sha256sum tail tee".split()


@pytest.fixture
def bare_system(tmp_path: Path) -> Path:
    """A folder for PATH that imitates a system without Chromium whose apt-get can install it."""
    folder = tmp_path / "system"
    folder.mkdir()
    for name in SYSTEM:
        (folder / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    write_program(
        folder / "apt-get",
        f'echo "apt-get $*" >>"$STAND_IN_NOTES"; : >{folder}/chromium-headless-shell; chmod +x {folder}/*',
    )
    write_program(folder / "id", "echo 0")
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)


def test_style_is_checked_before_tests_run_and_types_beside_them(checkout):
    assert checkout.run("digits-test", STAND_IN_UNFIT="0").returncode == 0
    assert checkout.checks[:2] == ["ruff", "ruff"]
    assert sorted(checkout.checks[2:]) == ["mypy", "pytest"]


def test_a_quick_check_skips_slow_and_browser_tests(checkout, bare_system):
    assert checkout.run("digits-test", "--quick", PATH=str(bare_system)).returncode == 0
    assert sorted(checkout.checks) == ["mypy", "pytest", "ruff", "ruff"]
    (tests,) = (line for line in checkout.asked if line.startswith("-m pytest --numprocesses"))
    for mark in ("integration", "tensorflow", "browser", "network", "slow", "nightly"):
        assert f"not {mark}" in tests
    assert not any("chromium" in line for line in checkout.asked)


@pytest.mark.parametrize(("arguments", "is_included"), [([], False), (["--all"], True)])
def test_nightly_tests_run_only_with_all(checkout, arguments, is_included):
    assert checkout.run("digits-test", *arguments).returncode == 0
    (tests,) = (line for line in checkout.asked if line.startswith("-m pytest --numprocesses"))
    assert ("not nightly" not in tests) == is_included
    assert "--all" not in tests


def test_tests_are_compiled_once_in_a_new_checkout(checkout):
    def collections() -> int:
        assert checkout.run("digits-test").returncode == 0
        return sum("--collect-only" in line for line in checkout.asked)

    assert collections() == 1
    (checkout.folder / "tests" / "__pycache__").mkdir(parents=True)
    assert collections() == 0


@pytest.mark.parametrize(
    ("check", "also_run"),
    [
        ("-m ruff check .", []),
        ("-m mypy", ["mypy", "pytest", "ruff"]),
        ("-m pytest*", ["mypy", "pytest", "ruff"]),
    ],
)
def test_a_failed_check_fails_the_run(checkout, check, also_run):
    checkout.run("digits-test")
    python = checkout.folder / ".venv" / "bin" / "python"
    pattern = check.replace(" ", "\\ ")
    python.write_text(STAND_IN.replace('case "$*" in', f'case "$*" in\n    {pattern}) exit 3 ;;', 1))
    answer = checkout.run("digits-test")
    assert answer.returncode in (1, 3)
    assert sorted(checkout.checks) == sorted(["ruff", *also_run])
    assert ("The types are wrong" in answer.stderr) == (check == "-m mypy")


def test_arguments_run_only_pytest(checkout):
    checkout.run("digits-test")
    checkout.run("digits-test", "tests/cli/test_serve.py", "-k", "port")
    assert checkout.asked == ["-m pytest tests/cli/test_serve.py -k port"]


def test_testing_also_installs_serving_requirements(checkout):
    checkout.run("digits-test", "-q")
    assert checkout.installed == {"docs", "serve", "test"}
    checkout.start()
    assert checkout.asked == []


def test_a_missing_chromium_is_installed_if_possible(checkout, bare_system):
    answer = checkout.run("digits-test", PATH=str(bare_system), TMPDIR=str(checkout.folder))
    assert answer.returncode == 0, answer.stderr
    assert "apt-get install --yes --no-install-recommends chromium-headless-shell" in checkout.asked


def test_a_missing_chromium_that_cannot_be_installed_is_reported(checkout, bare_system):
    write_program(bare_system / "id", "echo 1000")
    answer = checkout.run("digits-test", PATH=str(bare_system))
    assert answer.returncode == 1
    assert "apt-get install chromium-headless-shell" in answer.stderr
    assert not any("apt-get" in line for line in checkout.asked)


@pytest.mark.parametrize("user", ["0", "1000"])
def test_the_complete_chromium_is_enough(checkout, bare_system, user):
    write_program(bare_system / "id", f"echo {user}")
    write_program(bare_system / "apt-get", "exit 1")
    write_program(bare_system / "chromium", "")
    answer = checkout.run("digits-test", PATH=str(bare_system), TMPDIR=str(checkout.folder))
    assert answer.returncode == 0, answer.stderr
