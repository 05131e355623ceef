"""The security headers of responses."""

from __future__ import annotations

from typing import Any

from digits.web.security.environ import (
    BODY,
    COOKIES,
    IS_ANSWERED,
    KEEPS_POLICY,
    NONCE,
    Environ,
    StartResponse,
)
from digits.web.security.origin import HOST

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
}
# Remove CORS headers, even if the application or a library sets them.
_REMOVED = ("access-control-", KEEPS_POLICY.lower())


def content_security_policy(nonce: str, host: str) -> str:
    """Return the Content Security Policy of our own pages: scripts and other resources from this server only.

    ``host`` is the value of the Host header; some browsers do not match its websocket with ``'self'``.
    """
    live = f" ws://{host} wss://{host}" if HOST.fullmatch(host.lower()) else ""
    return (
        "default-src 'self'; img-src 'self' data: blob:; "
        f"style-src 'self' 'nonce-{nonce}'; style-src-attr 'unsafe-inline'; "
        f"connect-src 'self'{live}; frame-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'self'"
    )


def with_headers(environ: Environ, start_response: StartResponse) -> StartResponse:
    """Return a ``start_response`` that adds the security headers and the gate's cookies."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        environ[IS_ANSWERED] = True
        names = {name.lower() for name, _ in headers}
        kept = [item for item in headers if not item[0].lower().startswith(_REMOVED)]
        added = dict(_HEADERS)
        if KEEPS_POLICY.lower() not in names:
            added["Content-Security-Policy"] = content_security_policy(
                environ[NONCE], environ.get("HTTP_HOST", "")
            )
        if any(name.lower() == "content-type" and "json" in value.lower() for name, value in headers):
            added["Cache-Control"] = "no-store"
        body = environ.get(BODY)
        if body is not None and body.is_broken:
            added["Connection"] = "close"
        kept += [(name, value) for name, value in added.items() if name.lower() not in names]
        kept += [("Set-Cookie", cookie) for cookie in environ[COOKIES]]
        return start_response(status, kept, *([exc_info] if exc_info else []))

    return start
