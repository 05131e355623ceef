"""Count the open files of a server before and after pages, with a limit of 1,024.

    .venv/bin/python benchmarks/descriptors.py [--pages 2000]

Starts a server, creates a dataset, trains and evaluates a model, and requests everything once, so that caches and
thread pools are filled. Then requests the pages again, and prints one line of JSON: the number of open files of the
server before and after, the target of their difference, and the statuses that were not 200.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import urllib.error
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.leftovers import open_files  # noqa: E402
from tests.real_server import RealServer, create_dataset, start_training  # noqa: E402
from tests.site import bars  # noqa: E402

MAX_DESCRIPTORS = 1024
TARGET = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=2000)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
    with tempfile.TemporaryDirectory() as folder:
        bars(Path(folder, "data", "bars"))
        server = RealServer(Path(folder))
        try:
            print(json.dumps(measure(server, options.pages)))
        finally:
            server.stop()


def measure(server: RealServer, pages: int) -> dict[str, Any]:
    server.wait_until_warm()
    dataset = create_dataset(server)
    model = start_training(server, dataset, train_epochs=1)
    server.wait_for_status(model, "Done")
    server.read(f"/models/{model}/evaluation", "POST")
    server.wait(lambda: server.ask(f"/models/{model}/evaluation.json")["state"] == "done")
    paths = [f"/models/{model}", f"/datasets/{dataset}", f"/models/{model}/evaluation", "/", "/docs/"]
    statuses = statuses_of(server, paths)
    before = open_descriptors(server)
    statuses += statuses_of(server, (paths[number % len(paths)] for number in range(pages)))
    return {
        "before": before,
        "after": open_descriptors(server),
        "target_difference": TARGET,
        "errors": {status: count for status, count in statuses.items() if status != 200},
    }


def statuses_of(server: RealServer, paths: Iterable[str]) -> Counter[int]:
    found: Counter[int] = Counter()
    for path in paths:
        try:
            server.read(path)
            found[200] += 1
        except urllib.error.HTTPError as error:
            found[error.code] += 1
    return found


def open_descriptors(server: RealServer) -> int:
    return len(open_files(process=server.process.pid))


if __name__ == "__main__":
    main()
