"""WSGI middleware that checks all requests: pages, Socket.IO (polling and websocket) and TensorBoard.

It is middleware because Flask's own checks do not cover applications mounted beside it.
The checks are, in this order: host, size, login rate, login, origin.
Every refusal states what the user can do about it.
"""

from __future__ import annotations

import io
import logging
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.middleware.proxy_fix import ProxyFix

from digits.core.errors import explain
from digits.web.loop_watch import request_line
from digits.web.security.auth import Auth
from digits.web.security.bodies import BODY_LIMITS, MAX_BODY_BYTES, Body, is_streamed
from digits.web.security.environ import (
    BODY,
    COOKIES,
    FORWARDED,
    IS_ANSWERED,
    NONCE,
    VISITOR,
    WEBSOCKET,
    Application,
    Environ,
    StartResponse,
    is_upgrade,
    query_of,
    shortened,
)
from digits.web.security.headers import with_headers
from digits.web.security.origin import Hosts, check_origin, without_port
from digits.web.security.rate_limit import LOGINS_PER_MINUTE, RateLimiter
from digits.web.security.redirects import site_path
from digits.web.security.refusal_log import RefusalLog
from digits.web.security.refusals import RefusalError, refuse, too_large
from digits.web.security.sessions import Visitor

PUBLIC_PATHS = frozenset({"/login", "/health", "/ready", "/favicon.ico"})
# TensorBoard requests its font at the root of the site, to which cookies limited to a prefix are not sent.
ROOT_FOLDERS = ("/font-roboto/",)
PUBLIC_FOLDERS = ("/static/", *ROOT_FOLDERS)


_METHOD = re.compile(r"[A-Z]{1,20}")
# Headers that proxies add.
_FORWARDED = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED",
    "HTTP_X_REAL_IP",
    "HTTP_X_ORIGINAL_",
    "HTTP_X_REWRITE_",
    "HTTP_X_CLIENT_IP",
    "HTTP_X_CLUSTER_CLIENT_IP",
    "HTTP_X_ENVOY_",
    "HTTP_VIA",
    "HTTP_CDN_LOOP",
    "HTTP_CF_CONNECTING_IP",
    "HTTP_TRUE_CLIENT_IP",
)

_log = logging.getLogger(__name__)


