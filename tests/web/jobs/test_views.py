"""Views shared by all jobs, over HTTP."""

from __future__ import annotations

import time

import pytest

from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.core.settings import Settings
from digits.data.models import predictions
from digits.data.models.predictions import BatchPrediction, ListedImage
from digits.web.jobs import serializers
from digits.web.predictions import runs as prediction_runs
from digits.web.resources.jobs import Device
from tests.site import Site, bars, open_idle_site
from tests.web.trained import Finished

pytestmark = pytest.mark.integration

UNKNOWN = "20200101-000000-abcdef"


def test_unknown_jobs_and_paths_are_not_found(site: Site) -> None:
    paths = f"/jobs/{UNKNOWN} /datasets/{UNKNOWN} /models/{UNKNOWN}.json /jobs/{UNKNOWN}/status".split()
    paths += f"/jobs/{UNKNOWN}/table_data.json /models/{UNKNOWN}/metrics.json /clone/{UNKNOWN}".split()
    paths += f"/files/{UNKNOWN}/job.json /files/../secret /files/.server/forkserver.log".split()
    paths += "/jobs/..%2f..%2fetc/status /datasets/summary?job_id=nothing /no/such/page".split()
    for path in paths:
        answer = site.get(path, headers={"Accept": "application/json"})
        assert (answer.status_code, bool(answer.get_json()["error"]["message"])) == (404, True), path


def test_errors_are_pages_for_browsers_and_json_for_scripts(site: Site) -> None:
    page = site.get(f"/models/{UNKNOWN}", headers={"Accept": "text/html"})
    assert (page.status_code, page.mimetype) == (404, "text/html")
    assert "no such job" in page.text
    assert site.get(f"/models/{UNKNOWN}.json").get_json()["error"]["type"] == "NotFound"


def test_the_home_page_without_jobs_offers_a_sample_dataset(site: Site) -> None:
    page = site.get("/").text
    assert 'action="/try/mnist"' in page
    assert site.json("/index.json")["datasets"] == []


def test_a_dataset_is_listed_renamed_and_deleted(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site, group_name="first group")
    row = site.json(f"/jobs/{job_id}/table_data.json")["job"]
    assert (row["name"], row["group"], row["progress"], row["refs"]) == ("bars", "first group", 100.0, 0)
    assert (row["backend"], row["extension"]) == ("tfrecords", "image-classification")
    part = site.get(f"/datasets/summary?job_id={job_id}")
    assert part.mimetype == "text/html" and "18 training, 6 validation images" in part.text
    assert "16×16 color" in part.text and 'title="middle"' in part.text and "<html" not in part.text
    assert site.get(f"/jobs/{job_id}").headers["Location"] == f"/datasets/{job_id}"

    job = site.services.store.get(job_id, Job)
    start = time.time() + 7230
    job.wait_for("all nodes are in use", start, at="Slurm")
    row = site.json(f"/jobs/{job_id}/table_data.json")["job"]
    assert [row[key] for key in ("waiting_at", "waiting_for", "expected_start")] == [
        "Slurm",
        "all nodes are in use",
        start,
    ]
    page = site.get(f"/datasets/{job_id}").text
    assert "Waiting at Slurm because all nodes are in use; expected to start <time " in page
    assert ">in 2 hours</time>" in page

    answer = site.client.put(
        f"/datasets/{job_id}", data={"job_name": "stripes", "job_notes": "<b>striped</b>"}
    )
    assert answer.status_code == 200
    assert site.json("/index.json")["datasets"] == [{"id": job_id, "name": "stripes", "status": "Done"}]
    assert "<b>striped</b>" not in site.get(f"/datasets/{job_id}").text

    folder = site.services.store.folder / job_id
    assert site.client.delete(f"/datasets/{job_id}").status_code == 200
    assert not folder.exists()
    assert site.get(f"/datasets/{job_id}").status_code == 404


def test_an_invalid_name_is_refused(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)
    for fields in ({}, {"job_name": "  "}, {"job_name": "x" * 300}):
        assert site.client.put(f"/jobs/{job_id}", data=fields).status_code == 400, fields
        assert site.json(f"/jobs/{job_id}/table_data.json")["job"]["name"] == "bars"


def test_notes_changed_in_the_meantime_are_not_overwritten(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)

    def save(notes: str, **before: str) -> int:
        answer = site.client.put(f"/jobs/{job_id}", data={"job_notes": notes, **before})
        return int(answer.status_code)

    assert save("first\r\nline", job_notes_before="") == 200
    assert save("late", job_notes_before="") == 409
    assert site.client.put(f"/jobs/{job_id}", data={"group_name": "g"}).get_json()["notes"] == "first\nline"
    # Repeating a request whose response was lost is not a conflict.
    assert save("first\nline", job_notes_before="") == 200
    assert save("second", job_notes_before="first\r\nline  ") == 200
    assert save("a script without the notes before") == 200


