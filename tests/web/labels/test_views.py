"""Labels over HTTP: from a folder of images to a dataset, by several people, with pages that stay open."""

from __future__ import annotations

import base64
import errno
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from digits.core.settings import Settings
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.log import LABELS_FILE
from digits.web.labels import books
from digits.web.labels.books import LEASE_SECONDS, LabelBook
from digits.web.security.bodies import MAX_BODY_BYTES
from tests.failing_disk import failing_disk
from tests.labels import ADA, BOX, GRACE, IMAGES, create, folder_of_images, image, mask_of, photo, save
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site


@pytest.fixture(scope="module")
def job(site: Site) -> str:
    return create(site)


def test_a_job_lists_the_images_and_is_in_lists(site: Site, job: str) -> None:
    body = site.json(f"/labels/{job}.json")
    assert (body["kind"], body["field"], body["images"]) == ("images/detection", "objects", IMAGES + 3)
    assert body["states"] == {"none": 26, "unlabeled": 0, "labeled": 0, "reviewed": 0, "skipped": 1}
    assert sum(body["splits"].values()) == 27 and body["detail"] == "27 images · 2 classes"
    assert [(item["id"], item["name"]) for item in body["classes"]] == [(0, "cat"), (1, "dog")]
    assert len({item["color"] for item in body["classes"]}) == 2
    page = site.json(f"/labels/{job}/images.json?size=3&after=22")
    assert (page["total"], page["after"]) == (27, 25)
    assert [(row["n"], row["path"], row["width"], row["height"]) for row in page["images"]] == [
        (23, "23.jpg", 60, 40), (24, "24.webp", 60, 40), (25, "25.tiff", 60, 40),
    ]  # fmt: skip
    (last,) = site.json(f"/labels/{job}/images.json?after=25")["images"]
    assert (last["state"], last["reason"]) == ("skipped", "not an image (it looks like text)")
    assert (image(site, job, 3)["width"], image(site, job, 4)["height"]) == (40, 60)
    for path in ("/labels.json", "/completed_jobs.json", "/index.json"):
        assert job in [row["id"] for row in site.json(path)["labels"]], path
    home = site.get("/", headers={"Accept": "text/html"}).text
    assert f"/labels/{job}" in home and "Object detection" in home
    assert "27" in site.get(f"/labels/{job}", headers={"Accept": "text/html"}).text


def test_images_are_compared_with_the_weights_on_the_server(site: Site, job: str) -> None:
    weights = site.services.settings.weights_dir / "efficientnetlite.h5"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"weights")
    later = create(site)
    weights.unlink()
    recipes = [
        site.services.store.get(each, LabelsJob).folder / "list" / "recipe.json" for each in (job, later)
    ]
    assert [json.loads(path.read_text()).get("weights", "") for path in recipes] == ["", str(weights)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "images/gan"}, "cannot be labeled"),
        ({"kind": "images/none"}, "no kind"),
        ({"name": " "}, "The name"),
        ({"folder": "/etc"}, "outside the folders"),
        ({"folder": ""}, "No path"),
        ({"classes": "cat\nCat"}, "two classes called"),
        ({"classes": ["a\nb"]}, "one line"),
    ],
)
def test_other_jobs_are_refused(site: Site, fields: dict[str, Any], reason: str) -> None:
    sent = {"name": "a", "kind": "images/detection", "folder": str(folder_of_images(site)), **fields}
    answer = site.client.post("/labels.json", json=sent)
    assert answer.status_code in (400, 403) and reason in answer.get_json()["error"]["message"]
    form = {**sent, "classes": "\n".join(sent["classes"]) if isinstance(sent.get("classes"), list) else "x"}
    assert "classes" in fields or site.post("/labels.json", **form).status_code == answer.status_code


