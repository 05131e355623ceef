"""The server against clients that are slow, silent, or gone."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from digits.web.server.http import UNACKNOWLEDGED_SECONDS, Server
from tests.raw_http import Answer, RawWebSocket, SmallServer, join, small_server, websocket

pytestmark = pytest.mark.integration

PATIENCE_SECONDS = 60.0
SHORT = {"idle_seconds": 0.3, "header_seconds": 0.3, "body_seconds": 0.3}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with small_server(tmp_path_factory.mktemp("plain")) as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    """A server with short limits and few connections."""
    limits = {**SHORT, "slowest_bytes_per_second": 20_000, "max_connections": 8}
    with small_server(tmp_path_factory.mktemp("hasty"), limits=limits) as server:
        yield server


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    """A server that accepts only short requests and queues few messages."""
    limits = {"max_queued_messages": 5}
    folder = tmp_path_factory.mktemp("strict")
    with small_server(folder, limits=limits, gate={"max_body_bytes": 1000}) as server:
        yield server


def until(question: Any) -> Any:
    """Return the first true result of ``question``; try for 30 seconds."""
    for _ in range(int(PATIENCE_SECONDS / 0.1)):
        answer = question()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError("this never came true")


def test_connection_serves_several_requests(plain: SmallServer) -> None:
    with plain.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert Answer.read(connection).body == b"home"


def test_silent_connection_is_closed(hasty: SmallServer) -> None:
    with hasty.connect() as connection:
        assert connection.recv(1) == b""
    with hasty.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert Answer.read(connection).body == b"home"
        assert connection.recv(1) == b""


@pytest.mark.parametrize("start", ["G", "GET / HT", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: local"])
def test_request_that_never_ends_is_closed(hasty: SmallServer, start: str) -> None:
    with hasty.connect() as connection:
        connection.sendall(start.encode())
        assert Answer.read(connection).status in (0, 400)


def test_trickling_headers_are_cut_off(hasty: SmallServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        connection.settimeout(0.05)
        received = None
        while received is None:
            try:
                connection.sendall(b"X-Slow: yes\r\n")
                received = connection.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
    assert received == b"" or received.startswith(b"HTTP/1.1 400")


def test_stalled_body_is_cut_off(hasty: SmallServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
        assert Answer.read(connection).status == 408
        assert connection.recv(1) == b""


def test_flood_of_half_open_connections_does_not_lock_others_out(hasty: SmallServer) -> None:
    flood = [hasty.connect() for _ in range(30)]
    for connection in flood:
        connection.sendall(b"GET / HTTP/1.1\r\n")
    assert hasty.get("/").body == b"home"
    for connection in flood:
        connection.close()


def trickle(connection: socket.socket, seconds: float, size: int) -> None:
    """Send ``size`` bytes every ``seconds`` until the server answers or closes."""
    connection.settimeout(seconds)
    for _ in range(int(PATIENCE_SECONDS / seconds)):
        try:
            connection.sendall(b"x" * size)
            if connection.recv(1, socket.MSG_PEEK) is not None:
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    connection.settimeout(PATIENCE_SECONDS)


BODY = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"


def test_trickling_body_is_cut_off_and_logged_in_one_line(tmp_path: Path) -> None:
    with small_server(tmp_path, limits=SHORT) as server, server.connect() as connection:
        connection.sendall(BODY)
        trickle(connection, 0.05, 10)
        answer = Answer.read(connection)
        assert answer.status == 408 and answer.headers["connection"] == "close"
        assert connection.recv(1) == b""
        until(lambda: "POST /length: The body of this request arrived too slowly" in server.log)
        assert "Traceback" not in server.log


def test_long_body_is_accepted_while_it_makes_progress(hasty: SmallServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(BODY)
        for _ in range(10):  # 0.5 s in total, with a limit of 0.3 s without progress
            connection.sendall(b"x" * 10_000)
            time.sleep(0.05)
        assert Answer.read(connection).body == b"100000"


def test_floods_of_slow_bodies_and_silent_websockets_do_not_lock_others_out(tmp_path: Path) -> None:
    with small_server(tmp_path, limits={"max_connections": 8}) as server, contextlib.ExitStack() as flood:
        with contextlib.ExitStack() as slow:
            for _ in range(50):
                connection = slow.enter_context(server.connect())
                connection.sendall(BODY + b"x")
            assert server.get("/").body == b"home"
        for _ in range(40):
            flood.enter_context(websocket(server))
        assert server.get("/").body == b"home"
        assert int(server.get("/connections").body) <= 8 + 2
        assert "Traceback" not in server.log


def test_websocket_that_misses_a_ping_is_closed(tmp_path: Path) -> None:
    quick = {"ping_interval": 0.2, "ping_timeout": 0.2}
    with (
        small_server(tmp_path, socketio=quick, limits={"abandoned_seconds": 0.2}) as server,
        server.connect() as connection,
    ):
        RawWebSocket(connection, server.port, "/socket.io/?EIO=4&transport=websocket", [])
        while connection.recv(4096):
            """The data it sends before closing."""
        until(lambda: int(server.get("/connections").body) == 1)


def test_long_response_does_not_block_other_requests(plain: SmallServer) -> None:
    """A reader as fast as the server never makes it wait; other requests are still answered in between."""
    with plain.connect() as long, plain.connect() as short:
        long.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = long.recv(65536)
        short.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        short.setblocking(False)
        home = b""
        while b"home" not in home:
            received = long.recv(1 << 20)
            assert b"0\r\n\r\n" not in received[-7:], "the long response was complete first"
            with contextlib.suppress(BlockingIOError):
                home += short.recv(65536)


def test_websocket_is_exempt_from_request_time_limits(hasty: SmallServer) -> None:
    with websocket(hasty) as live:
        join(live)
        time.sleep(3 * SHORT["idle_seconds"])
        live.send('420["echo",7]')
        assert live.receive() == "430[7]"


def test_large_message_reaches_a_slow_reader_completely(plain: SmallServer) -> None:
    size = 3_000_000
    with websocket(plain, receive_buffer=4096) as live:
        join(live)
        live.send(f'42["flood",1,{size}]')
        time.sleep(0.5)
        message = live.receive()
        assert message is not None
        assert json.loads(message.removeprefix("42")) == ["water", "x" * size]


def test_client_that_does_not_read_is_cut_off(plain: SmallServer) -> None:
    with websocket(plain) as reader, websocket(plain, receive_buffer=4096) as stuck:
        join(reader)
        join(stuck)
        before = int(plain.get("/memory").body)
        count, size = 2000, 50_000
        reader.send(f'42["flood",{count},{size}]')
        received = 0
        while (message := reader.receive()) is not None and not message.startswith('42["dry"'):
            received += message.startswith('42["water"')
        assert received == count
        until(lambda: len(json.loads(plain.get("/clients").body)["queued"]) == 1)
        after = int(plain.get("/memory").body)
        assert after - before < count * size / 2
        reader.send('420["echo",7]')
        assert reader.receive() == "430[7]"
        assert "does not read its messages" in plain.log


def test_absent_polling_client_is_cut_off(strict: SmallServer) -> None:
    opened = strict.get("/socket.io/?EIO=4&transport=polling").body.decode()
    polling = f"/socket.io/?EIO=4&transport=polling&sid={json.loads(opened[1:])['sid']}"
    for body in ("40", '42["flood",50,10]'):
        head = f"POST {polling} HTTP/1.1\nHost: localhost\nContent-Length: {len(body)}\n\n"
        assert strict.send(head + body).body == b"OK"
    until(lambda: json.loads(strict.get("/clients").body)["queued"] in ([], [1]))
    assert "does not read its messages" in strict.log


def test_refused_upload_is_not_read(plain: SmallServer) -> None:
    head = f"POST /length HTTP/1.1\nHost: localhost\nContent-Length: {10**12}\n\n"
    answer = plain.send(head)
    assert answer.status == 413 and answer.headers["connection"] == "close"


def test_a_client_that_sends_on_gets_the_response_to_a_refused_upload(strict: SmallServer) -> None:
    with strict.connect() as connection:
        connection.sendall(
            b"POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n"
        )
        connection.sendall(b"x" * 500 + b"\r\n3e8\r\n" + b"x" * 1000)
        end = select.poll()
        end.register(connection, select.POLLRDHUP)
        assert end.poll(PATIENCE_SECONDS * 1000)
        for _ in range(2):  # the first one may only reveal that the connection is closed
            connection.sendall(b"x" * 500)
        assert Answer.read(connection).status == 413


def test_closing_a_websocket_is_not_a_bad_request(plain: SmallServer) -> None:
    before = len(plain.log)
    with websocket(plain) as live:
        join(live)
        live.send("41")
        live.send("1")
        live.connection.sendall(b"\x88\x80\x00\x00\x00\x00" + b"leftover\r\n\r\n")
    until(lambda: json.loads(plain.get("/clients").body)["queued"] == [])
    assert "Invalid" not in plain.log[before:] and '" 400 ' not in plain.log[before:]


def test_log_contains_no_secrets(tmp_path: Path) -> None:
    with small_server(tmp_path, auth={"token": "the-secret-token-of-tests"}) as server:
        secret = "the-secret-token-of-tests"
        server.get(f"/?token={secret}")
        server.get("/?token=mistyped-secret")
        server.get("/crash", f"Authorization: Bearer {secret}", "Cookie: a=cookie-secret")
        server.get("/", "Authorization: Bearer mistyped-secret")
        server.send(f"GET /?token={secret}\x01 HTTP/9.9\nCookie: cookie-secret\n\n")
        assert "in the middle of an answer" in server.log
        for word in (secret, "mistyped-secret", "cookie-secret"):
            assert word not in server.log


def test_long_lines_do_not_fill_the_log(plain: SmallServer) -> None:
    plain.get("/" + "a" * 7000)
    plain.send("NONSENSE" + "b" * 7000 + "\n\n")
    assert max(len(line) for line in plain.log.splitlines()) < 1000


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_signal_shuts_the_server_down(tmp_path: Path, number: int) -> None:
    with small_server(tmp_path) as server, server.connect() as idle, websocket(server) as live:
        join(live)
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert Answer.read(idle).status == 200
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_SECONDS) == 0
        assert live.receive() is None
        assert "Traceback" not in server.log


def option_of_listener(name: int) -> int:
    """An option of TCP that the connections of a server inherit."""
    server = Server(lambda environ, start: [], ("127.0.0.1", 0))
    server.start()
    (descriptor,) = (
        item.fd for item in psutil.Process().net_connections("tcp") if item.laddr.port == server.port
    )
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        value = listening.getsockopt(socket.IPPROTO_TCP, name)
    assert server.port > 0
    server.stop()
    return value


def test_dead_peers_are_disconnected() -> None:
    assert option_of_listener(socket.TCP_USER_TIMEOUT) == UNACKNOWLEDGED_SECONDS * 1000


def test_short_responses_do_not_wait_for_an_acknowledgment() -> None:
    assert option_of_listener(socket.TCP_NODELAY)


def test_gevent_websocket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(RuntimeError, match="pip uninstall gevent-websocket"):
        Server(lambda environ, start: [], ("127.0.0.1", 0))
