"""WSGI middleware that checks all requests: pages, Socket.IO (polling and websocket) and TensorBoard.

It is middleware because Flask's own checks do not cover applications mounted beside it.
The checks are, in this order: host, size, login rate, login, origin.
Every refusal states what the user can do about it.
"""

from __future__ import annotations

import io
import ipaddress
import json
import logging
import re
import secrets
import socket
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import humanize
import psutil
from werkzeug.exceptions import BadRequest, HTTPException, RequestEntityTooLarge, RequestTimeout
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.wsgi import LimitedStream

from digits.core.addresses import is_loopback
from digits.core.errors import explain
from digits.web.loop_watch import request_line
from digits.web.responses.errors import error_body, is_always_json
from digits.web.security.auth import FORWARDED, VISITOR, Auth, Visitor, site_path
from digits.web.security.refusals import RefusalLog

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

NONCE = "digits.csp_nonce"
# Cookies that the gate adds to the response.
COOKIES = "digits.cookies"
# Set once the response has started.
IS_ANSWERED = "digits.is_answered"
# The request body, as `_Body`.
BODY = "digits.body"
# The object whose ``cut`` closes this request's websocket; set by the server.
WEBSOCKET = "digits.websocket"
# A response header: this response comes from another program and keeps its own policy.
FOREIGN = "X-Digits-Foreign"

MAX_BODY_BYTES = 5_000_000
MAX_IMAGE_BYTES = 70_000_000
# By the start or the end of the path. They apply to multipart forms, whose files are written to disk.
BODY_LIMITS: Mapping[str, int] = {
    "/login": 64_000,
    "/socket.io": 128_000,
    "/classify_one": MAX_IMAGE_BYTES,
    "/classify_one.json": MAX_IMAGE_BYTES,
    "/infer_one": MAX_IMAGE_BYTES,
    "/infer_one.json": MAX_IMAGE_BYTES,
    "/inside": MAX_IMAGE_BYTES,
    "/inside.json": MAX_IMAGE_BYTES,
    "/heat-map": MAX_IMAGE_BYTES,
    "/heat-map.json": MAX_IMAGE_BYTES,
    "/classify_many": MAX_IMAGE_BYTES,
    "/classify_many.json": MAX_IMAGE_BYTES,
    "/infer_many": MAX_IMAGE_BYTES,
    "/infer_many.json": MAX_IMAGE_BYTES,
    "/predictions": MAX_IMAGE_BYTES,
    "/predictions.json": MAX_IMAGE_BYTES,
    "/predict": MAX_IMAGE_BYTES,
    "/predict.json": MAX_IMAGE_BYTES,
    "/serve/": MAX_IMAGE_BYTES,
    "/top_n": MAX_IMAGE_BYTES,
    "/top_n.json": MAX_IMAGE_BYTES,
}

# The views at these paths read a body that is not a form in pieces, so that its limit applies as well.
STREAMED_PATHS = ("/uploads/", "/predict", "/predict.json", "/serve/")
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"

PUBLIC_PATHS = frozenset({"/login", "/health", "/favicon.ico"})
# TensorBoard requests its font at the root of the site, to which cookies limited to a prefix are not sent.
ROOT_FOLDERS = ("/font-roboto/",)
PUBLIC_FOLDERS = ("/static/", *ROOT_FOLDERS)

LOGINS_PER_MINUTE = 10
MAX_REMEMBERED_ADDRESSES = 10_000

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHOD = re.compile(r"[A-Z]{1,20}")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::\d{1,5})?")
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


