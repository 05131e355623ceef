"""Images for GANs: their source, and a GAN over HTTP with the names of DIGITS, from the form to generated images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data.images import images
from digits.data.sources.plan import Progress, UnusableSource
from digits.kinds.gan import reader
from digits.kinds.gan.recipe import CreateGan
from tests.site import Site

ATTRIBUTES = "3\nDark Wide  Young\n0.png  1 -1  1\n1.png -1 -1 -1\n\na face.png -1  1  1\n"


def write_faces(folder: Path) -> Path:
    """Write eight images of 12×16 pixels: black, with a lighter square of 8×8 pixels in the center."""
    folder.mkdir()
    for number in range(8):
        pixels = np.zeros((16, 12, 3), np.uint8)
        pixels[4:12, 2:10] = 100 + number
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def plan(folder: Path, text: str | None = None, **options: object) -> reader.GanPlan:
    if text is not None:
        (folder / "list.txt").write_text(text)
        options["file_list"] = str(folder / "list.txt")
    found = reader.read(CreateGan(folder=str(folder), **options), Progress())
    assert isinstance(found, reader.GanPlan)
    return found


def test_an_attributes_file_lists_images(tmp_path: Path) -> None:
    made = plan(tmp_path, ATTRIBUTES)
    split = made.splits["train"]
    found = {file: value.tolist() for file, value in zip(split.files, split.targets, strict=True)}
    assert found == {"0.png": [1, 0, 1], "1.png": [0, 0, 0], "a face.png": [0, 1, 1]}
    assert made.target.names == ["Dark", "Wide", "Young"] and made.target.multi_hot
    assert made.target.mean == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    groups = {file: made.groups[group] for file, group in zip(split.files, split.groups, strict=True)}
    assert groups == {"0.png": "Dark", "1.png": "no label", "a face.png": "Wide"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not an attributes file"),
        ("image,label\na.png,1\n", "is not an attributes file"),
        ("2\n", "is not an attributes file"),
        ("1\nDark Wide\n", "has no rows"),
        ("1\nDark Wide\na.png 1\n", "line 3: 1 values for 2 attributes"),
        (
            "1\nDark Wide\na.png 1 x\n../a.png 1 1\n",
            r"line 3: “x” is neither 1 nor -1 \(Wide\); line 4: .*outside",
        ),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UnusableSource, match=words):
        plan(tmp_path, text)


@pytest.mark.parametrize(("side", "size"), [(8, (8, 8)), (14, (12, 14)), (100, (12, 16)), (0, (12, 16))])
def test_the_center_is_cropped(tmp_path: Path, side: int, size: tuple[int, int]) -> None:
    made = plan(write_faces(tmp_path / "faces"), center_crop=side)
    assert len(made.splits["train"]) == 8 and made.target.names == []
    place = made.splits["train"].files.index("3.png")
    (data,) = made.read(made.splits["train"], place)
    pixels = images.load(data, 3)
    assert pixels.shape[1::-1] == size and (pixels == 103).all() == (side == 8)


@pytest.mark.tensorflow
def test_a_gan_generates_images_like_those_of_a_folder(site: Site) -> None:
    faces = write_faces(site.data / "faces")
    page = site.get("/datasets/images/gan/new").text
    names = ("file_list", "image_folder", "center_crop_size", "resize")
    assert all(f'name="{name}"' in page for name in names)
    listed = site.data / "list.txt"
    listed.write_text("8\nDark Odd\n" + "".join(f"{i}.png 1 {1 if i % 2 else -1}\n" for i in range(8)))
    fields = {"dataset_name": "faces", "image_folder": faces, "file_list": listed}
    fields |= {"center_crop_size": 8, "resize": 8}
    refused = site.post("/datasets/generic/create/image-gan.json", **fields | {"file_list": faces / "0.png"})
    assert refused.status_code == 400 and "file_list" in refused.get_json()["errors"]
    dataset = site.post("/datasets/generic/create/image-gan.json", **fields).get_json()["id"]
    assert site.wait_for_end(dataset) == "Done"
    picture = Image.open(io.BytesIO(site.get(f"/datasets/{dataset}/records/train/0").data))
    assert picture.size == (8, 8) and np.asarray(picture).min() >= 100
    assert "2 attributes" in site.get(f"/models/images/gan/new?dataset={dataset}").text
    explored = site.json(f"/datasets/images/gan/explore.json?job_id={dataset}&contain=1")
    assert explored["total"] == 4 and {item["label"] for item in explored["records"]} == {"Dark, Odd"}
    assert site.get(f"/datasets/{dataset}").status_code == 200
    clone = site.client.get(f"/clone/{dataset}", follow_redirects=True).text
    assert str(faces) in clone and str(listed) in clone

    model = site.train("images/gan", dataset, batch_size=4)
    drawn = site.post("/models/images/gan/generate.json", job_id=model, rows=1, columns=2, seed=1).get_json()
    assert (drawn["width"], drawn["height"], len(drawn["vectors"])) == (8, 8, 2)
