"""Messages with attachments over a socket."""

from __future__ import annotations

import io
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from digits.core.messages import MAX_ATTACHED_BYTES, Channel

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


def test_messages_and_attachments_arrive_in_order(pair: Pair) -> None:
    big = bytes(range(256)) * 20_000
    sent = [
        ({"a": "\n"}, [b"one\n", b"", big]),
        ([1, float("inf")], []),
        ({"text": "x" * 1_000_000}, [b"\n"]),
    ]

    channel = Channel(pair[1])

    def send() -> None:
        sender = Channel(pair[0])
        for message, attached in sent:
            sender.send(message, [io.BytesIO(data) for data in attached])
        pair[0].shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    for message, attached in sent:
        received = channel.receive()
        assert received is not None
        if attached:
            assert received[0].pop("attached") == [len(data) for data in attached]
        assert received == (message, attached)
    assert channel.receive() is None
    thread.join()


def test_an_attachment_is_held_once(pair: Pair) -> None:
    size = 20_000_000
    thread = threading.Thread(target=Channel(pair[0]).send, args=({}, [io.BytesIO(bytes(size))]))
    thread.start()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert Channel(pair[1]).receive() is not None
        assert tracemalloc.get_traced_memory()[1] - before < 1.2 * size
    finally:
        tracemalloc.stop()
        thread.join()


@pytest.mark.parametrize("attached", [[-1], ["x"], [1 << 60], {}, [MAX_ATTACHED_BYTES, 1]])
def test_sizes_are_checked_before_memory_is_allocated(pair: Pair, attached: object) -> None:
    pair[0].sendall(json.dumps({"attached": attached}).encode() + b"\n")
    with pytest.raises(OSError, match="attachments"):
        Channel(pair[1]).receive()


@pytest.mark.parametrize("data", [b'{"a"', b'{"attached": [5]}\n1234'])
def test_a_connection_that_ends_within_a_message_is_an_error(pair: Pair, data: bytes) -> None:
    pair[0].sendall(data)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match="closed"):
        Channel(pair[1]).receive()


def test_the_connection_can_be_used_after_a_line_that_is_not_json(pair: Pair) -> None:
    pair[0].sendall(b'{no\n{"a": 1}\n')
    channel = Channel(pair[1])
    with pytest.raises(ValueError, match="Expecting"):
        channel.receive()
    assert channel.receive() == ({"a": 1}, [])
