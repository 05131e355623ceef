"""Serve the Markdown pages of ``docs`` as pages of the site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import markdown
from flask import Blueprint, current_app, jsonify, render_template, send_from_directory
from gevent.lock import BoundedSemaphore
from markupsafe import Markup
from werkzeug.wrappers import Response

from digits.core.errors import NotFound
from digits.core.resources import resource_folder
from digits.web.offload import in_thread
from digits.web.openapi.document import document

blueprint = Blueprint("documentation", __name__)

INDEX = "README.md"
_PAGE = re.compile(r"[\w-]+\.md")


@blueprint.get("/docs/", defaults={"name": INDEX})
@blueprint.get("/docs/<name>")
def page(name: str) -> str:
    """Show a page of the documentation. Links between pages use file names and work unchanged."""
    title, body = _pages().get(name)
    return render_template("documentation.html", title=title, body=body, is_index=name == INDEX)


@blueprint.get("/docs/images/<name>")
def picture(name: str) -> Response:
    return send_from_directory(_folder() / "images", name)


@blueprint.get("/openapi.json")
def openapi() -> Response:
    """Return this interface as an OpenAPI document."""
    known = current_app.extensions
    if "openapi" not in known:
        known["openapi"] = document(current_app._get_current_object())  # type: ignore[attr-defined]
    return jsonify(known["openapi"])


class Pages:
    """The pages in ``folder``, each of which is rendered once, in a thread: a long one takes half a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rendered: dict[str, tuple[str, Markup]] = {}
        self._rendering = BoundedSemaphore(1)

    def get(self, name: str) -> tuple[str, Markup]:
        """Return the title and HTML of a page; raises NotFound."""
        if name not in self._rendered:
            with self._rendering:
                self._rendered[name] = self._rendered.get(name) or in_thread(self._render, name)
        return self._rendered[name]

    def _render(self, name: str) -> tuple[str, Markup]:
        path = self._folder / name
        if not _PAGE.fullmatch(name) or not path.is_file():
            raise NotFound(f"The documentation has no page “{name}”.")
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ").strip()
        body = markdown.markdown(text, extensions=["tables", "fenced_code", "toc"])
        return title, Markup(_scrollable(body))  # noqa: S704 (our own files)


@cache
def _folder() -> Path:
    return resource_folder("docs")


@cache
def _pages() -> Pages:
    return Pages(_folder())


_TABLE = '<div class="table-wrap" tabindex="0"><table class="table">'


def _scrollable(html: str) -> str:
    """Make wide tables and code scroll independently, also with the keyboard."""
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<table>", _TABLE)
    return html.replace("</table>", "</table></div>")
