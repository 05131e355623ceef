"""The descriptions of routes: the rows of the tables in ``templates/rest.md``."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from digits.core.resources import resource_folder

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_VARIABLE = re.compile(r"\{\w+\}|\b(ID|KIND|NAME|SAMPLE|SPLIT|N|PATH|ENDING|FORMAT)\b")
# The template has one row for the values of these variables, with the first one.
_EXAMPLES = {
    "images/{place}": "images/classification",
    "{place}": "jobs",
    "{call}": "infer_one",
    "outputs.{ending}": "outputs.json",
    "generic{extension}": "generic/{extension}",
}
# The group of pages, which the template does not describe.
PAGES = "Pages"


class Described(NamedTuple):
    """The heading below which the template describes a route, the description, and the arguments of its query."""

    group: str
    text: str
    arguments: tuple[str, ...] = ()


@cache
def template() -> str:
    """Return the template of the documentation page."""
    return (resource_folder("templates") / "rest.md").read_text(encoding="utf-8")


def described(method: str, path: str) -> Described:
    """Return the description of a route by its path in the OpenAPI document; that of JSON also describes its page."""
    plain = _plain(path)
    forms = [(method, form) for form in (plain, f"{plain}.json", plain.removesuffix(".json"))]
    rows = [_descriptions()[form] for form in forms if form in _descriptions()]
    arguments = dict.fromkeys(name for row in rows for name in row.arguments)
    return rows[0]._replace(arguments=tuple(arguments)) if rows else Described(PAGES, "")


@cache
def _descriptions() -> dict[tuple[str, str], Described]:
    """Return the rows by method and path; a row may have several of both, as in ``GET`` or ``POST /path``.

    Rows that differ in the query are one description.
    """
    described: dict[tuple[str, str], Described] = {}
    group = ""
    for line in template().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| `"):
            requests, _, text = line[1:-1].partition(" | ")
            methods: list[str] = []
            is_open = False
            for word in " ".join(re.findall(r"`([^`]+)`", requests)).split():
                if word in _METHODS:
                    methods, is_open = [*(methods if is_open else []), word], True
                elif word.startswith("/"):
                    is_open = False
                    arguments = tuple(re.findall(r"[?&](\w+)=", word))
                    for key in ((method, _plain(word)) for method in methods):
                        earlier = described.get(key, Described(group, ""))
                        texts = "; ".join(dict.fromkeys(filter(None, (earlier.text, text.strip()))))
                        described[key] = Described(group, texts, earlier.arguments + arguments)
    return described


def _plain(path: str) -> str:
    """Return a path of the template or of the document with {} for its variable parts, without a query."""
    path = path.partition("?")[0]
    for name, example in _EXAMPLES.items():
        path = path.replace(name, example)
    return _VARIABLE.sub("{}", path)
