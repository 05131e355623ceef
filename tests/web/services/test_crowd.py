"""One response to the same request of many people."""

from __future__ import annotations

import gevent
import pytest
from flask import Response

from digits.web.live.socket import Live
from digits.web.services.crowd import MAX_ANSWERS, Crowd
from tests.site import Site


def test_simultaneous_requests_get_copies_of_one_response() -> None:
    made: list[Response] = []

    def make() -> Response:
        gevent.sleep(0.01)
        made.append(Response("text", headers={"Vary": "X-Fragment"}))
        return made[-1]

    crowd = Crowd()
    requests = [gevent.spawn(crowd.response, "key", make) for _ in range(5)]
    answers = [request.get() for request in requests]
    assert len(made) == 1 and len({id(answer) for answer in answers}) == 5
    assert {(answer.get_data(), answer.headers["Vary"]) for answer in answers} == {(b"text", "X-Fragment")}
    assert crowd.response("other", make).get_data() == b"text" and len(made) == 2


def test_a_response_is_made_again_after_a_while_and_after_an_error() -> None:
    crowd, calls = Crowd(seconds=0.0), []

    def make() -> Response:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("broken")
        return Response(str(len(calls)))

    with pytest.raises(ValueError, match="broken"):
        crowd.response("key", make)
    assert [crowd.response("key", make).get_data() for _ in range(2)] == [b"2", b"3"]
    for key in range(MAX_ANSWERS + 10):
        crowd.response(key, make)
    assert len(crowd._answers) == MAX_ANSWERS


def test_the_lists_of_a_crowd_are_rendered_once_for_each_change(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Live, "watchers", 100)
    model = site.finished_model("20260101-000000-abcd")

    def lists(query: str = "") -> str:
        text: str = site.get(f"/{query}", headers={"X-Fragment": "jobs", "Accept": "text/html"}).text
        return text

    assert model in lists() and model in lists()
    job = site.services.store.find(model)
    assert job
    job.name = "renamed without a message"
    site.services.store.index.update(job)
    assert "renamed without" not in lists() and "renamed without" in lists("?q=renamed")
    site.client.put(f"/jobs/{model}", data={"job_name": "renamed by a user"})
    assert "renamed by a user" in lists()