def test_pictures_are_the_original_files_as_far_as_browsers_show_them(site: Site, job: str) -> None:
    folder = folder_of_images(site)
    for number, media, is_raw in ((0, "jpeg", True), (3, "jpeg", True), (5, "jpeg", True), (24, "webp", True), (4, "png", False), (25, "png", False)):  # fmt: skip
        answer = site.get(f"/labels/{job}/images/{number}/picture")
        assert (answer.status_code, answer.mimetype) == (200, f"image/{media}")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        path = folder / image(site, job, number)["path"]
        assert (answer.data == path.read_bytes()) is is_raw
        shown = Image.open(io.BytesIO(answer.data))
        if not is_raw:
            assert shown.size == ((40, 60) if number == 4 else (60, 40))
        assert site.get(f"/labels/{job}/images/{number}/thumbnail").mimetype == "image/jpeg"
    etag = site.get(f"/labels/{job}/images/0/picture").headers["ETag"]
    assert site.get(f"/labels/{job}/images/0/picture", headers={"If-None-Match": etag}).status_code == 304
    for path in ("26/picture", "26/thumbnail", "27/picture", "0/mask", "999999999999/picture"):
        assert site.get(f"/labels/{job}/images/{path}").status_code == 404, path


def test_svg_files_and_links_that_lead_out_are_never_sent(site: Site, tmp_path: Path) -> None:
    folder = site.data / "odd"
    folder.mkdir()
    photo(0).save(folder / "a.png")
    photo(1).save(folder / "b.png")
    job = create(site, folder=str(folder))
    (folder / "a.png").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>')
    (tmp_path / "secret.png").write_bytes((folder / "b.png").read_bytes())
    (folder / "b.png").unlink()
    (folder / "b.png").symlink_to(tmp_path / "secret.png")
    for number in range(2):
        for what in ("picture", "thumbnail"):
            assert site.get(f"/labels/{job}/images/{number}/{what}").status_code == 404


def test_two_people_save_without_losing_anything(site: Site, job: str) -> None:
    assert save(site, job, 0, 0, "a1", ADA, objects=[BOX], seconds=2.5).get_json() == {"rev": 1}
    assert save(site, job, 0, 0, "a1", ADA, objects=[BOX]).get_json() == {"rev": 1}
    conflict = save(site, job, 0, 0, "g1", GRACE, objects=[])
    assert conflict.status_code == 409 and conflict.get_json()["error"]["type"] == "Outdated"
    entry = conflict.get_json()["entry"]
    assert (entry["rev"], entry["by"], entry["objects"]) == (
        1,
        "ada",
        [BOX | {"box": [1.0, 2.0, 20.0, 30.5]}],
    )
    assert entry == image(site, job, 0)
    assert save(site, job, 0, 1, "g1", GRACE, objects=[]).get_json() == {"rev": 2}
    history = site.json(f"/labels/{job}/images/0/history.json")
    assert [(entry["rev"], entry["by"], entry["edit"]) for entry in history["entries"]] == [
        (2, "grace", "g1"), (1, "ada", "a1"),
    ]  # fmt: skip
    assert (history["before"], history["entries"][1]["seconds"]) == (None, 2.5)
    older = site.json(f"/labels/{job}/images/0/history.json?before=2")
    assert [entry["rev"] for entry in older["entries"]] == [1]


def test_reviews_are_by_somebody_else(site: Site, job: str) -> None:
    assert save(site, job, 1, 0, "r0", ADA, state="reviewed", objects=[]).status_code == 400
    save(site, job, 1, 0, "r1", ADA, objects=[BOX])
    own = save(site, job, 1, 1, "r2", ADA, state="reviewed", objects=[BOX])
    assert own.status_code == 400 and "yourself" in own.get_json()["error"]["message"]
    assert save(site, job, 1, 1, "r3", GRACE, state="reviewed", objects=[BOX]).get_json() == {"rev": 2}
    assert save(site, job, 1, 1, "r3", GRACE, state="reviewed", objects=[BOX]).get_json() == {"rev": 2}
    assert image(site, job, 1)["state"] == "reviewed"


@pytest.mark.parametrize(
    "body",
    [
        {"objects": [{"class": 0, "box": [1, 2, 61, 30]}]},
        {"objects": [{"class": 0, "box": [1, 2, float("nan"), 30]}]},
        {"objects": [BOX] * 10_000},
    ],
)
def test_bad_answers_leave_the_log_unchanged(site: Site, job: str, body: dict[str, Any]) -> None:
    log = site.services.store.folder / job / LABELS_FILE
    before = log.read_bytes() if log.exists() else b""
    sent = {"rev": 0, "edit": "bad", "state": "labeled", **body}
    answer = site.client.post(f"/labels/{job}/images/9.json", json=sent)
    assert answer.status_code == 400 and answer.get_json()["error"]["message"]
    assert (log.read_bytes() if log.exists() else b"") == before


