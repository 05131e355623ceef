from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from digits.core.model_job import ModelJob
from digits.web.live.socket import Live
from tests.site import Site

NO_DATASET = "20260101-000000-abcd"


def cursor_of(page: str) -> str:
    return re.findall(r'<meta name="live-cursor" content="([^"]+)">', page)[0]


@pytest.fixture
def join(site: Site) -> Iterator[Any]:
    """Return a function that joins a room with a cursor and returns the acknowledgment."""
    live = site.services.live.socketio.test_client(site.app, namespace="/jobs", flask_test_client=site.client)
    yield lambda room, **body: live.emit("join", {"room": room, **body}, namespace="/jobs", callback=True)
    live.disconnect("/jobs")


def test_client_learns_whether_its_page_missed_messages(site: Site, join: Any) -> None:
    first, second = site.finished_model(NO_DATASET), site.finished_model(NO_DATASET)
    page = cursor_of(site.get(f"/models/{first}").text)
    assert join(first, cursor=page) == {"room": first, "missed": False, "storage_problem": None}
    for attribute in ("job_notes", "job_name", "group_name"):
        before = cursor_of(site.get(f"/models/{first}").text)
        site.client.put(f"/jobs/{first}", data={attribute: "changed"})
        assert join(first, cursor=before)["missed"] and join("job_management", cursor=before)["missed"]
        assert not join(second, cursor=before)["missed"]
    assert not join(first, cursor=cursor_of(site.get(f"/models/{first}").text))["missed"]


def test_message_published_while_the_page_is_made_is_missed(
    site: Site, join: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = site.finished_model(NO_DATASET)
    snapshots = ModelJob.snapshots

    def publish_and_list(job: ModelJob) -> Any:
        site.services.live.publish(model, "job update", {})
        return snapshots(job)

    monkeypatch.setattr(ModelJob, "snapshots", publish_and_list)
    page = cursor_of(site.get(f"/models/{model}").text)
    assert join(model, cursor=page)["missed"]


@pytest.mark.parametrize(
    "cursor", [None, 7, "", ".", "x.1", "{}.", "{}.-1", "{}.²", "{}.99999999999999999999"]
)
def test_unknown_cursor_counts_as_missed(cursor: Any) -> None:
    live = Live(lambda: None)
    own = live.cursor.partition(".")[0]
    assert live.has_missed("room", cursor.format(own) if isinstance(cursor, str) else cursor)
    assert live.has_missed("room", Live(lambda: None).cursor)
    assert not live.has_missed("room", live.cursor)
