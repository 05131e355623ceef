"""Labels over HTTP, for tests: a folder of images, and requests."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.site import Site

IMAGES = 24
ADA, GRACE = "ada", "grace"
BOX = {"class": 0, "box": [1, 2, 20, 30.5]}


def photo(seed: int) -> Image.Image:
    spots = np.random.default_rng(seed).integers(0, 255, (5, 7, 3), np.uint8)
    return Image.fromarray(spots).resize((60, 40), Image.Resampling.BICUBIC)


def folder_of_images(site: Site) -> Path:
    """Return a folder of images in several formats, one of which cannot be decoded; 3 and 4 are turned."""
    folder = site.data / "pictures"
    if folder.is_dir():
        return folder
    folder.mkdir()
    turned = Image.Exif()
    turned[0x112] = 6
    for number in range(IMAGES):
        options = {"exif": turned} if number in (3, 4) else {}
        photo(number).save(folder / f"{number:02}.{'png' if number == 4 else 'jpg'}", **options)
    photo(90).save(folder / "24.webp")
    photo(91).save(folder / "25.tiff")
    (folder / "26.png").write_text("text")
    return folder


def create(site: Site, kind: str = "detection", **fields: Any) -> str:
    sent = {
        "name": "mine",
        "kind": f"images/{kind}",
        "folder": str(folder_of_images(site)),
        "classes": "cat\ndog",
    }
    answer = site.client.post("/labels.json", json={**sent, **fields})
    assert answer.status_code == 200, answer.get_json()
    return site.wait_until_done(answer.get_json()["id"])


def save(site: Site, job: str, number: int, rev: int, edit: str, who: str = "", **fields: Any) -> Any:
    body = {"rev": rev, "edit": edit, "state": "labeled", **fields}
    query = f"?username={who}" if who else ""
    return site.client.post(f"/labels/{job}/images/{number}.json{query}", json=body)


def image(site: Site, job: str, number: int) -> Any:
    return site.json(f"/labels/{job}/images/{number}.json")


def mask_of(pixels: np.ndarray[Any, Any]) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
