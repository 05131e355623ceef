"""Whether a page of this site, a page of another site, or a program sent a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flask import Flask, request

from digits.core.errors import OtherSite
from digits.web.security.environ import SAFE_METHODS, Environ, is_upgrade, shortened
from digits.web.security.refusals import RefusalError
from digits.web.security.sessions import Visitor

View = TypeVar("View", bound=Callable[..., Any])


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


def not_from_other_sites(view: View) -> View:
    """Mark a view that starts a program or a download even if it is only read: pages of other sites cannot open it."""
    view.refuses_other_sites = True  # type: ignore[attr-defined]
    return view


def guard_views(app: Flask) -> None:
    """Raise OtherSite for requests of pages of other sites to views marked by `not_from_other_sites`.

    The gate already refuses their writes. Flask answers HEAD with the same views as GET.
    """

    @app.before_request
    def refuse_other_sites() -> None:
        view = app.view_functions.get(request.endpoint or "")
        is_marked = getattr(view, "refuses_other_sites", False)
        if is_marked and request.method in SAFE_METHODS and is_opened_by_another_site(request.environ):
            raise OtherSite(
                "This request came from another site.", "Opening this page starts a program on this machine."
            )


def _is_own_site(environ: Environ) -> bool:
    return environ.get("HTTP_SEC_FETCH_SITE") in (None, "same-origin", "none")


def _is_own_origin(environ: Environ) -> bool:
    origin = environ.get("HTTP_ORIGIN")
    return origin is None or origin_matches(origin, environ.get("HTTP_HOST", ""))
