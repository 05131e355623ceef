"""TensorBoard on the server's own port: a proxy in front of the processes of `digits.runtime.tensorboards`.

A job's id selects that job's process: no host, port or folder comes from a request.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import logging
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Request, Response

from digits.core.errors import NotFound, Unavailable
from digits.runtime.tensorboards import TensorBoard, TensorBoards
from digits.web.security.environ import KEEPS_POLICY

# Time that a page waits for the process before it shows a message; scripts wait for the whole start.
PAGE_SECONDS = 0.3
REQUEST_SECONDS = 120.0
CHUNK_BYTES = 64 * 1024

# TensorBoard's page sends long queries as POST; no other route accepts it.
_POSTABLE = re.compile(
    r"(experiment/[^/]+/)?data/plugin/"
    r"(timeseries/timeSeries|scalars/scalars_multirun|hparams/(experiment|session_groups|metric_evals|download_data))"
)
_NOT_FORWARDED = frozenset(
    "host connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    "content-length cookie authorization forwarded x-csrftoken origin referer".split()
)
_NOT_RETURNED = frozenset(
    "connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade set-cookie server date".split()
) | {KEEPS_POLICY.lower()}
_FONT = re.compile(r"[\w-]{1,100}\.woff2", re.ASCII)

_log = logging.getLogger(__name__)


def proxy(
    boards: TensorBoards,
    job_id: str,
    logdir: Path,
    path: str,
    request: Request,
    url: str,
    page_seconds: float = PAGE_SECONDS,
) -> Response:
    """Return the response of the job's TensorBoard to ``request`` for ``path``; start one if none is running.

    Clients reach it at ``url``. While it starts, browsers get a page that reloads itself. Raises NotFound if ``logdir``
    is not a folder, and Unavailable if TensorBoard does not start or respond.
    """
    if request.method not in ("GET", "HEAD") and not (request.method == "POST" and _POSTABLE.fullmatch(path)):
        raise MethodNotAllowed(["GET", "HEAD"])
    if logdir.is_symlink() or not logdir.is_dir():
        raise NotFound("This job has no TensorBoard logs yet.")
    board = boards.open(job_id, logdir)
    is_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "")
    # Also during the start: a process with waiting requests is not idle.
    with board.in_use():
        if not board.wait(page_seconds if is_page else boards.start_seconds):
            if is_page:
                return _starting_page()
            raise Unavailable("TensorBoard is still starting. Try again in a moment.")
        if board.port is None:
            boards.discard(job_id, board)
            raise Unavailable("TensorBoard did not start.", board.last_words())
        try:
            return _forward(board, path, request, url)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ConnectionError):
                boards.discard(job_id, board)  # it has ended or is about to; the next request starts another
            raise Unavailable("TensorBoard does not respond. Try again in a moment.") from error


def _forward(board: TensorBoard, path: str, request: Request, url: str) -> Response:
    """Return its response to ``request``, streamed; raises OSError or HTTPException if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=REQUEST_SECONDS)
    body = request.get_data() if request.method == "POST" else None
    headers = dict(_kept(request.headers.items(), _NOT_FORWARDED, "x-forwarded-"))
    try:
        connection.request(request.method, board.prefix + _target(path, request), body, headers)
        answer = connection.getresponse()
    except BaseException:
        connection.close()
        raise
    response = Response(
        () if request.method == "HEAD" else _stream(board, connection, answer),
        status=answer.status,
        headers=[*_headers(board, answer, url), (KEEPS_POLICY, "1")],
    )
    response.call_on_close(connection.close)
    return response


def _stream(
    board: TensorBoard, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
) -> Iterator[bytes]:
    with board.in_use():
        try:
            while chunk := answer.read(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            _log.info("TensorBoard interrupted a response: %s", error)
            raise
        finally:
            connection.close()


def _headers(board: TensorBoard, answer: http.client.HTTPResponse, url: str) -> Iterator[tuple[str, str]]:
    for name, value in _kept(answer.getheaders(), _NOT_RETURNED):
        if name.lower() != "location":
            yield name, value
        elif value.startswith(f"{board.prefix}/"):
            yield name, url + value.removeprefix(f"{board.prefix}/")
        elif not value.startswith("/") and "//" not in value:
            yield name, value


def font(name: str) -> bytes | None:
    """Return a font file, which TensorBoard's page requests at the root of the site, whatever its prefix."""
    spec = importlib.util.find_spec("tensorboard")
    if not _FONT.fullmatch(name) or spec is None or spec.origin is None:
        return None
    with (
        contextlib.suppress(OSError, KeyError),
        zipfile.ZipFile(Path(spec.origin).with_name("webfiles.zip")) as files,
    ):
        return files.read(f"font-roboto/{name}")
    return None


def _kept(
    headers: Iterable[tuple[str, str]], dropped: frozenset[str], dropped_start: str = "\0"
) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name.lower() not in dropped and not name.lower().startswith(dropped_start):
            yield name, value


def _target(path: str, request: Request) -> str:
    """Return the path and query for TensorBoard, encoded again."""
    query = request.query_string.decode("latin-1")
    encoded = "/" + quote(path, safe="/:@!$&'()*+,;=~-._", errors="surrogateescape")
    return f"{encoded}?{quote(query, safe='%/:?@!$&()*+,;=~-._[]')}" if query else encoded


def _starting_page() -> Response:
    page = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>TensorBoard is starting</title>
<meta http-equiv="refresh" content="1"></head>
<body><p>TensorBoard is starting. This page refreshes automatically.</p></body></html>
"""
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}
    # Not an error status, which browsers would report: this is the normal start.
    return Response(page, status=202, headers=headers, content_type="text/html; charset=utf-8")
