"""Finding and filtering the records of a dataset over HTTP."""

from __future__ import annotations

import html
import io
import re
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from digits.data.records.index import names_path
from tests.site import Site, bars
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
SITE = {"health_checks": True}
site = shared_site


@pytest.fixture(scope="module")
def dataset(site: Site) -> str:
    """Bars of 16×16 pixels in three classes; the first of each is a photo of 30×20, and one image is blank."""
    folder = bars(site.data / "shapes", each=8)
    for number, name in enumerate(("left", "middle", "right")):
        noise = np.random.default_rng(number).integers(0, 255, (20, 30, 3), np.uint8)
        Image.fromarray(noise).save(folder / name / "00.png")
        (folder / name / "00.png").rename(folder / name / f"Photo {name}.png")
    Image.new("RGB", (16, 16), "gray").save(folder / "right" / "blank.png")
    job_id = site.wait_until_done(site.dataset(folder_train=str(folder), folder_pct_val=25, seed=1))
    site.wait(lambda: site.json(f"/datasets/{job_id}/health.json")["state"] == "done")
    return job_id


def explore(site: Site, job_id: str, ending: str = "", **arguments: Any) -> Any:
    words = urlencode({"job_id": job_id, **arguments})
    return site.get(f"/datasets/images/classification/explore{ending}?{words}")


def found(site: Site, job_id: str, **arguments: Any) -> Any:
    return explore(site, job_id, ".json", **arguments).get_json()


def names(body: Any) -> list[str]:
    return sorted(record["filename"] for record in body["records"])


def test_records_are_found_by_name_in_all_splits(site: Site, dataset: str) -> None:
    body = found(site, dataset, q="photo")
    assert names(body) == [f"{name}/Photo {name}.png" for name in ("left", "middle", "right")]
    assert body["total"] == body["splits"]["all"] == body["splits"]["train"] + body["splits"]["val"] == 3
    assert body["query"] == {"db": "all", "q": "photo"}
    in_validation = found(site, dataset, q="photo", db="val")
    assert in_validation["total"] == body["splits"]["val"]
    assert {record["split"] for record in in_validation["records"]} <= {"val"}
    record = body["records"][0]
    path = f"/datasets/{dataset}/records/{record['split']}/{record['number']}"
    assert record["url"] == record["thumbnail"] == path
    assert found(site, dataset, q="nothing")["records"] == []


def test_a_record_is_described_with_everything_it_contains(site: Site, dataset: str) -> None:
    [photo] = found(site, dataset, q="Photo left")["records"]
    body = site.json(f"{photo['url']}.json")
    assert (body["split"], body["number"]) == (photo["split"], photo["number"])
    assert (body["filename"], body["label"]) == ("left/Photo left.png", "left")
    source = {"width": 30, "height": 20, "mode": "RGB", "url": f"{photo['url']}/source"}
    assert body["source"] == source
    assert body["image"]["format"] == "png" and body["image"]["width"] == body["image"]["height"] == 16
    assert 100 < body["statistics"]["brightness"] < 155
    assert body["features"]["image/class/label"] == {"count": 1, "values": [0]}
    assert body["features"]["image/class/text"]["values"] == ["left"]
    assert "image/encoded" not in body["features"]
    [blank] = found(site, dataset, q="blank")["records"]
    [finding] = [item for item in site.json(f"{blank['url']}.json")["findings"] if item["id"] == "blank"]
    assert "right/blank.png" in site.get(finding["url"]).text
    for place in ("train/9999", "none/0"):
        assert site.get(f"/datasets/{dataset}/records/{place}.json").status_code == 404


def test_filters_are_combined(site: Site, dataset: str) -> None:
    assert names(found(site, dataset, q="photo", label=1)) == ["middle/Photo middle.png"]
    photos = found(site, dataset, width="20:", height=":25", aspect="1.4:1.6", source_size="24:25")
    assert photos["total"] == 3
    assert photos["query"]["width"] == "20:" and photos["query"]["aspect"] == "1.4:1.6"
    assert found(site, dataset, width=":30")["total"] == 22  # the upper limit does not belong to a range
    assert names(found(site, dataset, finding="blank", q="BLANK")) == ["right/blank.png"]
    for other in ({"label": 0}, {"q": "photo"}, {"brightness": "200:"}):
        assert found(site, dataset, finding="blank", **other)["total"] == 0
    findings = {finding["id"]: finding["count"] for finding in photos["findings"]}
    assert findings["blank"] == 1


def test_the_page_lists_active_filters_and_removes_them(site: Site, dataset: str) -> None:
    page = explore(site, dataset, q="photo", label=1, brightness="10:250").text
    assert "1 of 25 images matches" in page
    chips = dict(re.findall(r'id="filter-(\w+)" href="([^"]+)"', page))
    assert list(chips) == ["q", "label", "brightness"]
    assert re.findall(r'<option value="(\w+)" selected', page) == ["1"]
    for name, other in (("q", "label=1"), ("label", "q=photo"), ("brightness", "q=photo")):
        url = html.unescape(chips[name])
        assert f"{name}=" not in url and other in url
        assert site.get(url).status_code == 200
    cleared = html.unescape(re.search(r'id="clear-filters" href="([^"]+)"', page)[1])
    assert "25 images" in site.get(cleared).text
    # The fields of a range, without scripts
    without_scripts = explore(site, dataset).request.path
    answer = site.get(f"{without_scripts}?job_id={dataset}&db=all&q=&label=&width=20&width=&height=&height=")
    assert "3 of 25 images match" in answer.text