def test_names_survive_a_restart(site: Site, finished: Finished) -> None:
    import json

    job_id = finished.dataset(site)
    site.client.put(f"/jobs/{job_id}", data={"job_name": "kept", "group_name": "g"})
    kept = json.loads((site.services.store.folder / job_id / "job.json").read_text())
    assert (kept["name"], kept["group"]) == ("kept", "g")


def test_the_list_is_searched_and_sorted(site: Site, finished: Finished) -> None:
    for name in ("beta red", "alpha blue", "gamma red"):
        finished.dataset(site, name)
    page = site.get("/?q=red&sort=name&dir=asc", headers={"X-Fragment": "jobs"}).text
    assert "<html" not in page
    assert "alpha blue" not in page
    assert page.index("beta red") < page.index("gamma red")
    down = site.get("/?q=red&sort=name&dir=desc", headers={"X-Fragment": "jobs"}).text
    assert down.index("gamma red") < down.index("beta red")


def test_an_aborted_dataset_has_status_aborted(site: Site) -> None:
    first, second = site.dataset(), site.dataset()
    assert site.post(f"/datasets/{second}/abort").status_code == 200
    assert site.wait_for_end(second) == "Aborted"
    site.wait_for_end(first)
    refused = site.client.post(f"/datasets/{second}/abort", headers={"Accept": "application/json"})
    assert refused.status_code == 403
    assert "not running" in refused.get_json()["error"]["message"]


def test_deleting_many_jobs_reports_failures(site: Site, finished: Finished) -> None:
    ids = [finished.dataset(site), finished.dataset(site)]
    answer = site.client.delete(
        "/jobs", data={"job_ids[]": [*ids, UNKNOWN]}, headers={"Accept": "application/json"}
    )
    assert answer.status_code == 400
    assert "1 of 3" in answer.get_json()["error"]["message"]
    assert site.json("/index.json")["datasets"] == []


def test_a_dataset_is_deleted_with_the_models_that_use_it(site: Site, finished: Finished) -> None:
    dataset = finished.dataset(site)
    model = site.finished_model(dataset)
    answer = site.client.delete("/jobs", data={"job_ids[]": [dataset, model]})
    assert answer.get_json() == {"deleted": [model, dataset]}


def test_files_of_a_job_are_served_safely(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)
    mean = site.get(f"/files/{job_id}/mean.png")
    assert (mean.status_code, mean.mimetype) == (200, "image/png")
    folder = site.services.store.folder / job_id
    (folder / "page.html").write_text("<script>alert(1)</script>")
    page = site.get(f"/files/{job_id}/page.html")
    assert page.mimetype == "application/octet-stream"
    assert page.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in page.headers["Content-Security-Policy"]
    (folder / "link").symlink_to("/etc/passwd")
    assert site.get(f"/files/{job_id}/link").status_code == 404


def test_output_is_read_from_an_offset(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)
    (site.services.store.folder / job_id / "create" / "output.log").write_text("one two")
    assert site.json(f"/jobs/{job_id}/output?after=4") == {"text": "two", "next": 7}


def test_paths_are_completed_only_below_the_roots(site: Site) -> None:
    (site.data / "pictures").mkdir()
    assert site.json(f"/autocomplete/path?query={site.data}/pic")["suggestions"] == [f"{site.data}/pictures/"]
    assert site.json("/autocomplete/path?query=/et")["suggestions"] == []


def test_a_folder_field_is_completed_with_folders_only(site: Site) -> None:
    (site.data / "pictures").mkdir()
    for number in range(150):
        (site.data / f"a{number:03}.png").touch()
    offered = site.json(f"/autocomplete/path?query={site.data}/&type=folder")["suggestions"]
    assert offered == [f"{site.data}/pictures/"]
    assert len(site.json(f"/autocomplete/path?query={site.data}/")["suggestions"]) == 100


@pytest.mark.parametrize("kind", ["datasets", "models"])
def test_opening_a_form_target_redirects_to_the_form(site: Site, kind: str) -> None:
    answer = site.get(f"/{kind}/images/classification")
    assert answer.headers["Location"] == f"/{kind}/images/classification/new"


def test_form_targets_explain_that_they_only_accept_forms(site: Site) -> None:
    answer = site.get("/try/mnist", headers={"Accept": "text/html"})
    assert answer.status_code == 405
    assert "Nothing was changed" in answer.text
    assert answer.headers["Allow"] == "OPTIONS, POST"
    assert site.get("/abort_jobs", headers={"Accept": "application/json"}).get_json()["error"]


