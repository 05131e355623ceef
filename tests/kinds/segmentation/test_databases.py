"""Generic datasets of DIGITS 4 to 6 whose labels are images, for segmentation and image-to-image networks."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data.sources import UnusableSource
from digits.kinds.pair_source import PairFolders
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from tests.kinds.tables import Silent
from tests.old_databases import HEIGHT, WIDTH, Pixels, datum, picture, write_lmdb
from tests.site import Site

KEY = "{:08d}"


def mask(number: int) -> Pixels:
    """The mask of `picture`: the class 1 above the row ``1 + number % 4``."""
    pixels = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    pixels[: 1 + number % 4] = 1
    return pixels


def write_job(folder: Path, train: int = 9) -> Path:
    for name, count in (("train_db", train), ("val_db", 3)):
        numbers = range(count)
        write_lmdb(
            folder / name / "features", [datum(picture(number), 0, "PNG") for number in numbers], key=KEY
        )
        write_lmdb(folder / name / "labels", [datum(mask(number), 0) for number in numbers], key=KEY)
    return folder


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["segmentation", "processing"])
def test_the_folder_of_an_old_dataset_becomes_a_dataset(site: Site, kind: str) -> None:
    folder, route = write_job(site.data / "old"), f"/datasets/images/{kind}"
    found = json.loads(site.post(f"{route}/scan", feature_folder=str(folder)).text.splitlines()[-1])
    assert found["facts"][0].startswith("9 images with ") and not found["problems"]
    answer = site.post(
        f"{route}.json",
        dataset_name="old",
        feature_folder=str(folder),
        resize_width=WIDTH,
        resize_height=HEIGHT,
    )
    assert answer.status_code == 200, answer.get_json()
    dataset = answer.get_json()["id"]
    assert site.wait_for_end(dataset) == "Done", site.json(f"/datasets/{dataset}.json")["error"]
    url = f"/datasets/{dataset}/records/val/{{}}"
    stored = {site.get(url.format(number)).data for number in range(3)}
    pixels = {np.asarray(Image.open(io.BytesIO(data))).tobytes() for data in stored}
    assert pixels == {picture(number).tobytes() for number in range(3)}
    assert site.get(url.format("0/target")).status_code == 200
    twin = site.post(f"{route}.json", clone=dataset).get_json()["id"]
    assert site.wait_for_end(twin) == "Done"


def test_faults_of_the_databases_are_named(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "old") / "train_db"

    def plan() -> object:
        folders = PairFolders(images=str(folder / "features"), targets=str(folder / "labels"))
        recipe = CreateSegmentation(train=folders, width=WIDTH, height=HEIGHT, processes=1)
        return reader.read(recipe, Silent())

    plan()
    data = folder / "labels" / "data.mdb"
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnusableSource, match="labels cannot be read"):
        plan()
    data.unlink()
    with pytest.raises(UnusableSource, match="labels"):
        plan()
    data.parent.rmdir()
    write_lmdb(data.parent, [datum(mask(0), 0)], key="other{}{}")
    with pytest.raises(UnusableSource, match="No label image has the same name as an image"):
        plan()