def test_a_name_is_not_interpreted(site: Site, dataset: str) -> None:
    page = explore(site, dataset, q='<b>"&', db="train").text
    assert "<b>" not in page and "&lt;b&gt;" in page
    assert "No images match" in page and "Clear filters" in page
    elsewhere = explore(site, dataset, finding="blank", db="train").text
    in_train = found(site, dataset, finding="blank", db="train")["total"]
    assert ("in all splits" in elsewhere) == (in_train == 0)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ({"width": "20"}, 400, ""),
        ({"width": "1:2:3"}, 400, ""),
        ({"width": "nan:"}, 400, ""),
        ({"aspect": "a:b"}, 400, ""),
        ({"db": "other"}, 404, "no split called"),
        ({"label": 3}, 404, "are 0 to 2."),
        ({"finding": "other"}, 404, ""),
        ({"q": "x" * 5000}, 200, ""),
        ({"q": "\0\ud800".encode("utf-8", "surrogatepass")}, 200, ""),
        ({"q": "\0"}, 200, ""),
    ],
)
def test_invalid_filters_are_refused(
    site: Site, dataset: str, arguments: dict[str, Any], status: int, words: str
) -> None:
    for ending in ("", ".json"):
        answer = explore(site, dataset, ending, **arguments)
        assert answer.status_code == status and words in answer.text


def test_damaged_names_do_not_break_other_pages(site: Site, dataset: str) -> None:
    path = names_path(site.services.store.folder / dataset / "train-00000-of-00001.tfrecord")
    whole = path.read_bytes()
    assert found(site, dataset, q="photo")["total"] == 3
    try:
        path.write_bytes(whole[:-3])
        assert explore(site, dataset, q="photo").status_code == 404
        path.unlink()
        assert explore(site, dataset, ".json", q="photo").status_code == 404
        assert explore(site, dataset, label=1).status_code == 200
    finally:
        path.write_bytes(whole)
    assert found(site, dataset, q="photo")["total"] == 3


@pytest.mark.parametrize(("encoding", "channels"), [("jpg", 3), ("png", 1), ("none", 3)])
def test_large_images_have_thumbnails(site: Site, encoding: str, channels: int) -> None:
    job_id = site.dataset(
        folder_train=str(bars(site.data / "few", each=2)),
        encoding=encoding,
        resize_width=400,
        resize_height=100,
        resize_channels=channels,
        folder_pct_val=0,
    )
    assert site.wait_for_end(job_id) == "Done"
    record = found(site, job_id)["records"][0]
    assert record["thumbnail"] == f"{record['url']}/thumbnail"
    for _ in range(2):
        answer = site.get(record["thumbnail"])
        thumbnail = Image.open(io.BytesIO(answer.data))
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (240, 60))
        assert "immutable" in answer.headers["Cache-Control"]
    whole = Image.open(io.BytesIO(site.get(record["url"]).data)).convert("RGB").resize((240, 60))
    difference = np.abs(np.asarray(whole, int) - np.asarray(thumbnail.convert("RGB"), int))
    assert difference.mean() < 6
    page = explore(site, job_id).text
    assert f'src="{record["thumbnail"]}"' in page and f'href="{record["url"]}"' in page
    assert "/thumbnail" in site.get(f"/datasets/{job_id}").text
    assert site.get(f"/datasets/{job_id}/records/train/99/thumbnail").status_code == 404
    assert site.get(f"/datasets/{job_id}/records/train/0/target/thumbnail").status_code == 404


def test_the_pixels_of_a_larger_source_are_shown(site: Site) -> None:
    folder = bars(site.data / "large", each=4)
    wide = Image.effect_noise((64, 32), 90).convert("RGB")
    wide.save(folder / "left" / "00.png")
    job_id = site.dataset(folder_train=str(folder), folder_pct_val=0, resize_mode="crop")
    assert site.wait_for_end(job_id) == "Done"
    numbers = {
        record["filename"]: record["number"]
        for record in site.json(f"/datasets/images/classification/explore.json?job_id={job_id}&size=100")[
            "records"
        ]
    }
    place = f"/datasets/{job_id}/records/train"
    source = site.json(f"{place}/{numbers['left/00.png']}.json")["source"]
    assert (source["width"], source["height"]) == (64, 32)
    shown = Image.open(io.BytesIO(site.get(source["url"]).data))
    # In the shape of the 16×16 images of the dataset, with the pixels of the longer side.
    assert shown.size == (64, 64) and shown.format == "JPEG"
    assert site.json(f"{place}/{numbers['left/01.png']}.json")["source"]["url"] is None
    assert site.get(f"{place}/{numbers['left/01.png']}/source").status_code == 404
    (folder / "left" / "00.png").unlink()
    assert site.json(f"{place}/{numbers['left/00.png']}.json")["source"]["url"] is None
    assert site.get(source["url"]).status_code == 404