def test_a_clone_has_the_current_name_and_group(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site, group_name="a")
    site.client.put(f"/jobs/{job_id}", data={"job_notes": "only a note"})
    assert 'value="bars"' in site.get(f"/datasets/images/classification/new?clone={job_id}").text
    site.client.put(f"/jobs/{job_id}", data={"job_name": "stripes", "group_name": "b"})
    page = site.get(f"/datasets/images/classification/new?clone={job_id}").text
    assert 'value="stripes"' in page and 'value="bars"' not in page
    assert 'value="b"' in page


def test_the_cpu_is_busy_while_a_task_runs_on_it(site: Site) -> None:
    def cpu() -> Device:
        with site.app.test_request_context():
            return next(device for device in serializers.device_rows() if not device.is_gpu)

    assert cpu().busy_with is None
    job_id = site.dataset(dataset_name="keeps the CPU busy")
    assert site.wait(lambda: cpu().busy_with) == "keeps the CPU busy"
    assert "Used by <bdi>keeps the CPU busy</bdi>" in site.get("/compute").text
    site.wait_for_end(job_id)
    assert cpu().busy_with is None


def test_a_sample_belongs_to_its_creator(settings: Settings) -> None:
    idle = open_idle_site(settings)
    try:
        made = idle.client.post(
            "/try/mnist", data={"username": "ada"}, headers={"Accept": "application/json"}
        )
        jobs = [idle.services.store.get(job["id"], Job) for job in made.get_json().values()]
        assert [job.owner for job in jobs] == ["ada", "ada"]
    finally:
        idle.services.stop()


def test_a_job_belongs_to_its_creator(site: Site) -> None:
    site.post("/login", username="ada")
    job_id = site.dataset()
    assert site.json(f"/jobs/{job_id}/table_data.json")["job"]["owner"] == "ada"
    site.post("/login", username="grace")
    refused = site.client.delete(f"/datasets/{job_id}", headers={"Accept": "application/json"})
    assert refused.status_code == 403
    assert "ada" in refused.get_json()["error"]["message"]


def test_a_user_name_in_the_url_is_not_a_login(site: Site) -> None:
    """Anyone can put a name into a URL; only the login counts."""
    site.post("/login", username="ada")
    job_id = site.dataset()
    site.post("/login", username="grace")
    claimed = {"username": "ada"}
    answers = [
        site.client.delete(f"/datasets/{job_id}", query_string=claimed),
        site.client.delete(f"/datasets/{job_id}", data=claimed),
        site.client.put(f"/jobs/{job_id}", data={"job_name": "taken", **claimed}),
        site.client.post(f"/jobs/{job_id}/abort", data=claimed),
        site.client.delete("/jobs", data={"job_ids[]": job_id, **claimed}),
        site.client.post("/abort_jobs", data={"job_ids[]": job_id, **claimed}),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403, 403, 400, 400]
    assert site.json(f"/jobs/{job_id}/table_data.json")["job"]["name"] == "bars"


def test_only_its_owner_checks_a_dataset(site: Site) -> None:
    site.post("/login", username="ada")
    dataset = site.wait_until_done(site.dataset())
    site.post("/login", username="grace")
    assert site.post(f"/datasets/{dataset}/health").status_code == 403
    assert site.post(f"/datasets/{dataset}/label-check", model="any").status_code == 403
    assert site.services.background["health"].tasks(dataset) == []


def test_only_the_owner_of_a_model_replaces_its_batch_predictions(site: Site) -> None:
    model = site.services.store.get(site.finished_model("20260101-000000-abcd"), ModelJob)
    model.owner = "ada"
    image = bars(site.data / "new") / "left" / "00.png"
    for _ in range(prediction_runs.KEPT):
        about = BatchPrediction(
            id=predictions.new_id(), title="old", snapshot="snapshot_1.ckpt", epoch=1, at=0, total=1
        )
        folder = predictions.folder_of(model.folder, about.id)
        folder.mkdir(parents=True)
        predictions.write(folder, about, [ListedImage(str(image), "image")])
    site.post("/login", username="grace")
    answer = site.post(f"/models/{model.id}/predictions.json", image_folder=str(image.parent))
    assert answer.status_code == 403 and "ada" in answer.get_json()["error"]["message"]
    assert len(predictions.load_all(model.folder)) == prediction_runs.KEPT


def test_only_its_owner_resumes_a_training(site: Site) -> None:
    site.post("/login", username="ada")
    dataset = site.dataset()
    answer = site.post(
        "/models/images/classification.json", model_name="waits", dataset=dataset, train_epochs=1
    )
    model = answer.get_json()["id"]
    assert site.post(f"/models/{model}/abort").status_code == 200
    assert site.wait_for_end(model) == "Aborted"
    site.post("/login", username="grace")
    for path in (f"/models/{model}/resume", f"/models/{model}/resume?username=ada"):
        assert site.post(path).status_code == 403
    assert site.status(model) == "Aborted"
    assert site.wait_for_end(dataset) == "Done"
