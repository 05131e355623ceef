"""Long computations leave the event loop to requests."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import gevent
import gevent.os
import pytest

from digits.runtime.turns import next_turn

COMPUTATIONS = 5
MESSAGES = 20
# One turn may have begun before the message, and another one before its arrival is noticed.
MAX_TURNS_PER_MESSAGE = 3


@pytest.mark.integration
def test_messages_are_answered_between_the_turns_of_long_computations() -> None:
    turns = sent = 0
    waited: list[int] = []
    incoming, remote_out = os.pipe()
    remote_in, outgoing = os.pipe()
    gevent.os.make_nonblocking(incoming)

    def compute() -> None:
        nonlocal turns
        while len(waited) < MESSAGES:
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                pass
            turns += 1
            next_turn()

    def reply() -> None:
        for _ in range(MESSAGES):
            gevent.os.nb_read(incoming, 1)
            waited.append(turns - sent)
            os.write(outgoing, b".")

    def send() -> None:
        nonlocal sent
        for _ in range(MESSAGES):
            sent = turns
            os.write(remote_out, b".")
            os.read(remote_in, 1)
            time.sleep(0.003)

    greenlets: list[Any] = [gevent.spawn(reply), *(gevent.spawn(compute) for _ in range(COMPUTATIONS))]
    sender = gevent.get_hub().threadpool.spawn(send)  # a native thread
    gevent.joinall([*greenlets, sender], raise_error=True)
    for descriptor in (incoming, outgoing, remote_in, remote_out):
        os.close(descriptor)
    # The median, because the system may suspend the native thread between counting and sending.
    assert statistics.median(waited) <= MAX_TURNS_PER_MESSAGE
