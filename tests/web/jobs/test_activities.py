"""An activity is one declaration and one template: its routes, its JSON, its messages and its panel follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jinja2 import ChoiceLoader, DictLoader

from digits.core.errors import BadRequest
from digits.core.job import DeviceRequest
from digits.core.recipe import CheckDataset
from digits.data.health import health
from digits.data.manifest import HEALTH_FILE
from digits.kinds.jobs import DatasetJob
from digits.runtime.executors.executor import place
from digits.web.app import ACTIVITIES
from digits.web.jobs.activities import Activity
from digits.web.resources.tasks import ActivityState
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site, site_settings

pytestmark = pytest.mark.integration

TEMPLATE = """{% extends '_activity.html' %}
{% block results %}{% if state.images %}<p>{{ state.images }} images of {{ job.name }} counted</p>{% endif %}{% endblock %}
{% block form %}<form method="post" action="{{ url_for('census.start', job_id=job.id) }}">Count them</form>{% endblock %}"""


class Census(ActivityState, kw_only=True):
    """The number of images of a dataset."""

    images: int


def recipe(job: DatasetJob) -> CheckDataset:
    """Count the images."""
    if job.name == "uncountable":
        raise BadRequest("This cannot be counted.")
    return CheckDataset(dataset=str(job.folder), appearance=False, counts=False)


def result(job: DatasetJob) -> dict[str, Any]:
    manifest, has_result = job.manifest(), (job.folder / HEALTH_FILE).exists()
    return {"images": health.load(job.folder, manifest).images if manifest and has_result else 0}


CENSUS = Activity(
    name="census",
    path="census",
    noun="count",
    title="Census",
    job_type=DatasetJob,
    task_folder="census",
    results=HEALTH_FILE,
    recipe=recipe,
    resource=Census,
    result=result,
    template="_census.html",
    needs_tensorflow=False,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, executor: SharedExecutor) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("digits.web.app.ACTIVITIES", (*ACTIVITIES, CENSUS))
        opened = open_site(site_settings(tmp_path_factory.mktemp("site")), executor)
    assert opened.app.jinja_loader
    opened.app.jinja_loader = ChoiceLoader([opened.app.jinja_loader, DictLoader({"_census.html": TEMPLATE})])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dataset(site: Site) -> str:
    job_id = site.dataset(dataset_name="counted")
    assert site.wait_for_end(job_id) == "Done"
    return job_id


def test_an_activity_has_a_panel_json_and_messages(site: Site, dataset: str) -> None:
    url = f"/datasets/{dataset}/census"
    assert site.json(f"{url}.json") == {
        "state": "none",
        "progress": 0.0,
        "eta_seconds": None,
        "doing": "",
        "error": None,
        "tasks": [],
        "images": 0,
    }
    page = site.get(f"/datasets/{dataset}").text
    assert 'id="census"' in page and 'data-activity="census"' in page and ">Census</h2>" in page
    assert f'action="{url}"' in page and "Count them" in page and "counted</p>" not in page
    sent: list[Any] = []
    site.services.live.publish = lambda *message: sent.append(message)  # type: ignore[method-assign]

    started = site.post(f"{url}.json")
    assert (started.status_code, started.get_json()["state"]) == (202, "running")
    assert site.post(f"{url}.json").status_code == 409
    site.wait(lambda: site.json(f"{url}.json")["state"] == "done")
    assert site.json(f"{url}.json")["images"] == 24
    assert "24 images of counted counted" in site.get(f"/datasets/{dataset}").text
    updates = [body for _, _, body in sent if body["update"] == "census"]
    assert updates[-1] == {"update": "census", "job_id": dataset, "key": "", "state": "done"}


def test_its_tasks_are_stopped(site: Site, dataset: str) -> None:
    url = f"/datasets/{dataset}/census"
    slot = place(site.services.executor.ledger, DeviceRequest("activity"))
    assert slot is not None
    try:
        form = site.post(url)
        assert form.status_code == 302 and form.location.endswith(f"/datasets/{dataset}#census")
        (task,) = site.json(f"{url}.json")["tasks"]
        assert task["state"] == "waiting"
        page = site.get(f"/datasets/{dataset}").text
        assert f'action="{url}/stop"' in page and "Waiting for other counts" in page
        assert site.post(f"{url}/stop.json", name="other").status_code == 409
        stopped = site.post(f"{url}/stop.json")
        assert (stopped.status_code, stopped.get_json()["tasks"]) == (202, [])
    finally:
        site.services.executor.ledger.release(slot)
    assert site.post(f"{url}/stop").status_code == 409


def test_its_errors_and_failures_are_shown(site: Site, dataset: str) -> None:
    other = site.dataset(dataset_name="uncountable")
    assert site.wait_for_end(other) == "Done"
    assert site.post(f"/datasets/{other}/census").status_code == 400
    assert site.post(f"/datasets/{other}0/census").status_code == 404
    shard = next((site.services.store.folder / dataset).glob("train-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[100] ^= 255
    shard.write_bytes(data)
    url = f"/datasets/{dataset}/census"
    assert site.post(f"{url}.json").status_code == 202
    site.wait(lambda: site.json(f"{url}.json")["state"] == "failed")
    message = site.json(f"{url}.json")["error"]["message"]
    assert "damaged" in message and "damaged" in site.get(f"/datasets/{dataset}").text