class RefusalError(Exception):
    """A refused request."""

    def __init__(self, status: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.reason = reason
        self.headers = [*headers]


class RateLimiter:
    """Allow ``per_minute`` tries per network, in bursts of up to that number.

    Only the last `MAX_REMEMBERED_ADDRESSES` networks are remembered; ``len`` counts them.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, address: str) -> bool:
        """Use up one try; return False if none is left."""
        key = network_of(address)
        with self._lock:
            now = self._clock()
            left, since = self._left.pop(key, (self._per_minute, now))
            left = min(self._per_minute, left + (now - since) * self._per_minute / 60)
            is_allowed = left >= 1
            self._left[key] = (left - 1 if is_allowed else left, now)
            while len(self._left) > MAX_REMEMBERED_ADDRESSES:
                self._left.popitem(last=False)
        return is_allowed


class Hosts:
    """The host names of this server. Ports are ignored: tunnels and containers change them.

    Another name indicates DNS rebinding: a page of another site has its own name resolved to
    this machine. A server that listens on all addresses also accepts the machine's addresses
    and its name.
    """

    def __init__(self, bind_host: str, allowed: Iterable[str] = ()) -> None:
        bound = bind_host.strip("[]").lower()
        self._is_everywhere = bound in ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared, not bound
        names = {"localhost", *(_without_port(name.lower()) for name in allowed)}
        names.add(socket.gethostname().lower() if self._is_everywhere else _plain(bound))
        self._names = names - {""}

    def __contains__(self, host: str) -> bool:
        """Return whether ``host``, the value of a Host header, is one of the names."""
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = _plain(match["name"])
        return name in self._names or is_loopback(name) or (self._is_everywhere and name in _own_addresses())


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
        inner: Any = self._without_forwarded
        self._entry = ProxyFix(inner, x_for=hops, x_proto=hops, x_host=hops) if hops else inner
        if auth is not None:
            auth.on_logout.append(self.cut)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        environ[NONCE] = secrets.token_urlsafe(16)
        environ[COOKIES] = []
        _drop_undecodable_cookies(environ)
        decorated = _decorated(environ, start_response)
        try:
            answer: Iterable[bytes] = self._entry(environ, decorated)
            return answer
        except Exception as error:
            if IS_ANSWERED in environ:
                raise  # the server closes the connection
            refusal = self._refusal_of(error, environ)
        if refusal.status >= 400:
            client = environ.get("REMOTE_ADDR", "?")
            self._refusals.add(f"{client}: {refusal.status.value} {refusal.reason[:120]}")
        return _refuse(refusal, environ, decorated)

    def cut(self, session_id: str) -> None:
        """Close the open websockets of a session."""
        for websocket in self._websockets.pop(session_id, set()):
            websocket.cut()

    def _refusal_of(self, error: Exception, environ: Environ) -> RefusalError:
        """Return the response to a request that raised ``error``, and log unexpected ones."""
        if isinstance(error, RefusalError):
            return error
        if isinstance(error, RequestEntityTooLarge):
            return _too_large(self._limit(environ))
        if isinstance(error, HTTPException):
            return RefusalError(error.code or 500, str(error.description))
        known = explain(error) if isinstance(error, OSError) else None
        if known is not None:
            return RefusalError(known.http_status, known.sentences)
        _log.error("%s failed outside the application", request_line(environ), exc_info=error)
        return RefusalError(500, "Internal server error. The details are in the server's log.")

    def _without_forwarded(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
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
        _check_origin(environ, visitor)
        return visitor

    def _check_host(self, environ: Environ) -> None:
        host = environ.get("HTTP_HOST", "")
        if host not in self._hosts:
            name = _without_port(host) or "no name"
            raise RefusalError(
                421,
                f"This server does not answer to {_shown(name)}. "
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
        if coding and _is_upgrade(environ):
            raise RefusalError(400, "A request for a websocket has no body.")
        length = environ.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()):
            raise RefusalError(400, "The Content-Length of this request is not a number.")
        if not coding and (len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        if not _is_upgrade(environ):
            environ["wsgi.input"] = environ[BODY] = _Body(environ["wsgi.input"], limit, request_line(environ))

    def _limit(self, environ: Environ) -> int:
        path = environ.get("PATH_INFO", "")
        parts = [part for part in self._body_limits if path.startswith(part) or path.endswith(part)]
        limit = self._body_limits[max(parts, key=len)] if parts else self._max_body_bytes
        return limit if _is_streamed(environ) else min(limit, self._max_body_bytes)

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
        raise _login_needed(environ, self._auth.why_required(environ))

    def _exchange_token(self, auth: Auth, environ: Environ, visitor: Visitor | None) -> None:
        """Exchange the token in the URL for a cookie, and redirect to the URL without it."""
        query = _query(environ)
        tokens = [value for name, value in query if name == "token"]
        if not tokens or environ["REQUEST_METHOD"] != "GET" or _is_upgrade(environ):
            return
        headers = [
            ("Location", site_path(environ, urlencode([item for item in query if item[0] != "token"])))
        ]
        if visitor is None:
            if not auth.is_token(tokens[0]):
                self._count_try(environ)
                raise _login_needed(environ, auth.why_required(environ))
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


class _Body(LimitedStream):
    """The body of a request, limited to ``limit`` bytes.

    Errors while reading are client errors: they are raised as werkzeug's HTTPException and logged in
    one line, and ``is_broken`` closes the connection, because the start of the next request is unknown.
    ``title`` identifies the request in the log.
    """

    def __init__(self, stream: Any, limit: int, title: str) -> None:
        # One byte more than allowed, to detect an oversized body.
        super().__init__(stream, limit + 1, is_max=True)
        self.is_broken = False
        self._title = title

    def readinto(self, b: bytearray) -> int | None:  # type: ignore[override]
        count = super().readinto(b)
        if self.is_exhausted:
            self.on_exhausted()
        return count

    def on_exhausted(self) -> None:
        raise self._broken(RequestEntityTooLarge(), "too large")

    def on_disconnect(self, error: Exception | None = None) -> None:
        if isinstance(error, TimeoutError):
            raise self._broken(
                RequestTimeout("The body of this request arrived too slowly."), error
            ) from error
        if error is not None:
            raise self._broken(
                BadRequest("The body of this request is malformed or incomplete."), error
            ) from error

    def _broken(self, answer: HTTPException, reason: object) -> HTTPException:
        self.is_broken = True
        _log.info("%s: %s (%s)", self._title, answer.description, str(reason)[:120])
        return answer


def origin_matches(origin: str, host: str) -> bool:
    """Return whether ``origin``, the Origin header, matches the site in the Host header.

    The scheme is not compared: a proxy in front may speak TLS where this server does not.
    """
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def comes_from_another_site(environ: Environ) -> bool:
    """Return whether a page of another site, or a browser that hides the page, sent this request.

    Browsers do not send ``Origin`` with a GET. They send ``Sec-Fetch-Site`` over HTTPS and
    to loopback addresses, and ``Referer`` unless the other site forbids it. Programs send neither.
    """
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None:
        return site not in ("same-origin", "none")
    referer = environ.get("HTTP_REFERER")
    if referer is None:
        return bool(environ.get("HTTP_USER_AGENT", "").startswith("Mozilla/"))
    try:
        parts = urlsplit(referer)
    except ValueError:
        return True
    return not origin_matches(f"{parts.scheme}://{parts.netloc}", environ.get("HTTP_HOST", ""))


def content_security_policy(nonce: str, host: str) -> str:
    """Return the Content Security Policy of our own pages: scripts and other resources from this server only.

    ``host`` is the value of the Host header; some browsers do not match its websocket with ``'self'``.
    """
    live = f" ws://{host} wss://{host}" if _HOST.fullmatch(host.lower()) else ""
    return (
        "default-src 'self'; img-src 'self' data: blob:; "
        f"style-src 'self' 'nonce-{nonce}'; style-src-attr 'unsafe-inline'; "
        f"connect-src 'self'{live}; frame-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'self'"
    )


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


def _is_streamed(environ: Environ) -> bool:
    """Return whether the application reads the body in pieces instead of keeping it in memory."""
    media_type = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
    path = str(environ.get("PATH_INFO", ""))
    return media_type == MULTIPART or (
        media_type != FORM and (path.startswith(STREAMED_PATHS) or path.endswith(STREAMED_PATHS))
    )


def _check_origin(environ: Environ, visitor: Visitor) -> None:
    """Refuse requests from pages of other sites. Programs send none of these headers."""
    is_live = _is_upgrade(environ) or environ["PATH_INFO"].startswith("/socket.io")
    if environ["REQUEST_METHOD"] in SAFE_METHODS and not is_live:
        return
    site = environ.get("HTTP_SEC_FETCH_SITE")
    origin = environ.get("HTTP_ORIGIN")
    if site not in (None, "same-origin", "none"):
        raise RefusalError(403, "This request comes from a page of another site.")
    if origin is not None and not origin_matches(origin, environ["HTTP_HOST"]):
        raise RefusalError(
            403,
            f"This request comes from {_shown(origin)}, which is not this server's address. If a proxy is in "
            "front, configure it to forward the Host header, or use --behind-proxy.",
        )
    if origin is None and _is_upgrade(environ) and visitor.session is not None:
        raise RefusalError(403, "A browser's websocket needs an Origin header; programs use the token.")


def _login_needed(environ: Environ, why: str) -> RefusalError:
    """Return a redirect to the login page, or 401 for programs; ``why`` is its first sentence."""
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") and _wants_page(environ):
        query = urlencode([item for item in _query(environ) if item[0] != "token"])
        target = quote(site_path(environ, query), safe="/")
        login = quote(environ.get("SCRIPT_NAME", "").encode("latin-1", "replace")) + "/login"
        return RefusalError(302, "Log in first.", [("Location", f"{login}?next={target}")])
    reason = f"{why} Log in at /login, or send the token as Authorization: Bearer TOKEN."
    return RefusalError(401, reason.lstrip(), [("WWW-Authenticate", 'Bearer realm="DIGITS"')])


def _decorated(environ: Environ, start_response: StartResponse) -> StartResponse:
    """Return a ``start_response`` that adds the security headers and the gate's cookies."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        environ[IS_ANSWERED] = True
        names = {name.lower() for name, _ in headers}
        kept = [item for item in headers if not item[0].lower().startswith(_REMOVED)]
        added = dict(_HEADERS)
        if FOREIGN.lower() not in names:
            added["Content-Security-Policy"] = content_security_policy(
                environ[NONCE], environ.get("HTTP_HOST", "")
            )
        if _is_json(headers):
            added["Cache-Control"] = "no-store"
        body = environ.get(BODY)
        if body is not None and body.is_broken:
            added["Connection"] = "close"
        kept += [(name, value) for name, value in added.items() if name.lower() not in names]
        kept += [("Set-Cookie", cookie) for cookie in environ[COOKIES]]
        return start_response(status, kept, *([exc_info] if exc_info else []))

    return start


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
}
# Remove CORS headers, even if the application or a library sets them.
_REMOVED = ("access-control-", FOREIGN.lower())