def test_images_that_cannot_be_decoded_are_not_labeled(site: Site, job: str) -> None:
    answer = save(site, job, 26, 0, "a", objects=[])
    assert answer.status_code == 400 and "looks like text" in answer.get_json()["error"]["message"]
    assert save(site, job, 27, 0, "a", objects=[]).status_code == 404


def test_a_full_disk_says_so_and_leaves_the_log_as_it_was(site: Site, job: str) -> None:
    log = site.services.store.folder / job / LABELS_FILE
    assert save(site, job, 8, 0, "before", objects=[]).status_code == 200
    before = log.read_bytes()
    with failing_disk(site.services.store.folder, errno.ENOSPC, chosen=lambda path: LABELS_FILE in path):
        answer = save(site, job, 2, 0, "full", objects=[])
    assert (answer.status_code, answer.get_json()["error"]["message"]) == (507, "The disk is full.")
    assert image(site, job, 2)["state"] == "none" and log.read_bytes() == before
    assert save(site, job, 2, 0, "full", objects=[]).get_json() == {"rev": 1}


def test_two_people_get_different_images(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = create(site)

    def following(client: str, count: int, **more: Any) -> list[int]:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        body = site.json(f"/labels/{job}/next.json?client={client}&count={count}&{query}")
        assert body["seconds"] == LEASE_SECONDS
        return [row["n"] for row in body["images"]]

    one, other = following("one", 5), following("other", 5)
    assert len({*one, *other}) == 10
    assert following("one", 5) == one and following("one", 3) == one[:3]
    more = following("one", 5, without=one[0])
    assert more[:4] == one[1:] and more[4] not in (*one, *other)
    save(site, job, one[1], 0, "a", objects=[])
    assert one[1] not in following("one", 20)
    rest = following("third", 20)
    assert not {*rest} & {*one, *other}
    assert site.json(f"/labels/{job}/next.json")["left"] == 25
    # In an order that does not depend on the split, so that all splits are sampled at random.
    tests = following("fourth", 20, split="test,val")
    assert {image(site, job, number)["split"] for number in tests} <= {"test", "val"}
    clock = books.time.monotonic
    monkeypatch.setattr(books.time, "monotonic", lambda: clock() + LEASE_SECONDS + 1)
    assert following("late", 5) == [one[0], *one[2:], other[0]][:5] or len(following("late", 5)) == 5


def test_classes_can_change_while_pages_are_open(site: Site) -> None:
    job = create(site)
    address = f"/labels/{job}/classes.json"
    save(site, job, 0, 0, "a", objects=[BOX, {**BOX, "class": 1}])
    assert site.client.post(address, json={"name": "bird"}).get_json()["id"] == 2
    assert site.client.post(address, json={"id": 0, "name": "kitten", "color": "#00ff00"}).status_code == 200
    changed = site.post(address, id="1", is_deleted="true").get_json()
    assert [(item["id"], item["name"]) for item in changed["classes"]] == [
        (0, "kitten"),
        (1, "dog"),
        (2, "bird"),
    ]
    assert changed["classes"][1]["is_deleted"] and changed["classes"][0]["color"] == "#00ff00"
    # A page that does not know it yet. What had the class before keeps it.
    refused = save(site, job, 1, 0, "b", objects=[{**BOX, "class": 1}])
    assert refused.status_code == 400
    assert refused.get_json()["error"]["message"] == "The class “dog” was deleted."
    assert image(site, job, 1)["state"] == "none"
    assert save(site, job, 0, 1, "c", objects=[{**BOX, "class": 1}]).status_code == 200
    assert site.json(f"/labels/{job}.json")["images_of_classes"] == {"0": 0, "1": 1, "2": 0}
    assert site.client.post(address, json={"name": "dog"}).get_json()["id"] == 3  # the name is free again
    for refused in (
        {"id": 1, "is_deleted": False},
        {"name": "KITTEN"},
        {"id": 0, "color": "red"},
        {"id": "x"},
        {},
    ):
        assert site.client.post(address, json=refused).status_code == 400, refused
    assert site.client.post(address, json={"id": 9, "name": "z"}).status_code == 404
    assert len(site.json(f"/labels/{job}.json")["classes"]) == 4


def test_the_number_of_classes_is_limited(site: Site) -> None:
    names = "\n".join(map(str, range(254)))  # besides the background; 255 means no class
    job = create(site, "segmentation", classes=names)
    answer = site.client.post(f"/labels/{job}/classes.json", json={"name": "more"})
    assert answer.status_code == 400 and "At most 255" in answer.get_json()["error"]["message"]


def test_a_save_that_waits_while_the_job_is_deleted_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create(site)
    folder = site.services.store.folder / job
    read = LabelBook.image

    def deleted(book: LabelBook, number: int) -> Any:
        found = read(book, number)
        folder.rename(folder.with_name("elsewhere"))
        return found

    monkeypatch.setattr(LabelBook, "image", deleted)
    assert save(site, job, 0, 0, "a", objects=[]).status_code == 404
    folder.with_name("elsewhere").rename(folder)


def test_masks_are_checked_and_kept(site: Site) -> None:
    job = create(site, "segmentation")
    names = [item["name"] for item in site.json(f"/labels/{job}.json")["classes"]]
    assert names == ["background", "cat", "dog"]
    assert (
        site.client.post(f"/labels/{job}/classes.json", json={"id": 0, "is_deleted": True}).status_code == 400
    )
    pixels = np.zeros((40, 60), np.uint8)
    pixels[:5], pixels[-1] = 2, 255
    assert save(site, job, 0, 0, "a", mask=mask_of(pixels)).get_json() == {"rev": 1}
    assert save(site, job, 0, 1, "b", state="reviewed", mask="0-1.png").get_json() == {"rev": 2}
    for query in ("", "?rev=1", "?rev=2"):
        answer = site.get(f"/labels/{job}/images/0/mask{query}")
        assert answer.mimetype == "image/png"
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(answer.data))), pixels)
    assert site.get(f"/labels/{job}/images/0/mask?rev=3").status_code == 404
    entry = image(site, job, 0)
    assert (entry["mask"], entry["labels"], entry["state"]) == ("0-1.png", [0, 2], "reviewed")
    # As a canvas makes it: gray, but in color and opaque.
    assert save(site, job, 3, 0, "c", mask=mask_of(np.dstack([pixels.T] * 3))).get_json() == {"rev": 1}
    colors = np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8)
    for number, mask, reason in (
        (1, mask_of(pixels.T), "40×60 pixels, but the image has 60×40"),
        (1, mask_of(pixels + 7), "no class"),
        (1, mask_of(colors), "colors instead of ids"),
        (1, base64.b64encode(b"no image").decode(), "cannot be read"),
        (1, "?", "not a PNG file in Base64"),
        (1, "0-1.png", "not a mask of the image"),
    ):
        answer = save(site, job, number, 0, "d", mask=mask)
        assert answer.status_code == 400 and reason in answer.get_json()["error"]["message"], reason
    assert image(site, job, 1)["state"] == "none"
    assert not (site.services.store.folder / job / "masks" / "1-1.png").exists()


