"""Labels over HTTP, for tests: a folder of images, and requests."""

from __future__ import annotations

import base64
import io
import socket
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.real_server import RealServer
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


def rows_of(site: Site, job: str, **query: Any) -> list[dict[str, Any]]:
    """Return the images that the filters of the ``query`` choose."""
    address = "&".join(f"{name}={value}" for name, value in {"size": 500, **query}.items())
    found: list[dict[str, Any]] = site.json(f"/labels/{job}/images.json?{address}")["images"]
    return found


def number_of(site: Site, job: str, path: str) -> int:
    return next(int(row["n"]) for row in rows_of(site, job) if row["path"] == path)


def frozen(site: Site, job: str, name: str = "d") -> str:
    """Return a dataset from the labels, of 16×16 pixels, when it is done."""
    made = site.client.post(f"/labels/{job}/datasets.json", json={"name": name, "width": 16, "height": 16})
    assert made.status_code == 200, made.get_json()
    return site.wait_until_done(made.get_json()["id"])


class KilledServer:
    """Labels of boxes on a server that can be killed, and starts again at the same address."""

    def __init__(self, folder: Path, images: int, size: tuple[int, int]) -> None:
        (folder / "data").mkdir()
        for number in range(images):
            photo(number).resize(size).save(folder / "data" / f"{number}.png")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._options = ("--no-standby", f"--port={free.getsockname()[1]}")
        self.server = RealServer(folder, *self._options)
        fields = {"name": "a", "kind": "images/detection", "folder": str(folder / "data"), "classes": "cat"}
        job = self.server.ask("/labels.json", **fields)["id"]
        self.path = f"/labels/{job}"
        self.server.wait(lambda: self.server.ask(f"/jobs/{job}/status")["status"] == "Done")

    def kill(self) -> None:
        """Kill the server, and start another one."""
        self.server.kill()
        self.server = RealServer(self.server.folder, *self._options)
