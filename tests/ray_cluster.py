"""Run the tests of ``tests/runtime/executors/real_ray.py`` on a real Ray cluster of two nodes on this machine.

    unshare --user --map-root-user --net --pid --fork --mount-proc --kill-child python -m tests.ray_cluster PYTHON FOLDER

``PYTHON`` has Ray, which listens on all addresses: the namespaces have only loopback, and end all processes with this one.
``FOLDER`` is for all files, with a short name, because those of sockets are limited to 107 characters.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = "DIGITS_RAY_PYTHON"
ADDRESS = "http://127.0.0.1:8265"
TOKEN = "d1" * 32
# Of each object store, in bytes.
STORE = "--object-store-memory=100000000"


def start(python: str, folder: str) -> None:
    """Start a head with one core, and a second node with one core and two GPUs that do not exist."""
    variables = {
        **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
        "TMPDIR": folder,
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    command = [str(Path(python).with_name("ray")), "start", STORE, "--num-cpus=1"]
    head = ["--head", "--node-ip-address=127.0.0.1", "--port=6379", "--dashboard-host=127.0.0.1"]
    subprocess.run(
        [*command, *head, "--dashboard-port=8265", f"--temp-dir={folder}"], env=variables, check=True
    )
    # The default port of the agent is that of the head's.
    other = ["--address=127.0.0.1:6379", "--node-ip-address=127.0.0.2", "--dashboard-agent-listen-port=52366"]
    subprocess.run([*command, *other, "--num-gpus=2"], env=variables, check=True)


def main(python: str, folder: str, *options: str) -> int:
    """Start the cluster, run the tests, and return pytest's exit code."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.environ[PYTHON] = python
    start(python, folder)
    tests = "tests/runtime/executors/real_ray.py"
    return int(pytest.main(["-x", "-q", "-s", f"--basetemp={folder}/tests", tests, *options]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