def test_a_large_mask_is_a_file_of_a_form(site: Site) -> None:
    folder = site.data / "large"
    folder.mkdir()
    Image.new("RGB", (3000, 2400)).save(folder / "a.png")
    job = create(site, "segmentation", folder=str(folder))
    noise = np.random.default_rng(0).choice(np.array([0, 1, 2, 255], np.uint8), (2400, 3000))
    noise[:, :1500] = np.random.default_rng(1).integers(0, 3, (2400, 1500), np.uint8)
    # More than other requests may have.
    file = base64.b64decode(mask_of(noise)) + b"\0" * MAX_BODY_BYTES
    answer = json.dumps({"rev": 0, "edit": "a", "state": "labeled"})

    def send(**fields: Any) -> Any:
        boundary, body = encode_multipart(fields)
        kind = f"multipart/form-data; boundary={boundary}"
        return site.client.post(f"/labels/{job}/images/0.json", data=body, content_type=kind)

    assert send(answer=answer, mask=FileStorage(io.BytesIO(file), "blob")).get_json() == {"rev": 1}
    found = site.get(f"/labels/{job}/images/0/mask").data
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(found))), noise)
    for fields in ({}, {"answer": answer.replace("a", "b")}):
        assert send(mask=FileStorage(io.BytesIO(b"x"), "blob"), **fields).status_code == 400