class Gate:
    """The middleware. With ``auth`` None, only the other checks apply.

    ``body_limits`` maps starts or ends of paths to the maximum size of their bodies, in bytes.
    With ``url_prefix``, paths outside it are not found, and the application
    finds it in SCRIPT_NAME. ``behind_proxy`` is the number of trusted proxies in front;
    with 0, X-Forwarded headers are removed.
    """

    def __init__(
        self,
        app: Application,
        *,
        bind_host: str = "127.0.0.1",
        allowed_hosts: Iterable[str] = (),
        auth: Auth | None = None,
        url_prefix: str = "",
        behind_proxy: int = 0,
        max_body_bytes: int = MAX_BODY_BYTES,
        body_limits: Mapping[str, int] = BODY_LIMITS,
        logins_per_minute: float = LOGINS_PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._hosts = Hosts(bind_host, allowed_hosts)
        self._auth = auth
        self._prefix = url_prefix.rstrip("/")
        self._max_body_bytes = max_body_bytes
        self._body_limits = dict(body_limits)
        self._logins = RateLimiter(logins_per_minute, clock)
        self._refusals = RefusalLog(_log)
        self._websockets: defaultdict[str, set[Any]] = defaultdict(set)
        hops = int(behind_proxy)
        inner: Any = self._handle
        self._entry = ProxyFix(inner, x_for=hops, x_proto=hops, x_host=hops) if hops else inner
        if auth is not None:
            auth.on_logout.append(self.cut)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        environ[NONCE] = secrets.token_urlsafe(16)
        environ[COOKIES] = []
        _drop_undecodable_cookies(environ)
        start = with_headers(environ, start_response)
        try:
            answer: Iterable[bytes] = self._entry(environ, start)
            return answer
        except Exception as error:
            if IS_ANSWERED in environ:
                raise  # the server closes the connection
            refusal = self._refusal_of(error, environ)
        if refusal.status >= 400:
            client = environ.get("REMOTE_ADDR", "?")
            self._refusals.add(f"{client}: {refusal.status.value} {refusal.reason[:120]}")
        return refuse(refusal, environ, start)

    def cut(self, session_id: str) -> None:
        """Close the open websockets of a session."""
        for websocket in self._websockets.pop(session_id, set()):
            websocket.cut()

    def _refusal_of(self, error: Exception, environ: Environ) -> RefusalError:
        """Return the response to a request that raised ``error``, and log unexpected ones."""
        if isinstance(error, RefusalError):
            return error
        if isinstance(error, RequestEntityTooLarge):
            return too_large(self._limit(environ))
        if isinstance(error, HTTPException):
            return RefusalError(error.code or 500, str(error.description))
        known = explain(error) if isinstance(error, OSError) else None
        if known is not None:
            return RefusalError(known.http_status, known.sentences)
        _log.error("%s failed outside the application", request_line(environ), exc_info=error)
        return RefusalError(500, "Internal server error. The details are in the server's log.")

    def _handle(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        # Socket.IO would trust these headers for its own address.
        forwarded = [name for name in environ if name.startswith(_FORWARDED)]
        environ[FORWARDED] = bool(forwarded)
        for name in forwarded:
            del environ[name]
        visitor = self._admit(environ)
        environ[COOKIES] += self._renewal(environ, visitor)
        return self._pass(environ, start_response, visitor)

    def _admit(self, environ: Environ) -> Visitor:
        """Run all checks; raises RefusalError."""
        self._check_host(environ)
        _check_shape(environ)
        self._mount(environ)
        self._check_size(environ)
        self._check_rate(environ)
        visitor = self._check_login(environ)
        check_origin(environ, visitor)
        return visitor

    def _check_host(self, environ: Environ) -> None:
        host = environ.get("HTTP_HOST", "")
        if host not in self._hosts:
            name = without_port(host) or "no name"
            raise RefusalError(
                421,
                f"This server does not answer to {shortened(name)}. "
                "If that is one of its names, start it with --allowed-host and the name.",
            )

    def _mount(self, environ: Environ) -> None:
        """Move the prefix from the path to SCRIPT_NAME."""
        path = environ["PATH_INFO"]
        if not self._prefix or path.startswith(ROOT_FOLDERS):
            return
        if path in ("/", self._prefix):
            location = [("Location", f"{quote(self._prefix)}/")]
            raise RefusalError(302, "The pages are below this path.", location)
        if not path.startswith(f"{self._prefix}/"):
            raise RefusalError(404, f"There is nothing here; the pages are at {self._prefix}/.")
        environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + self._prefix
        environ["PATH_INFO"] = path[len(self._prefix) :]

    def _check_size(self, environ: Environ) -> None:
        limit = self._limit(environ)
        coding = environ.get("HTTP_TRANSFER_ENCODING", "").strip().lower()
        if coding not in ("", "chunked"):
            raise RefusalError(400, "The transfer encoding of this request is not supported.")
        if coding and is_upgrade(environ):
            raise RefusalError(400, "A request for a websocket has no body.")
        length = environ.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()):
            raise RefusalError(400, "The Content-Length of this request is not a number.")
        if not coding and (len(length) > 18 or int(length) > limit):
            raise too_large(limit)
        if not is_upgrade(environ):
            environ["wsgi.input"] = environ[BODY] = Body(environ, limit)

    def _limit(self, environ: Environ) -> int:
        path = environ.get("PATH_INFO", "")
        parts = [part for part in self._body_limits if path.startswith(part) or path.endswith(part)]
        limit = self._body_limits[max(parts, key=len)] if parts else self._max_body_bytes
        return limit if is_streamed(environ) else min(limit, self._max_body_bytes)

    def _check_rate(self, environ: Environ) -> None:
        is_login = environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == "/login"
        if is_login and self._auth is not None and self._auth.is_required(environ):
            self._count_try(environ)

    def _count_try(self, environ: Environ) -> None:
        if not self._logins.take(environ.get("REMOTE_ADDR", "")):
            raise RefusalError(429, "Too many login attempts. Wait a minute.", [("Retry-After", "60")])

    def _check_login(self, environ: Environ) -> Visitor:
        if self._auth is None:
            return Visitor()
        visitor = self._auth.visitor(environ)
        self._exchange_token(self._auth, environ, visitor)
        if visitor is not None:
            return visitor
        if self._auth.has_bearer(environ):
            self._count_try(environ)
        if _is_public(environ["PATH_INFO"]):
            return Visitor()
        raise self._auth.refusal(environ)

    def _exchange_token(self, auth: Auth, environ: Environ, visitor: Visitor | None) -> None:
        """Exchange the token in the URL for a cookie, and redirect to the URL without it."""
        query = query_of(environ)
        tokens = [value for name, value in query if name == "token"]
        if not tokens or environ["REQUEST_METHOD"] != "GET" or is_upgrade(environ):
            return
        headers = [
            ("Location", site_path(environ, urlencode([item for item in query if item[0] != "token"])))
        ]
        if visitor is None:
            if not auth.is_token(tokens[0]):
                self._count_try(environ)
                raise auth.refusal(environ)
            headers.append(("Set-Cookie", auth.cookie_header(environ, auth.sessions.start(""))))
        raise RefusalError(302, "The token is stored in a cookie; reload the page without it.", headers)

    def _renewal(self, environ: Environ, visitor: Visitor) -> list[str]:
        if self._auth is None or visitor.session is None:
            return []
        cookie = self._auth.sessions.renewed(visitor.session)
        return [self._auth.cookie_header(environ, cookie)] if cookie else []

    def _pass(self, environ: Environ, start_response: StartResponse, visitor: Visitor) -> Iterable[bytes]:
        environ[VISITOR] = visitor
        if BODY in environ and environ["PATH_INFO"].startswith("/socket.io"):
            # Engine.IO would answer 200 to an incomplete body and log a traceback.
            environ["wsgi.input"] = io.BytesIO(environ[BODY].read())
        websocket = environ.get(WEBSOCKET)
        if websocket is None or visitor.session is None:
            return self._app(environ, start_response)
        # The application holds a websocket's request until the websocket ends.
        self._websockets[visitor.session.id].add(websocket)
        try:
            return self._app(environ, start_response)
        finally:
            self._forget(visitor.session.id, websocket)

    def _forget(self, session_id: str, websocket: Any) -> None:
        still_open = self._websockets.get(session_id, set())
        still_open.discard(websocket)
        if not still_open:
            self._websockets.pop(session_id, None)


def _drop_undecodable_cookies(environ: Environ) -> None:
    """Remove cookies that are not UTF-8, such as those of other programs: the libraries would raise an error."""
    cookies = environ.get("HTTP_COOKIE", "").split(";")
    kept = [cookie for cookie in cookies if _is_utf8(cookie)]
    if len(kept) < len(cookies):
        environ["HTTP_COOKIE"] = ";".join(kept)


def _is_utf8(text: str) -> bool:
    """Return whether ``text``, a WSGI string, is UTF-8 when encoded as Latin-1."""
    try:
        text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return False
    return True


def _check_shape(environ: Environ) -> None:
    """Refuse malformed requests that servers and frameworks might interpret differently."""
    path = environ.get("PATH_INFO", "")
    if not _METHOD.fullmatch(environ["REQUEST_METHOD"]) or environ["REQUEST_METHOD"] in ("TRACE", "CONNECT"):
        raise RefusalError(405, "This method is not allowed.")
    if not path.startswith("/") or "\0" in path:
        raise RefusalError(400, "The path of this request is invalid.")


def _is_public(path: str) -> bool:
    if path in PUBLIC_PATHS:
        return True
    return path.startswith(PUBLIC_FOLDERS) and ".." not in path.split("/")
