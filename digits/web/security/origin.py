"""The host names of this server, and whether a page of this or another site, or a program, sent a request."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil
from flask import Flask, Request, g, request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask_wtf.csrf import CSRFProtect

from digits.core.addresses import is_loopback
from digits.core.errors import OtherSite
from digits.web.security.environ import SAFE_METHODS, Environ, is_upgrade, shortened
from digits.web.security.refusals import RefusalError
from digits.web.security.sessions import Visitor, cookie_path, is_https

View = TypeVar("View", bound=Callable[..., Any])

# TensorBoard's page sends queries as POST without our CSRF token.
_WITHOUT_TOKEN = ("digits.web.models.tensorboard.proxy",)
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::\d{1,5})?")


class Hosts:
    """The host names of this server. Ports are ignored: tunnels and containers change them.

    Another name indicates DNS rebinding: a page of another site has its own name resolved to
    this machine. A server that listens on all addresses also accepts the machine's addresses
    and its name.
    """

    def __init__(self, bind_host: str, allowed: Iterable[str] = ()) -> None:
        bound = bind_host.strip("[]").lower()
        self._is_everywhere = bound in ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared, not bound
        names = {"localhost", *(without_port(name.lower()) for name in allowed)}
        names.add(socket.gethostname().lower() if self._is_everywhere else plain_name(bound))
        self._names = names - {""}

    def __contains__(self, host: str) -> bool:
        """Return whether ``host``, the value of a Host header, is one of the names."""
        match = HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = plain_name(match["name"])
        return name in self._names or is_loopback(name) or (self._is_everywhere and name in _own_addresses())


def without_port(host: str) -> str:
    match = HOST.fullmatch(host.lower())
    return plain_name(match["name"]) if match else host


def plain_name(name: str) -> str:
    """Return the canonical spelling of a host name or address."""
    bare = name.strip("[]").removesuffix(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _own_addresses() -> set[str]:
    families = psutil.net_if_addrs().values()
    return {plain_name(item.address.split("%")[0].lower()) for items in families for item in items}


def origin_matches(origin: str, host: str) -> bool:
    """Return whether ``origin``, the Origin header, matches the site in the Host header.

    The scheme is not compared: a proxy in front may speak TLS where this server does not.
    """
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def is_from_browser(environ: Environ) -> bool:
    """Return whether a browser names the page that sent this request; programs send neither of these headers."""
    return "HTTP_ORIGIN" in environ or "HTTP_SEC_FETCH_SITE" in environ


def comes_from_another_site(environ: Environ) -> bool:
    """Return whether a browser says that a page of another site sent this request.

    Browsers send ``Sec-Fetch-Site`` over HTTPS and to loopback addresses, and ``Origin`` with writes and websockets.
    """
    return not _is_own_site(environ) or not _is_own_origin(environ)


def is_opened_by_another_site(environ: Environ) -> bool:
    """Return whether a page of another site, or a browser that hides the page, sent this request to read.

    Browsers do not send ``Origin`` with a GET, but ``Referer`` unless the other site forbids it. Programs send neither.
    """
    if comes_from_another_site(environ) or "HTTP_SEC_FETCH_SITE" in environ:
        return comes_from_another_site(environ)
    referer = environ.get("HTTP_REFERER")
    if referer is None:
        return bool(environ.get("HTTP_USER_AGENT", "").startswith("Mozilla/"))
    try:
        parts = urlsplit(referer)
    except ValueError:
        return True
    return not origin_matches(f"{parts.scheme}://{parts.netloc}", environ.get("HTTP_HOST", ""))


def check_origin(environ: Environ, visitor: Visitor) -> None:
    """Refuse writes and live connections from pages of other sites."""
    is_live = is_upgrade(environ) or environ["PATH_INFO"].startswith("/socket.io")
    if environ["REQUEST_METHOD"] in SAFE_METHODS and not is_live:
        return
    origin = environ.get("HTTP_ORIGIN")
    if not _is_own_site(environ):
        raise RefusalError(403, "This request comes from a page of another site.")
    if not _is_own_origin(environ):
        raise RefusalError(
            403,
            f"This request comes from {shortened(origin or '')}, which is not this server's address. If a proxy is in "
            "front, configure it to forward the Host header, or use --behind-proxy.",
        )
    if origin is None and is_upgrade(environ) and visitor.session is not None:
        raise RefusalError(403, "A browser's websocket needs an Origin header; programs use the token.")


def _is_own_site(environ: Environ) -> bool:
    return environ.get("HTTP_SEC_FETCH_SITE") in (None, "same-origin", "none")


def _is_own_origin(environ: Environ) -> bool:
    origin = environ.get("HTTP_ORIGIN")
    return origin is None or origin_matches(origin, environ.get("HTTP_HOST", ""))


def not_from_other_sites(view: View) -> View:
    """Mark a view that starts a program or a download even if it is only read: pages of other sites cannot open it."""
    view.refuses_other_sites = True  # type: ignore[attr-defined]
    return view


class _FormSessions(SecureCookieSessionInterface):
    """Flask's sessions, which hold the CSRF token, with the same cookie options as all others of this server."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()  # without Flask's search for a signature, which is slow
        return super().open_session(app, request)

    def get_cookie_path(self, app: Flask) -> str:
        return cookie_path(request.environ)

    def get_cookie_secure(self, app: Flask) -> bool:
        return is_https(request.environ)


def guard_views(app: Flask, port: int | str = "") -> None:
    """Require a CSRF token from browsers on writes, and refuse to open the views of `not_from_other_sites` elsewhere.

    Requires ``app.secret_key``. The gate already refuses writes from other sites by their headers; the token is a
    second line of defense. Programs send neither ``Origin`` nor ``Sec-Fetch-Site`` and need no token. Templates can
    call ``csrf_token()``. ``port`` separates the cookies of servers on one host.
    """
    app.config.update(
        WTF_CSRF_CHECK_DEFAULT=False,  # decided below
        WTF_CSRF_TIME_LIMIT=None,  # a page may stay open for days
        WTF_CSRF_SSL_STRICT=False,  # the gate compares the origin
        SESSION_COOKIE_NAME=f"digits-form-{port}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
    )
    app.session_interface = _FormSessions()
    protection = CSRFProtect(app)
    for view in _WITHOUT_TOKEN:
        protection.exempt(view)

    @app.before_request
    def check_sender() -> None:
        if is_from_browser(request.environ):
            protection.protect(apply_exemptions=True)
        else:
            g.csrf_valid = True  # otherwise the forms would require the token
        view = app.view_functions.get(request.endpoint or "")  # Flask answers HEAD with the same views as GET
        is_marked = getattr(view, "refuses_other_sites", False)
        if is_marked and request.method in SAFE_METHODS and is_opened_by_another_site(request.environ):
            raise OtherSite(
                "This request came from another site.", "Opening this page starts a program on this machine."
            )
