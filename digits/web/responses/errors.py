"""Errors as JSON: in the format of DIGITS, or in that of TensorFlow Serving and KServe."""

from __future__ import annotations

import re
from typing import Any

from flask import get_template_attribute, request

_PROTOCOL = re.compile(r"/serve/[^/]+/v[12](/|\Z)")


def with_box(body: dict[str, Any]) -> dict[str, Any]:
    """Add the box that shows the error of ``body``, as markup, if the request is that of a page's script."""
    if "X-Error-Box" in request.headers:
        body["error"]["box"] = get_template_attribute("_job.html", "error_box")(body["error"])
    return body


def error_body(path: str, message: str, kind: str, hint: str = "", **more: Any) -> dict[str, Any]:
    """Return the body of an error at ``path``. TensorFlow Serving and KServe expect one string.

    ``kind`` is the type of the error. Empty values of ``more`` are omitted.
    """
    if _PROTOCOL.match(path):
        return {"error": f"{message} {hint}".strip()}
    optional = {"hint": hint, **more}
    return {
        "error": {"message": message, "type": kind}
        | {name: value for name, value in optional.items() if value}
    }