def _refuse(refusal: RefusalError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    status = refusal.status
    if _wants_json(environ):
        body = json.dumps(error_body(environ.get("PATH_INFO", ""), refusal.reason, status.phrase))
        content_type = "application/json"
    else:
        body, content_type = refusal.reason + "\n", "text/plain; charset=utf-8"
    data = body.encode()
    headers = [("Content-Type", content_type), ("Content-Length", str(len(data))), *refusal.headers]
    headers.append(("Cache-Control", "no-store"))
    if environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING") or _is_upgrade(environ):
        # Do not wait for the rest of the request.
        headers.append(("Connection", "close"))
    start_response(f"{status.value} {status.phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]


def _too_large(limit: int) -> RefusalError:
    return RefusalError(
        413, f"The request is larger than the limit of {humanize.naturalsize(limit, format='%.0f')}."
    )


def _query(environ: Environ) -> list[tuple[str, str]]:
    return parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)


def _is_public(path: str) -> bool:
    if path in PUBLIC_PATHS:
        return True
    return path.startswith(PUBLIC_FOLDERS) and ".." not in path.split("/")


def _is_upgrade(environ: Environ) -> bool:
    """Return whether gevent or Socket.IO would treat this as a websocket request."""
    asked = (environ.get("HTTP_UPGRADE", ""), environ.get("HTTP_CONNECTION", ""))
    return any(
        word.strip().lower() == known for word, known in zip(asked, ("websocket", "upgrade"), strict=True)
    )


def _wants_page(environ: Environ) -> bool:
    is_script = environ.get("HTTP_SEC_FETCH_DEST", "document") not in ("document", "iframe")
    return "text/html" in environ.get("HTTP_ACCEPT", "") and not is_script and not _is_upgrade(environ)


def _wants_json(environ: Environ) -> bool:
    return not _wants_page(environ) and (
        "json" in environ.get("HTTP_ACCEPT", "") or is_always_json(environ.get("PATH_INFO", ""))
    )


def _is_json(headers: Iterable[tuple[str, str]]) -> bool:
    return any(name.lower() == "content-type" and "json" in value.lower() for name, value in headers)


def _without_port(host: str) -> str:
    match = _HOST.fullmatch(host.lower())
    return _plain(match["name"]) if match else host


def _plain(name: str) -> str:
    """Return the canonical spelling of a host name or address."""
    bare = name.strip("[]").removesuffix(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _own_addresses() -> set[str]:
    families = psutil.net_if_addrs().values()
    return {_plain(item.address.split("%")[0].lower()) for items in families for item in items}


def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 prefix of an IPv6 address."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((number, 64), strict=False)) if number.version == 6 else address


def _shown(text: str) -> str:
    return repr(text[:100])
