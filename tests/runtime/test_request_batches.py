"""Dynamic batching of concurrent requests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import gevent
import pytest
from gevent.event import Event

from digits.core.errors import BadRequest, TooBusy, TookTooLong
from digits.runtime.request_batches import ClientRequest, RequestBatches

MODEL = Path("/model")


class Server:
    """Answers requests with their bodies once ``go`` is set, and records the batches."""

    def __init__(self) -> None:
        self.go, self.batches = Event(), []

    def exchange(
        self, folder: Path, message: dict[str, Any], attached: Sequence[IO[bytes]]
    ) -> tuple[dict[str, Any], list[bytearray]]:
        bodies = [read(file) for file in attached]
        self.batches.append(bodies)
        self.go.wait()
        if b"fails" in bodies:
            raise BadRequest("it failed")
        assert all(request["attached"] == 1 and request["seconds"] <= 30 for request in message["requests"])
        answers = [
            {"status": 400, "message": "a bad one", "hint": ""}
            if body == b"bad"
            else {"status": 200, "images": 1, "headers": {}}
            for body in bodies
        ]
        return {"answers": answers, "batches": [len(bodies)]}, [bytearray(body) for body in bodies]


def read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def request(body: bytes) -> ClientRequest:
    return ClientRequest("json", "name", [io.BytesIO(body)])


def ask(batches: RequestBatches, body: bytes) -> bytes:
    return bytes(batches.predict(MODEL, "snapshot_1.ckpt", request(body)).body)


def ask_all(batches: RequestBatches, bodies: Sequence[bytes]) -> list[gevent.Greenlet]:
    """Ask in turn; the first request is the first batch."""
    waiting = []
    for body in bodies:
        waiting.append(gevent.spawn(ask, batches, body))
        gevent.sleep(0.002)  # the first batch waits for one iteration of the event loop
    return waiting


def test_requests_that_arrive_during_a_batch_are_predicted_together() -> None:
    server = Server()
    sizes: list[int] = []
    batches = RequestBatches(server.exchange, max_batch=3, sizes=sizes.append)
    waiting = ask_all(batches, [b"1", b"2", b"3", b"4", b"5"])
    server.go.set()
    gevent.joinall(waiting)
    assert [greenlet.value for greenlet in waiting] == [b"1", b"2", b"3", b"4", b"5"]
    assert server.batches == [[b"1"], [b"2", b"3", b"4"], [b"5"]]
    assert sizes == [1, 3, 1]


def test_requests_that_arrive_together_are_predicted_together() -> None:
    server = Server()
    server.go.set()
    batches = RequestBatches(server.exchange)
    waiting = [gevent.spawn(ask, batches, body) for body in (b"1", b"2", b"3")]
    gevent.joinall(waiting)
    assert [greenlet.value for greenlet in waiting] == [b"1", b"2", b"3"]
    assert server.batches == [[b"1", b"2", b"3"]]


def test_a_batch_waits_for_clients_that_ask_again_as_long_as_the_batch_before_took() -> None:
    server = Server()

    def exchange(*arguments: Any) -> tuple[dict[str, Any], list[bytearray]]:
        gevent.sleep(0.015)
        return server.exchange(*arguments)

    server.go.set()
    batches = RequestBatches(exchange)

    def client(number: int) -> None:
        for _ in range(10):
            ask(batches, bytes([number]))
            gevent.sleep(0.006 + 0.0005 * number)  # until it has read the answer and asks again

    gevent.joinall([gevent.spawn(client, number) for number in range(8)], raise_error=True)
    assert sum(map(len, server.batches)) == 80
    assert [len(batch) for batch in server.batches].count(1) <= 2


def test_batches_are_bounded_by_the_size_of_the_bodies() -> None:
    server = Server()
    batches = RequestBatches(server.exchange, max_batch_bytes=100)
    bodies = [bytes([number]) * size for number, size in enumerate([10, 60, 40, 1, 300, 50, 50])]
    waiting = ask_all(batches, bodies)
    server.go.set()
    gevent.joinall(waiting)
    assert [greenlet.value for greenlet in waiting] == bodies
    assert [[len(body) for body in batch] for batch in server.batches] == [
        [10],
        [60, 40],
        [1],
        [300],
        [50, 50],
    ]


def test_an_error_affects_only_its_request_or_requests_in_the_same_batch() -> None:
    server = Server()
    batches = RequestBatches(server.exchange)
    first, bad, good = ask_all(batches, [b"1", b"bad", b"2"])
    server.go.set()
    gevent.joinall([first, bad, good])
    assert isinstance(bad.exception, BadRequest) and good.value == b"2"
    with pytest.raises(BadRequest, match="it failed"):
        ask(batches, b"fails")
    assert ask(batches, b"7") == b"7"


@pytest.mark.parametrize("limits", [{"max_waiting": 2}, {"max_waiting_bytes": 10}])
def test_a_full_queue_rejects_requests(limits: dict[str, int]) -> None:
    server = Server()
    batches = RequestBatches(server.exchange, **limits)
    waiting = ask_all(batches, [b"1", b"12345", b"67890"])
    refused = request(b"x")
    with pytest.raises(TooBusy, match="2 requests are waiting"):
        batches.predict(MODEL, "snapshot_1.ckpt", refused)
    assert refused.files[0].closed
    server.go.set()
    gevent.joinall(waiting)
    assert [greenlet.value for greenlet in waiting] == [b"1", b"12345", b"67890"]


def test_a_request_that_times_out_is_removed_from_the_queue() -> None:
    server = Server()
    batches = RequestBatches(server.exchange, wait_seconds=0.02)
    (first,) = ask_all(batches, [b"1"])
    gevent.sleep(0)  # the first batch has started
    late = request(b"2")
    with pytest.raises(TookTooLong):
        batches.predict(MODEL, "snapshot_1.ckpt", late)
    assert late.files[0].closed
    server.go.set()
    first.join()
    assert isinstance(first.exception, TookTooLong)
    assert ask(batches, b"3") == b"3"
    assert server.batches == [[b"1"], [b"3"]]
