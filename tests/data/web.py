"""A local web server that sends files completely, in part or never."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

AnyWeb = TypeVar("AnyWeb", bound="Web")


class Web:
    """Sends ``files`` by path, or else ``default``, and records the requested paths and ranges.

    ``cuts`` are the numbers of bytes after which the next responses end early; ``cut`` is that of all others.
    ``stalls``: responses do not end at all.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.default: bytes | None = None
        self.status = 200
        self.cuts: list[int] = []
        self.cut: int | None = None
        self.stalls = False
        self.ranges = True
        self.requested: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.address = ""

    @property
    def paths(self) -> list[str]:
        """The requested paths."""
        return [path for path, _ in self.requested]


@contextmanager
def running(web: AnyWeb) -> Iterator[AnyWeb]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            web.requested.append((self.path, asked))
            whole = web.files.get(self.path, web.default)
            if web.status != 200 or whole is None:
                self.send_error(404 if whole is None else web.status)
                return
            begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and web.ranges else 0
            body = whole[begin:]
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: web.cuts.pop(0) if web.cuts else web.cut])
            if web.stalls:
                self.wfile.flush()
                web.released.wait()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        web.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield web
        finally:
            web.released.set()
            server.shutdown()
            thread.join()
