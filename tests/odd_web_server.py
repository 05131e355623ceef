"""A web server with the folders of a test, and with behavior that clients must survive.

Run as a program with a folder to serve, it prints its port, and exits when standard input is closed. ``/files/`` lists
that folder like Apache; all other paths are in `OddHandler`. ``/log`` returns the paths requested so far.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


class OddHandler(BaseHTTPRequestHandler):
    """Answers by the first part of the path."""

    protocol_version = "HTTP/1.1"
    requested: list[str] = []
    root = Path()

    def do_GET(self) -> None:
        if self.path == "/log":
            self._send(json.dumps(self.requested).encode(), "application/json")
            return
        self.requested.append(self.path)
        first, _, rest = self.path.lstrip("/").partition("/")
        getattr(self, f"_{first}", self._missing)(rest)

    def _files(self, rest: str) -> None:
        path = self.root / unquote(rest)
        if path.is_dir():
            names = [f"{item.name}/" if item.is_dir() else item.name for item in sorted(path.iterdir())]
            self._list(*map(quote, names))
        elif path.is_file():
            self._send(path.read_bytes(), "application/octet-stream")
        else:
            self._missing(rest)

    def _odd(self, rest: str) -> None:
        """A listing with links that lead elsewhere."""
        if not rest:
            self._list("../files/", "/private/", "https://other.example/x.png", "%2e%2e/%2e%2e/up.png", "?C=N;O=D",
                       "//evil.example/y.png", "a/", "a", "a/x.png", "file:///etc/passwd", "b%2F..%2Fz.png")  # fmt: skip
        elif rest == "a/":
            self._list("x.png", "../../private/")
        else:
            self._send(PNG, "image/png")

    def _redirect(self, rest: str) -> None:
        """Redirect to the address in Base64, see `redirect_to`, or forever."""
        self.send_response(302)
        target = (
            "/redirect/loop"
            if rest.startswith("loop")
            else base64.urlsafe_b64decode(unquote(rest.rstrip("/"))).decode()
        )
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _forbidden(self, rest: str) -> None:
        self.send_error(403)

    def _silent(self, rest: str) -> None:
        time.sleep(600)

    def _slow(self, rest: str) -> None:
        if rest:
            self.send_response(200)
            self.send_header("Content-Length", str(len(PNG)))
            self.end_headers()
            for position in range(len(PNG)):
                self.wfile.write(PNG[position : position + 1])
                time.sleep(0.005)
        else:
            self._list("1.png")

    def _endless(self, rest: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Connection", "close")
        self.end_headers()
        number = 0
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(f'<a href="{number}.png">{number}</a>\n'.encode())
                number += 1

    def _deep(self, rest: str) -> None:
        self._list("again/")

    def _huge(self, rest: str) -> None:
        if not rest:
            self._list("1.png")
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(65536))

    def _cut(self, rest: str) -> None:
        """The connection is cut in the middle of a file, twice."""
        if not rest:
            self._list("1.png")
            return
        is_cut = sum(path == self.path for path in self.requested) <= 2
        self.send_response(200)
        self.send_header("Content-Length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG[: 20 if is_cut else len(PNG)])
        if is_cut:
            self.close_connection = True

    def _chunk(self, rest: str) -> None:
        """The connection is cut before the last chunk."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n")
        self.close_connection = True

    def _one_missing(self, rest: str) -> None:
        if rest == "gone.png":
            self._missing(rest)
        elif rest:
            self._send(PNG, "image/png")
        else:
            self._list("gone.png", *(f"{number}.png" for number in range(9)))

    def _one_failing(self, rest: str) -> None:
        if rest == "bad.png":
            self.send_error(503)
        elif rest:
            self._send(PNG, "image/png")
        else:
            self._list("bad.png", *(f"{number}.png" for number in range(9)))

    def _missing(self, rest: str) -> None:
        self.send_error(404)

    def _list(self, *names: str) -> None:
        links = "".join(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>' for name in names)
        body = f'<html><title>Index of {self.path}</title><ul><li><a href="../">Parent Directory</a></li>{links}</ul>'
        self._send(body.encode(), "text/html;charset=UTF-8")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Serve ``folder`` in another process; yield the address."""
    command = [sys.executable, __file__, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def redirect_to(address: str) -> str:
    """Return the path that redirects to ``address``."""
    return "redirect/" + base64.urlsafe_b64encode(address.encode()).decode()


def log_of(address: str) -> list[str]:
    """Return the paths requested from a server."""
    with urllib.request.urlopen(f"{address}/log", timeout=10) as answer:
        paths: list[str] = json.load(answer)
        return paths


def main(folder: str) -> None:
    OddHandler.root = Path(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), OddHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
