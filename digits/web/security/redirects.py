"""Addresses of this site to which a browser is redirected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from flask import Request


def safe_next(text: str | None) -> str:
    """Return ``text`` if it is a path of this site, else an empty string.

    Browsers drop control characters and treat a backslash as a slash, so both are rejected.
    """
    if not text or len(text) > 2000 or not text.startswith("/") or text.startswith("//"):
        return ""
    if "\\" in text or any(ord(character) <= 32 or ord(character) == 127 for character in text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return "" if parts.scheme or parts.netloc or "//" in parts.path else text


def site_path(environ: Mapping[str, Any], query: str) -> str:
    """The path of this request as the browser wrote it, with another query; safe to redirect to."""
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1", "replace")
    encoded = "/" + re.sub("/+", "/", quote(path, safe="/:@!$&'()*+,;=~-._")).lstrip("/")
    return f"{encoded}?{query}" if query else encoded


def own_address(request: Request) -> str:
    """The path and query of this request, as a link back to it."""
    return site_path(request.environ, request.query_string.decode("latin-1"))
