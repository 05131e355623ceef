"""The preview of an augmentation in the model form."""

from __future__ import annotations

import base64
import io
from typing import Any

import gevent
import numpy as np
import pytest
from PIL import Image

from digits.core.job import DeviceRequest
from digits.runtime import short_tasks
from digits.runtime.executors.executor import place
from tests.site import Site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

URL = "/models/augmentation-preview"


def ask(site: Site, dataset: str, url: str = f"{URL}.json", **fields: Any) -> Any:
    data = {"dataset": dataset, "use_mean": "none", **fields}
    return site.client.post(url, data=data, headers={"Accept": "text/html, application/json"})


def decoded(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_the_form_shows_augmented_images_of_the_dataset(site: Site) -> None:
    dataset = site.dataset()
    assert ask(site, dataset).status_code == 409  # not finished
    assert site.wait_for_end(dataset) == "Done"
    plain = ask(site, dataset).get_json()
    for record in plain["records"]:
        assert {item["url"] for item in record["variants"]} == {record["original"]["url"]}
    noisy = ask(site, dataset, aug_noise="0.2", crop_size="20").get_json()
    assert noisy["shape"] == [20, 20, 3]
    first = noisy["records"][0]
    assert len({item["url"] for item in (first["original"], *first["variants"])}) == 6
    page = ask(site, dataset, URL, aug_noise="0.2", crop_size="20").text
    assert 'alt="Image 1, original: ' in page and 'alt="Image 4, variant 5: ' in page
    assert "The images are smaller than the crop" in page

    refused = ask(site, dataset, aug_rot="181")
    assert refused.status_code == 400 and list(refused.get_json()["errors"]) == ["aug_rot"]
    impossible = ask(site, dataset, aug_cutout="17")
    assert impossible.status_code == 400
    assert "more than the image has" in impossible.get_json()["error"]["message"]
    assert ask(site, "20200101-000000-aaaaaa").status_code == 404


def test_newer_settings_end_the_preview_of_the_same_form(site: Site) -> None:
    dataset = site.wait_until_done(site.dataset())
    # Without a free slot, no preview can finish before the others are requested.
    ledger = site.services.executor.ledger
    held = list(iter(lambda: place(ledger, DeviceRequest(short_tasks.POOL)), None))
    previews = [
        gevent.spawn(ask, site, dataset, aug_noise=noise, form="one") for noise in ("0.1", "0.2", "0.3")
    ]
    site.wait(lambda: all(item.ready() for item in previews[:2]))
    for allocation in held:
        ledger.release(allocation)
    *outdated, latest = [item.get(timeout=60) for item in previews]
    assert latest.status_code == 200
    assert [answer.status_code for answer in outdated] == [409, 409]


def test_boxes_move_with_the_images(site: Site) -> None:
    rows = ["image,left,top,right,bottom,class"]
    for number in range(8):
        pixels = np.zeros((32, 32), np.uint8)
        pixels[4:12, number : number + 8] = 255
        Image.fromarray(pixels).save(site.data / f"{number}.png")
        rows.append(f"{number}.png,{number},4,{number + 8},12,square")
    table = site.data / "boxes.csv"
    table.write_text("\n".join(rows))
    size = {"resize_width": 32, "resize_height": 32, "resize_channels": 1}
    dataset = site.post(
        "/datasets/images/detection.json",
        dataset_name="squares",
        train_image_folder=str(site.data),
        train_label_folder=str(table),
        **size,
    ).get_json()["id"]
    assert site.wait_for_end(dataset) == "Done"
    found = ask(site, dataset, aug_flip="fliplrud", aug_quad_rot="rotall").get_json()
    for record in found["records"]:
        for item in (record["original"], *record["variants"]):
            (box,) = item["boxes"]
            down, right = np.nonzero(decoded(item["url"]) > 128)
            expected = [right.min(), down.min(), right.max() + 1 - right.min(), down.max() + 1 - down.min()]
            drawn = [box[edge] * 32 / 100 for edge in ("left", "top", "width", "height")]
            assert drawn == pytest.approx(expected, abs=0.01)
