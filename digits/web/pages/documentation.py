"""Serve the documentation site that Sphinx builds from the folder ``docs``."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

from flask import Blueprint, current_app, jsonify, redirect, send_from_directory, url_for
from werkzeug.wrappers import Response

from digits.core.errors import NotFound
from digits.core.resources import resource_folder
from digits.web.openapi.document import document
from digits.web.security.environ import KEEPS_POLICY

blueprint = Blueprint("documentation", __name__)


@blueprint.get("/docs/", defaults={"path": "index.html"})
@blueprint.get("/docs/<path:path>")
def page(path: str) -> Response:
    """Return a file of the site. The name of a source file, such as ``networks.md``, leads to its page."""
    site = resource_folder("static") / "docs"
    if path.endswith(".md"):
        return redirect(url_for(".page", path=f"{path.removesuffix('.md')}.html"))
    if not (site / "index.html").is_file():
        raise NotFound(
            "The documentation has not been built yet.",
            "digits-devserver builds it when the server has started: reload this page in a minute. "
            "In other installations, run: python -m sphinx docs static/docs",
        )
    response = send_from_directory(site, path)
    if path.endswith(".html"):
        response.headers["Content-Security-Policy"] = _policy(site)
        response.headers[KEEPS_POLICY] = "1"
    return response


@blueprint.get("/openapi.json")
def openapi() -> Response:
    """Return this interface as an OpenAPI document."""
    known = current_app.extensions
    if "openapi" not in known:
        known["openapi"] = document(current_app._get_current_object())  # type: ignore[attr-defined]
    return jsonify(known["openapi"])


@cache
def _policy(site: Path) -> str:
    """Return the Content Security Policy of the site, whose theme has an inline script and inline styles."""
    scripts = re.findall(rb"<script>(.*?)</script>", (site / "index.html").read_bytes(), re.S)
    hashes = " ".join(f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'self'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )
