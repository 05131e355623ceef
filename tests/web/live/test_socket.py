from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from digits.core.model_job import ModelJob
from digits.web.live.messages import EVERYONE, JOB
from digits.web.live.socket import NAMESPACE, Live
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


class Clients:
    """A socket with some clients that notes what it sends."""

    def __init__(self, count: int) -> None:
        self.server = self.manager = self
        self.rooms = {NAMESPACE: {room: dict.fromkeys(range(count)) for room in (EVERYONE, "a", "b")}}
        self.sent: list[dict[str, Any]] = []  # to the room of lists
        self.sent_to_pages = 0

    def emit(self, event: str, body: dict[str, Any], to: str, namespace: str) -> None:
        if to == EVERYONE:
            self.sent.append(body)
        else:
            self.sent_to_pages += 1


def crowded(count: int) -> tuple[Live, Clients]:
    live, clients = Live(lambda: None), Clients(count)
    live.socketio = clients  # type: ignore[assignment]
    return live, clients


def progress(job: str, percentage: int) -> dict[str, Any]:
    return {"update": "progress", "job_id": job, "percentage": percentage}


def test_a_crowd_receives_the_latest_progress_of_each_job_in_turn() -> None:
    live, clients = crowded(400)
    for percentage in range(10):
        for job in "ab":
            live.publish(EVERYONE, JOB, progress(job, percentage))
            live.publish(job, JOB, progress(job, percentage))
    assert clients.sent == [progress("a", 0)] and clients.sent_to_pages == 20
    gevent.sleep(0.5)
    assert clients.sent[1:] == [progress("b", 9), progress("a", 9)]


def test_a_client_receives_every_update() -> None:
    live, clients = crowded(1)
    sent = [progress("a", percentage) for percentage in range(50)]
    for body in sent:
        live.publish(EVERYONE, JOB, body)
        gevent.sleep(0.0005)
    assert clients.sent == sent


def test_a_crowd_learns_over_which_time_to_spread_its_requests() -> None:
    changed = {"update": "added", "job_id": "a"}
    live, clients = crowded(1000)
    live.publish(EVERYONE, JOB, changed)
    assert clients.sent == [{**changed, "spread": 15.0}]
    live, clients = crowded(10)
    live.publish(EVERYONE, JOB, changed)
    assert clients.sent == [changed]


def test_a_client_joins_a_limited_number_of_rooms(join: Any) -> None:
    ids = [f"20260101-000000-{number:06x}" for number in range(300)]
    answers = [join(room) for room in ids]
    refused = [answer["error"] for answer in answers if "error" in answer]
    assert len(refused) == 100 and "Leave one" in refused[0]
    assert "error" not in join(ids[0])
