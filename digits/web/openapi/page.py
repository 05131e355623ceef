"""The documentation page of the REST interface: ``python -m tools.rest_page > docs/rest.md``.

The text and the descriptions of the routes are in ``templates/rest.md``; the fields and the keys are the ones of the
OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from digits.web.openapi.descriptions import template
from digits.web.security.bodies import MAX_IMAGE_BYTES

_MARK = re.compile(r"<!-- ([\w ]+) -->")


def rest_page(document: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    parts: dict[str, Callable[[], Iterable[str]]] = {
        "fields of datasets": lambda: _dataset_fields(schemas),
        "fields of models": lambda: _fields(schemas["ModelForm"]["properties"]),
        "size of images": lambda: [f"{MAX_IMAGE_BYTES // 10**6} MB"],
        "resources": lambda: _resources(schemas),
    }
    return _MARK.sub(lambda mark: "\n".join(parts[mark[1]]()), template())


def _dataset_fields(schemas: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the fields that the forms of all kinds share, and one for each kind."""
    forms = {
        name.removeprefix("DatasetForm.").replace(".", "/"): schema["properties"]
        for name, schema in schemas.items()
        if name.startswith("DatasetForm.")
    }
    first = next(iter(forms.values()))
    shared = {
        name: field
        for name, field in first.items()
        if all(form.get(name) == field for form in forms.values())
    }
    yield from _fields(shared)
    for kind, form in forms.items():
        yield from ("", f"### {kind}", "")
        yield from _fields({name: field for name, field in form.items() if name not in shared})


def _fields(fields: dict[str, Any]) -> Iterator[str]:
    yield from ("| Field | Values | Default | Meaning |", "|---|---|---|---|")
    for name, field in fields.items():
        default = f"`{field['default']}`" if "default" in field else ""
        words = ". ".join(filter(None, (field.get("title"), field.get("description"))))
        yield f"| `{name}` | {_values(field)} | {default} | {_cell(words)} |"


def _resources(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        if "title" not in schema:  # the fields of a form
            continue
        words = " ".join(schema.get("description", "").replace("``", "`").split())
        yield from (f"### {name}", "", *([words, ""] if words else []), "| Key | Value |", "|---|---|")
        required = schema.get("required", ())
        for key, value in schema["properties"].items():
            yield f"| {f'`{key}`' if key in required else f'*{key}*'} | {_cell(_values(value))} |"
        yield ""


def _values(schema: dict[str, Any]) -> str:
    """Describe the values of a field or a key: choices, or a type with its limits."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{item}`" for item in schema["enum"] if item != "")
    low, high = (_number(schema.get(limit)) for limit in ("minimum", "maximum"))
    limits = (
        f" from {low} to {high}" if low and high else f" ≥ {low}" if low else f" ≤ {high}" if high else ""
    )
    if schema.get("format") == "binary":
        return "file"
    if "items" in schema and isinstance(schema["items"], dict):
        return f"list of {_values(schema['items'])}"
    return f"{schema.get('type', 'any')}{limits}".replace("string", "text")


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
