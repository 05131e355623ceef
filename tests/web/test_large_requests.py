"""No request makes the server take much memory or stop responding, whatever its size and shape.

``DIGITS_FUZZ_EXAMPLES`` sets the number of requests, and ``DIGITS_SEED`` repeats those of a run. `benchmarks/large_requests.py` also measures how long others wait.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import psutil
import pytest

from tests.large_requests import (
    Costs,
    Request,
    Server,
    hard_requests,
    large_server,
    random_request,
)

pytestmark = pytest.mark.integration

EXAMPLES = int(os.environ.get("DIGITS_FUZZ_EXAMPLES", "8"))
SEED = int(os.environ.get("DIGITS_SEED") or random.randrange(2**32))
MAX_GROWTH_BYTES = 100_000_000
# A hang; the benchmark reports smaller numbers.
MAX_WAIT_SECONDS = 5.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with large_server(tmp_path_factory.mktemp("large")) as running:
        processes = {running.process.pid, *(child.pid for child in psutil.Process(running.pid).children())}
        yield running
    assert not any(map(psutil.pid_exists, processes))


@pytest.fixture(scope="module")
def costs(server: Server) -> Iterator[Costs]:
    with Costs(server) as measured:
        yield measured


def check(costs: Costs, request: Request) -> None:
    status, growth, wait = costs.measure(request)
    assert status < 500, request
    assert growth < MAX_GROWTH_BYTES or request.is_streamed_upload, request
    assert wait < MAX_WAIT_SECONDS, request


def test_large_requests_take_little(server: Server, costs: Costs) -> None:
    print(f"DIGITS_SEED={SEED}")
    chance = random.Random(SEED)
    for _ in range(EXAMPLES):
        check(costs, random_request(server, chance))


def test_requests_that_were_expensive_take_little(server: Server, costs: Costs) -> None:
    for request in hard_requests(server):
        check(costs, request)
