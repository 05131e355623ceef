"""Detection of code that blocks the event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from werkzeug.test import Client

from digits.web.loop_watch import LoopWatch
from tests.raw_http import small_server
from tests.stalls import Stalls

HELD_SECONDS = 0.05


@pytest.fixture
def watched() -> Iterator[tuple[LoopWatch, dict[str, float]]]:
    found: dict[str, float] = {}
    watch = LoopWatch(lambda label, seconds, cpu_seconds: found.update({label: seconds}), HELD_SECONDS)
    watch.start()
    yield watch, found
    watch.stop()


def test_a_request_that_blocks_the_loop_is_reported(watched):
    watch, found = watched

    def app(environ, start_response):
        time.sleep(HELD_SECONDS if environ["PATH_INFO"] == "/slow" else 0)
        start_response("200 OK", [])
        return [b""]

    client = Client(watch.wrap(app))
    client.get("/quick")
    client.get("/slow")
    assert list(found) == ["GET /slow"] and found["GET /slow"] >= HELD_SECONDS


def test_streaming_responses_are_measured(watched):
    watch, found = watched

    def app(environ, start_response):
        start_response("200 OK", [])
        for _ in range(2):
            time.sleep(HELD_SECONDS)
            yield b"piece"

    Client(watch.wrap(app)).get("/pieces", buffered=True)
    assert list(found) == ["GET /pieces"] and found["GET /pieces"] >= 2 * HELD_SECONDS


def test_waiting_does_not_block_the_loop(watched):
    watch, found = watched

    def app(environ, start_response):
        gevent.sleep(2 * HELD_SECONDS)
        start_response("200 OK", [])
        return [b""]

    Client(watch.wrap(app)).get("/")
    assert found == {}


def test_other_greenlets_are_named_by_their_function(watched):
    _, found = watched

    def work_hard():
        time.sleep(HELD_SECONDS)
        gevent.sleep(0)

    gevent.spawn(work_hard).join()
    (label,) = found
    assert "work_hard" in label


def test_labels_are_safe_for_a_log(watched):
    watch, found = watched

    def app(environ, start_response):
        time.sleep(HELD_SECONDS)
        start_response("200 OK", [])
        return [b""]

    Client(watch.wrap(app)).get("/a%0Ab" + "c" * 1000)
    (label,) = found
    assert "\n" not in label and len(label) < 300


@pytest.mark.integration
def test_the_server_logs_code_that_blocks_its_loop(tmp_path: Path) -> None:
    with small_server(tmp_path) as server:
        assert server.get("/hold?seconds=0.3").body == b"held"
        assert server.get("/").body == b"home"
    stalls = Stalls()
    stalls.read_logs(tmp_path)
    assert stalls.seconds["GET /hold"] >= 0.3 and "GET /hold" in stalls.summary()
    assert stalls.hangs() == {}


def test_the_cpu_time_of_a_blocking_call_is_short() -> None:
    found: list[tuple[str, float, float]] = []
    watch = LoopWatch(lambda *run: found.append(run), HELD_SECONDS)
    watch.start()

    def app(environ, start_response):
        for _ in range(100):
            gevent.sleep(0)
        end = time.thread_time() + HELD_SECONDS
        while environ["PATH_INFO"] == "/busy" and time.thread_time() < end:
            pass
        time.sleep(HELD_SECONDS)
        start_response("200 OK", [])
        return [b""]

    try:
        client = Client(watch.wrap(app))
        client.get("/blocked")
        client.get("/busy")
    finally:
        watch.stop()
    assert [label for label, _, _ in found] == ["GET /blocked", "GET /busy"]
    (_, _, blocked), (_, elapsed, busy) = found
    assert blocked < HELD_SECONDS <= busy <= elapsed
