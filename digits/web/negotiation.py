"""Whether a response is a page or JSON."""

from __future__ import annotations

from flask import request

from digits.web.error_json import is_always_json


def wants_json() -> bool:
    """Return whether the client of this request is a program: it prefers JSON to a page, or names itself."""
    if is_always_json(request.path) or "Tus-Resumable" in request.headers:
        return True
    if request.headers.get("X-Requested-With"):
        return True
    best = request.accept_mimetypes.best_match(["text/html", "application/json"])
    return best == "application/json"
