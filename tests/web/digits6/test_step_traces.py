"""Traces of training steps, with the routes of DIGITS 6."""

from __future__ import annotations

import pytest

from tests.site import Site
from tests.web.digits6.script import Script

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

TRACE = "/models/timeline_trace_data"


@pytest.fixture(scope="module")
def traced(script: Script, dataset: str) -> str:
    """A model whose third step was traced."""
    return script.finish(script.model(dataset, traces_interval=2))


def test_a_step_is_drawn_and_returned(site: Site, traced: str) -> None:
    assert site.json(f"/models/{traced}/timeline.json") == {"steps": [3]}
    redirect = site.get(f"/models/images/classification/timeline_tracing?job_id={traced}")
    assert redirect.headers["Location"] == f"/models/{traced}/timeline"
    page = site.get(redirect.headers["Location"]).text
    assert f'data-url="/files/{traced}/timeline_3.json"' in page
    assert f'href="/models/{traced}/timeline"' in site.get(f"/models/{traced}").text
    assert site.get(f"/models/{traced}/timeline?step=2").status_code == 404
    events = site.client.post(TRACE, data={"job_id": traced, "step": 3}).get_json()["traceEvents"]
    operations = [event for event in events if event["ph"] == "X"]
    assert operations and all(event["ts"] >= 0 and event["dur"] >= 0 for event in operations)


def test_a_model_without_traces(site: Site, model: str) -> None:
    assert "No step traces" in site.get(f"/models/{model}/timeline").text
    assert f"/models/{model}/timeline" not in site.get(f"/models/{model}").text


def test_errors_are_json(site: Site, model: str) -> None:
    for fields, status in (
        ({}, 400),
        ({"job_id": "foo", "step": 1}, 404),
        ({"job_id": model}, 400),
        ({"job_id": model, "step": "x"}, 400),
        ({"job_id": model, "step": 1}, 404),
    ):
        answer = site.client.post(TRACE, data=fields)
        assert answer.status_code == status and answer.get_json()["error"]["message"]


def test_large_charts_are_those_of_the_model(site: Site, model: str) -> None:
    for route in ("classification", "generic"):
        answer = site.get(f"/models/images/{route}/large_graph?job_id={model}")
        assert answer.headers["Location"] == f"/models/{model}"
