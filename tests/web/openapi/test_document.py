"""The OpenAPI document covers all routes, agrees with them, and is what the page of the REST interface shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from digits.web.openapi.descriptions import PAGES
from digits.web.openapi.page import rest_page
from tests.site import Site
from tests.test_docs import text
from tests.web.trained import shared_site

site = shared_site

# Pages for people, of no use to programs.
PAGES_ONLY = {
    "/",
    "/login",
    "/docs/",
    "/docs/{path}",
    "/datasets/{kind}/new",
    "/datasets/{job_id}/add",
    "/datasets/{job_id}/versions/new",
    "/labels/new",
    "/labels/{job_id}/label",
    "/models/compare/evaluation",
    "/models/{kind}/new",
    "/models/{kind}/{call}",
    "/pretrained_models/new",
}
NOT_DESCRIBED = ("/static/", "/tensorboard/", "/font-roboto/")
JSON = {"Accept": "application/json"}
PAGE = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def document(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.json("/openapi.json")
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def test_every_route_is_in_the_document(site: Site, document: dict[str, Any]) -> None:
    routes = {
        (re.sub(r"<(?:[^:<>]+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in site.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if not rule.rule.startswith(NOT_DESCRIBED)
    }
    found = {(path, method) for path, method, _ in operations(document)}
    assert routes == found
    assert {path for path, _, operation in operations(document) if operation["tags"] == [PAGES]} == PAGES_ONLY


def test_every_operation_is_complete(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names)) and all(re.fullmatch(r"\w+", name) for name in names)
    for path, _, operation in operations(document):
        parameters = {item["name"] for item in operation.get("parameters", ()) if item["in"] == "path"}
        assert parameters == set(re.findall(r"\{(\w+)\}", path)), path
        assert operation.get("description") or operation["tags"] == [PAGES], path
        assert {"200", "400", "default"} == operation["responses"].keys()


def test_arguments_of_queries_are_parameters(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/datasets/{kind}/explore.json"]["get"]["parameters"]
    names = {item["name"] for item in parameters if item["in"] == "query"}
    assert {"job_id", "db", "page", "size", "label", "q"} <= names
    metrics = document["paths"]["/models/{job_id}/metrics.json"]["get"]
    assert {"name": "after", "in": "query", "schema": {"type": "string"}} in metrics["parameters"]
    assert (
        "the curves as columns" in metrics["description"] and "only the rows after" in metrics["description"]
    )


def test_references_have_targets(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            value = list(value.values())
        for item in value if isinstance(value, list) else []:
            yield from references(item)

    schemas = document["components"]["schemas"]
    found = set(references(document))
    assert found and {name.rpartition("/")[2] for name in found} <= schemas.keys()


def test_fields_have_limits_choices_and_defaults(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["ModelForm"]["properties"]
    assert fields["train_epochs"]["default"] == 30 and fields["snapshot_interval"]["type"] == "number"
    assert "ADAM" in fields["solver_type"]["enum"] and fields["shuffle"]["type"] == "boolean"
    dataset = document["components"]["schemas"]["DatasetForm.images.classification"]["properties"]
    assert (dataset["resize_width"]["minimum"], dataset["resize_width"]["maximum"]) == (1, 4096)
    assert dataset["textfile_labels_file"]["format"] == "binary"
    created = document["paths"]["/datasets/{kind}.json"]["post"]
    assert created["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "CreatedDataset"
    )
    assert created["responses"]["400"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "InvalidForm"
    )


def test_the_page_is_current(document: dict[str, Any]) -> None:
    assert rest_page(document) == text("rest.md"), "python -m tools.rest_page > docs/rest.md"


def test_twins_return_the_same_for_all_clients(site: Site, dataset: str, document: dict[str, Any]) -> None:
    """Each page with JSON returns it at its path and ``.json``, and to clients that accept JSON."""
    model = site.finished_model(dataset)
    twins = [path for path in document["paths"] if f"{path}.json" in document["paths"]]
    tried = set()
    for twin in twins:
        job = model if "/models/" in twin else dataset
        path = twin.replace("{job_id}", job).replace("{kind}", "images/classification")
        path = path.replace("{split}", "train").replace("{number}", "0")
        if "get" not in document["paths"][twin] or "{" in path or "/records/" in path:
            continue
        if "get" not in document["paths"][f"{twin}.json"]:
            continue
        query = (
            f"job_id={dataset}" if "explore" in twin else f"ids={model},{model}" if "compare" in twin else ""
        )
        as_path, accepted, page = (
            site.get(f"{path}{ending}?{query}", headers=headers)
            for ending, headers in ((".json", PAGE), ("", JSON), ("", PAGE))
        )
        bodies = [response.get_json() for response in (as_path, accepted)]
        for target in (target for body in bodies for target in body.get("targets", ())):
            del target["machine"]  # its load changes
        assert (as_path.status_code, bodies[0]) == (accepted.status_code, bodies[1]), twin
        assert as_path.is_json and (not page.is_json or twin.startswith("/serve")), twin
        tried.add(twin)
    assert {"/models/{job_id}", "/datasets/{job_id}", "/serve", "/models/{job_id}/evaluation"} <= tried


@pytest.mark.parametrize("path", ["/datasets/images/classification", "/models/images/classification"])
def test_errors_of_forms_have_the_shape_of_all_errors(site: Site, path: str) -> None:
    as_path, accepted = site.post(f"{path}.json"), site.client.post(path, headers=JSON)
    assert as_path.status_code == accepted.status_code == 400
    assert as_path.get_json() == accepted.get_json()
    body = as_path.get_json()
    assert body["error"]["type"] == "InvalidForm" and body["error"]["message"] and body["errors"]
    page = site.client.post(path, headers=PAGE)
    assert page.status_code == 400 and page.mimetype == "text/html"
