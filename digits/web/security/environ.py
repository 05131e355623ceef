"""Keys of the WSGI environment of a request, and questions about the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]
NONCE = "digits.csp_nonce"
# Cookies that the gate adds to the response.
COOKIES = "digits.cookies"
# Set once the response has started.
IS_ANSWERED = "digits.is_answered"
# The request body, as `Body`.
BODY = "digits.body"
# The object whose ``cut`` closes this request's websocket; set by the server.
WEBSOCKET = "digits.websocket"
# A response header: this response comes from another program and keeps its own policy.
KEEPS_POLICY = "X-Digits-Keeps-Policy"
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

VISITOR = "digits.visitor"
# Whether the request had proxy headers, which the gate removes.
FORWARDED = "digits.forwarded"


def query_of(environ: Environ) -> list[tuple[str, str]]:
    return parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)


def media_type(environ: Environ) -> str:
    """Return the media type of the body, without its parameters."""
    return str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()


def is_upgrade(environ: Environ) -> bool:
    """Return whether gevent or Socket.IO would treat this as a websocket request."""
    values = (environ.get("HTTP_UPGRADE", ""), environ.get("HTTP_CONNECTION", ""))
    return any(
        word.strip().lower() == known for word, known in zip(values, ("websocket", "upgrade"), strict=True)
    )


def wants_page(environ: Environ) -> bool:
    is_script = environ.get("HTTP_SEC_FETCH_DEST", "document") not in ("document", "iframe")
    return "text/html" in environ.get("HTTP_ACCEPT", "") and not is_script and not is_upgrade(environ)


def shortened(text: str) -> str:
    return repr(text[:100])
