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


def test_a_trace_is_listed_and_returned(site: Site, traced: str) -> None:
    url = f"/files/{traced}/timeline_3.json"
    assert site.json(f"/models/{traced}.json")["step_traces"] == [{"step": 3, "url": url}]
    assert f'<a href="{url}" download>Step 3</a>' in site.get(f"/models/{traced}").text
    trace = site.client.post(TRACE, data={"job_id": traced, "step": 3}).get_json()
    assert trace == site.json(url)
    operations = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert operations and all(event["ts"] >= 0 and event["dur"] >= 0 for event in operations)


def test_a_model_without_traces(site: Site, model: str) -> None:
    assert site.json(f"/models/{model}.json")["step_traces"] == []
    assert "timeline_" not in site.get(f"/models/{model}").text


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
