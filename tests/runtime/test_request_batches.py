"""Dynamic batching of concurrent requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from digits.core.errors import BadRequest, TooBusy, TookTooLong
from digits.runtime.request_batches import RequestBatches

MODEL = Path("/model")


class Server:
    """Answers requests once ``go`` is set, and records the batches."""

    def __init__(self) -> None:
        self.go, self.batches = Event(), []

    def ask(self, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        numbers = [item["number"] for item in request["items"]]
        self.batches.append(numbers)
        self.go.wait()
        if -1 in numbers:
            raise BadRequest("a bad one")
        return {"answers": [{"values": number} for number in numbers]}


def items(*numbers: int) -> list[dict[str, int]]:
    return [{"number": number} for number in numbers]


def test_images_that_arrive_during_a_batch_are_predicted_together():
    server = Server()
    sizes: list[int] = []
    batches = RequestBatches(server.ask, max_batch=3, sizes=sizes.append)
    waiting = []
    for numbers in ([1], [2, 3], [4], [5]):
        waiting.append(gevent.spawn(batches.predict, MODEL, "snapshot_1.ckpt", items(*numbers)))
        gevent.sleep(0)
    server.go.set()
    gevent.joinall(waiting)
    assert [greenlet.value for greenlet in waiting] == [
        [{"values": 1}],
        [{"values": 2}, {"values": 3}],
        [{"values": 4}],
        [{"values": 5}],
    ]
    assert server.batches == [[1], [2, 3, 4], [5]]
    assert sizes == [1, 3, 1]


def test_a_request_without_images_is_complete():
    server = Server()
    assert RequestBatches(server.ask, wait_seconds=1).predict(MODEL, "snapshot_1.ckpt", []) == []
    assert server.batches == []


def test_an_error_affects_only_requests_in_the_same_batch():
    server = Server()
    server.go.set()
    batches = RequestBatches(server.ask)
    with pytest.raises(BadRequest, match="a bad one"):
        batches.predict(MODEL, "a", items(-1))
    assert batches.predict(MODEL, "a", items(7)) == [{"values": 7}]


def test_a_full_queue_rejects_requests():
    server = Server()
    batches = RequestBatches(server.ask, max_waiting=2)
    first = gevent.spawn(batches.predict, MODEL, "a", items(1))
    gevent.sleep(0)
    gevent.sleep(0)
    second = gevent.spawn(batches.predict, MODEL, "a", items(2, 3))
    gevent.sleep(0)
    with pytest.raises(TooBusy, match="2 images are waiting"):
        batches.predict(MODEL, "a", items(4))
    server.go.set()
    gevent.joinall([first, second])
    assert second.value == [{"values": 2}, {"values": 3}]


def test_a_request_that_times_out_is_removed_from_the_queue():
    server = Server()
    batches = RequestBatches(server.ask, wait_seconds=0.02)
    first = gevent.spawn(batches.predict, MODEL, "a", items(1))
    gevent.sleep(0)
    gevent.sleep(0)  # the first batch has started
    with pytest.raises(TookTooLong):
        batches.predict(MODEL, "a", items(2))
    server.go.set()
    first.join()
    assert isinstance(first.exception, TookTooLong)
    assert batches.predict(MODEL, "a", items(3)) == [{"values": 3}]
    assert server.batches == [[1], [3]]
