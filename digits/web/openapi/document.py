"""The REST interface as an OpenAPI document, made from the routes, the forms and the resources."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from flask import Flask
from werkzeug.routing import Rule
from wtforms import Field, FileField, Form, SelectField
from wtforms.fields import BooleanField, FloatField, IntegerField, MultipleFileField
from wtforms.validators import DataRequired, InputRequired, Length, NumberRange

from digits import __version__
from digits.kinds import all_kinds
from digits.web.datasets.versions import VersionForm
from digits.web.models.form import ModelForm
from digits.web.models.pretrained import PretrainedForm
from digits.web.openapi.descriptions import described
from digits.web.resources.errors import Error, InvalidForm

Schema = dict[str, Any]

# Neither resources nor pages: files of the pages themselves, and another program behind a proxy.
_HIDDEN = ("/static/", "/tensorboard/", "/font-roboto/")
# The forms that requests send, besides those for datasets, which depend on the kind.
_FORMS: dict[str, type[Form]] = {
    "model_form.create": ModelForm,
    "model_form.sweep": ModelForm,
    "model_checks.preflight": ModelForm,
    "model_checks.visualize_network": ModelForm,
    "versions.create": VersionForm,
    "pretrained.create": PretrainedForm,
    "generic.create_model": ModelForm,
}
_FORMS_OF_KINDS = frozenset({"datasets.create", "datasets.scan", "generic.create_dataset"})
_MEDIA = {
    ".csv": "text/csv",
    ".png": "image/png",
    "/thumbnail": "image/jpeg",
    "/image": "image/png",
    "/picture": "image/*",
    "/mask": "image/png",
    "/export": "application/zip",
    "/target": "image/png",
    "/records/{split}/{number}": "image/png",
    "/images/{number}": "image/png",
    ".{ending}": "application/octet-stream",
    "/files/{path}": "application/octet-stream",
    "/metrics": "text/plain",
}
_TYPES: tuple[tuple[type[Field], Schema], ...] = (
    (MultipleFileField, {"type": "array", "items": {"type": "string", "format": "binary"}}),
    (FileField, {"type": "string", "format": "binary"}),
    (BooleanField, {"type": "boolean"}),
    (IntegerField, {"type": "integer"}),
    (FloatField, {"type": "number"}),
)


def document(app: Flask) -> Schema:
    """Return the document of an application; needs a request context."""
    rules = [rule for rule in app.url_map.iter_rules() if not rule.rule.startswith(_HIDDEN)]
    resources = {view.resource for view in app.view_functions.values() if hasattr(view, "resource")}
    _, schemas = msgspec.json.schema_components(
        [Error, InvalidForm, *sorted(resources, key=str)],
        schema_hook=lambda kind: {"type": "object"},  # JsonObject
        ref_template="#/components/schemas/{name}",
    )
    schemas |= {form.__name__: form_schema(form) for form in set(_FORMS.values())}
    schemas |= {
        _form_name(kind.route): form_schema(kind.load("form").DatasetForm) for kind in all_kinds().values()
    }
    paths: dict[str, Schema] = {}
    for rule in sorted(rules, key=lambda rule: rule.rule):
        path = _path(rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            paths.setdefault(path, {})[method.lower()] = _operation(app, rule, path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "DIGITS", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(app: Flask, rule: Rule, path: str, method: str) -> Schema:
    view = app.view_functions[rule.endpoint]
    words = re.sub(r"``?", "`", inspect.getdoc(view) or "")
    summary, _, more = words.partition("\n\n")
    group, description, arguments = described(method, path)
    query = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in arguments]
    body = _request_body(rule) if method in ("POST", "PUT", "PATCH", "DELETE") else None
    is_invalid = _ref(InvalidForm.__name__) if body else _ref(Error.__name__)
    operation = {
        "operationId": method.lower() + re.sub(r"[{}]", "", re.sub(r"[/.:-]", "_", path)),
        "tags": [group],
        "summary": " ".join(summary.split()) or None,
        "description": description or " ".join(more.split()) or None,
        "parameters": [*_parameters(rule), *query] or None,
        "requestBody": body,
        "responses": {
            "200": {"description": "Success", "content": _content(view, path, method)},
            "400": {
                "description": "Invalid request",
                "content": {"application/json": {"schema": is_invalid}},
            },
            "default": {
                "description": "Error",
                "content": {"application/json": {"schema": _ref(Error.__name__)}},
            },
        },
    }
    return {name: value for name, value in operation.items() if value is not None}


def _path(rule: Rule) -> str:
    return re.sub(r"<(?:[^:<>]+:)?(\w+)>", r"{\1}", rule.rule)


def _parameters(rule: Rule) -> Iterator[Schema]:
    """Yield the variable parts of a path."""
    for converter, arguments, name in re.findall(r"<(?:(\w+)(?:\(([^)]*)\))?:)?(\w+)>", rule.rule):
        schema: Schema = {"type": "string"}
        if converter == "kind":
            schema["enum"] = [kind.route for kind in all_kinds().values()]
        elif converter == "any":
            schema["enum"] = [item.strip(" \"'") for item in arguments.split(",")]
        elif converter == "int":
            schema = {"type": "integer", "minimum": 0}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _request_body(rule: Rule) -> Schema | None:
    endpoint = rule.endpoint.removesuffix("_json")
    if endpoint in _FORMS_OF_KINDS:
        schema: Schema = {"anyOf": [_ref(_form_name(kind.route)) for kind in all_kinds().values()]}
    elif endpoint in _FORMS:
        schema = _ref(_FORMS[endpoint].__name__)
    else:
        return None
    return {"content": {"multipart/form-data": {"schema": schema}}}


def _content(view: Any, path: str, method: str) -> Schema:
    """Return the media types of a response: JSON for programs, a page for people, or a file."""
    if hasattr(view, "resource"):
        json = {"application/json": {"schema": _ref(view.resource.__name__)}}
        has_page = not path.endswith(".json") and not hasattr(view, "is_json_only")
        return {**json, "text/html": {"schema": {"type": "string"}}} if has_page else json
    if path.endswith(".json") or hasattr(view, "is_json_only") or method in ("PUT", "PATCH", "DELETE"):
        return {"application/json": {"schema": {"type": "object"}}}
    media = next((media for ending, media in _MEDIA.items() if path.endswith(ending)), "text/html")
    return {media: {"schema": {"type": "string"}}}


def form_schema(form_class: type[Form]) -> Schema:
    """Return the fields of a form by name: their type, limits, choices, default, title and description."""
    form = form_class(formdata=None)
    # Sorted, because the order of fields of several classes depends on which module was imported first.
    fields = {
        field.name: field
        for field in sorted(form, key=lambda field: field.name)
        if field.name != "csrf_token"
    }
    required = [name for name, field in fields.items() if _has(field, DataRequired, InputRequired)]
    return {
        "type": "object",
        "properties": {name: _field_schema(field) for name, field in fields.items()},
        **({"required": required} if required else {}),
    }


def _field_schema(field: Field) -> Schema:
    schema: Schema = next(
        (dict(schema) for kind, schema in _TYPES if isinstance(field, kind)), {"type": "string"}
    )
    if isinstance(field, SelectField) and field.choices:
        schema["enum"] = [choice[0] for choice in field.iter_choices()]
    for limits in (item for item in field.validators if isinstance(item, NumberRange)):
        schema |= {"minimum": limits.min, "maximum": limits.max}
    for length in (item for item in field.validators if isinstance(item, Length) and item.max > 0):
        schema["maxLength"] = length.max
    schema |= {"title": str(field.label.text), "description": str(field.description)}
    default = field.default() if callable(field.default) else field.default
    if isinstance(default, str | int | float) and not isinstance(default, bool):
        schema["default"] = default
    return {name: value for name, value in schema.items() if value not in (None, "")}


def _has(field: Field, *kinds: type) -> bool:
    return any(isinstance(item, kinds) for item in field.validators)


def _form_name(route: str) -> str:
    return "DatasetForm." + route.replace("/", ".")


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
