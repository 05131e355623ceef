"""Measure what large requests cost the server: memory, and the time that other requests wait meanwhile.

    .venv/bin/python benchmarks/large_requests.py [--requests 2000] [--seed 0] [--slowest 5]

Starts a server with two datasets and two models, and sends it requests of up to 70 MB to random routes, with random
methods, content types, fields and shapes, those that once were expensive, and those for large folders. Prints one line
of JSON: the largest growth of the server's memory in MB, streamed uploads excluded, the longest wait of ``/health`` in
milliseconds of the server's CPU time, the targets, and the requests with the largest values.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.large_requests import Costs, Request, hard_requests, large_inputs, large_server, random_request  # noqa: E402

# Files in each of the large folders.
LARGE_COUNT = 20_000
TARGET_MB = 100
TARGET_MILLISECONDS = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slowest", type=int, default=5)
    options = parser.parse_args()
    random = Random(options.seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        large_server(Path(folder), LARGE_COUNT) as server,
        Costs(server) as costs,
    ):
        drawn = [random_request(server, random) for _ in range(options.requests)]
        measured = [
            (request, *costs.measure(request))
            for request in [*hard_requests(server), *large_inputs(server), *drawn]
        ]
    growth = [(size, request) for request, _, size, _ in measured if not request.is_streamed_upload]
    waits = [(wait, request) for request, _, _, wait in measured]

    def largest(pairs: list[tuple[float, Request]], unit: float) -> dict[str, float]:
        order = sorted(pairs, key=lambda pair: -pair[0])[: options.slowest]
        return {str(request): round(value / unit, 1) for value, request in order}

    result = {
        "requests": len(measured),
        "statuses": dict(sorted(Counter(status for _, status, _, _ in measured).items())),
        "growth_mb": round(max(size for size, _ in growth) / 1e6, 1),
        "target_mb": TARGET_MB,
        "health_wait_ms": round(1000 * max(wait for wait, _ in waits), 1),
        "target_ms": TARGET_MILLISECONDS,
        "largest_growth_mb": largest([(float(size), request) for size, request in growth], 1e6),
        "longest_waits_ms": largest(waits, 1e-3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