def test_a_dataset_remains_when_its_labels_are_deleted(site: Site) -> None:
    job = create(site)
    refused = site.client.post(f"/labels/{job}/datasets.json", json={"name": "d"})
    assert refused.status_code == 400 and "No training image" in refused.get_json()["error"]["message"]
    for number in range(26):
        assert save(site, job, number, 0, "a", objects=[BOX]).status_code == 200
    cursor = site.json(f"/labels/{job}.json")["cursor"]
    wrong = site.client.post(f"/labels/{job}/datasets.json", json={"name": "d", "width": "wide"})
    assert wrong.status_code == 400 and "“width”" in wrong.get_json()["error"]["message"]
    wrong = site.client.post(f"/labels/{job}/datasets.json", json={"name": "d", "encoding": "bmp"})
    assert wrong.status_code == 400 and "settings" in wrong.get_json()["error"]["message"]
    # The fields of a form are texts.
    made = site.post(f"/labels/{job}/datasets.json", name="d", width="32", height="32")
    assert made.status_code == 200, made.get_json()
    answer = site.get(f"/labels/{job}/export?format=coco")
    assert {*zipfile.ZipFile(io.BytesIO(answer.data)).namelist()} >= {"annotations/instances_train.json"}
    assert site.get(f"/labels/{job}/export?format=masks").status_code == 400
    explore = f"/datasets/images/detection/explore?job_id={site.wait_until_done(made.get_json()['id'])}"
    assert f'made from <a href="/labels/{job}">' in site.get(explore).text
    assert site.client.delete(f"/labels/{job}").get_json() == {"deleted": job}
    assert site.get(f"/labels/{job}.json").status_code == 404
    assert "</bdi>”, which was deleted." in site.get(explore).text
    dataset = site.json(f"/datasets/{made.get_json()['id']}.json")
    assert dataset["frozen"] == {"id": job, "name": "mine", "cursor": cursor, "labeled": 26}
    assert sum(task["entries"] for task in dataset["CreateDbTasks"]) == 26
    assert dataset["CreateDbTasks"][0]["image_width"] == 32


def test_labels_are_renamed_and_listed_again(site: Site) -> None:
    folder = site.data / "growing"
    folder.mkdir()
    photo(0).save(folder / "b.png")
    job = create(site, folder=str(folder))
    save(site, job, 0, 0, "a", objects=[])
    photo(1).save(folder / "a.png")
    assert site.client.post(f"/labels/{job}/list.json").status_code == 200
    site.wait_until_done(job)
    rows = site.json(f"/labels/{job}/images.json")["images"]
    assert [(row["path"], row["state"]) for row in rows] == [("b.png", "labeled"), ("a.png", "none")]
    assert site.json(f"/labels/{job}.json")["detail"] == "2 images · 2 classes"
    site.client.put(f"/labels/{job}", data={"job_name": "other"})
    assert site.json(f"/jobs/{job}/status")["name"] == "other"
    assert site.client.post(f"/labels/{job}/list.json").status_code == 200
    site.wait_until_done(job)
    assert site.get(f"/clone/{job}").status_code == 400


def test_uploads_are_kept_while_they_are_labeled(site: Site) -> None:
    job = create(site)
    job_with_upload = site.services.store.find(job)
    assert job_with_upload is not None
    job_with_upload.root = "/uploads/0123456789abcdef0123456789abcdef/pictures"  # type: ignore[attr-defined]
    for only_unfinished in (False, True):
        assert site.services._users_of("0123456789abcdef0123456789abcdef", only_unfinished) == ["mine"]


def test_labels_survive_a_restart(settings: Settings, executor: SharedExecutor) -> None:
    def opened() -> Iterator[Site]:
        found = open_site(settings, executor)
        yield found
        found.close()

    first = opened()
    site = next(first)
    job = create(site)
    save(site, job, 5, 0, "a", objects=[BOX])
    next(first, None)
    books._book.cache_clear()
    with open(settings.jobs_dir / job / LABELS_FILE, "ab") as log:
        log.write(b'{"image":5,"rev":2,"ed')  # a server was killed
    second = opened()
    site = next(second)
    assert image(site, job, 5)["rev"] == 1
    assert save(site, job, 5, 1, "b", objects=[]).get_json() == {"rev": 2}
    assert [entry["edit"] for entry in site.json(f"/labels/{job}/images/5/history.json")["entries"]] == [
        "b",
        "a",
    ]
    next(second, None)
