"""Measure the startup time of the server: from the command ./digits-devserver to the first page.

    .venv/bin/python benchmarks/startup.py [--runs 5]

The checkout must be set up (the first start does that). Prints one line of JSON: the median and maximum time of all
runs in seconds, and the memory of the server in bytes after its first response.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
TARGET_SECONDS = 1.5
GIVE_UP_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        measured = [measure(Path(folder)) for _ in range(runs)]
    seconds = [item[0] for item in measured]
    result = {
        "median_seconds": round(statistics.median(seconds), 3),
        "worst_seconds": round(max(seconds), 3),
        "target_seconds": TARGET_SECONDS,
        "memory_bytes": max(item[1] for item in measured),
    }
    print(json.dumps(result))


def measure(folder: Path) -> tuple[float, int]:
    """Return the seconds from the command to the first page, and the memory of the server then."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = ["--jobs-dir", folder / "jobs", "--state-dir", folder / "state", "--log-file", folder / "log"]
    command = [ROOT / "digits-devserver", "--port", str(port), *places]
    begun = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fetch(f"http://127.0.0.1:{port}/", process)
        return time.perf_counter() - begun, psutil.Process(process.pid).memory_info().rss
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def fetch(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for the page; raises RuntimeError if the server exits or takes too long."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=GIVE_UP_SECONDS) as answer:
                answer.read()
                return
        except (urllib.error.URLError, ConnectionError) as error:
            if isinstance(error, urllib.error.HTTPError):
                raise
            time.sleep(0.01)
    raise RuntimeError(f"the server did not answer (it ended with {process.returncode})")


if __name__ == "__main__":
    main()
