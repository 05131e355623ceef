"""Semantic segmentation over HTTP, from the dataset form to a predicted mask."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data import manifest as manifests
from digits.data.images.images import UnusableImage
from digits.data.models import evaluation as evaluations
from digits.data.records.records import SplitReader
from digits.kinds.decoding import Decoded, Decoder, Request
from tests.decoders import refuse_to_decode
from tests.kinds.dataset_forms import Forms
from tests.site import Site

SIZE = {"resize_width": 20, "resize_height": 20, "resize_channels": 1}


def write_squares(folder: Path) -> Path:
    """Write noisy 20×20 images with a bright square at a random place, and black and white masks of the squares."""
    chance = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(40):
        pixels = chance.integers(0, 60, (20, 20), np.uint8)
        mask = np.zeros((20, 20), np.uint8)
        top, left = chance.integers(0, 13, 2)
        pixels[top : top + 7, left : left + 7] += 150
        mask[top : top + 7, left : left + 7] = 255
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
    return folder


KIND = "images/segmentation"


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-segmentation", tmp_path / "own")


@pytest.mark.tensorflow
def test_folders_become_a_model_that_predicts_masks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_squares(site.data / "squares")
    (root / "masks" / "7.png").unlink()
    Image.new("L", (9, 9)).save(root / "masks" / "8.png")
    dataset = site.create(KIND, feature_folder=root, folder_pct_val=20, **SIZE)
    body = site.json(f"/datasets/{dataset}.json")
    assert body["labels"] == ["background", "foreground"]
    assert body["pixel_shares"] == pytest.approx([1 - 49 / 400, 49 / 400], abs=0.01)
    page = site.get(f"/datasets/{dataset}").text
    assert "Images per class" in page and "1 image has no label image and cannot be used: 7.png" in page
    assert "8.png: it has 9×9 pixels, but the image has 20×20" in page
    assert re.search(r'class="mask" src="[^"]*/records/train/0/target', page)
    assert "2 classes" in site.get("/").text
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}").text
    assert re.search(r"\d+% foreground", explored) and "/target" in explored

    settings = {"train_epochs": 6, "batch_size": 4, "learning_rate": 0.003, "use_mean": "pixel"}
    settings |= {"val_interval": 1, "snapshot_interval": 1, "best_metric": "miou"}
    settings |= {"method": "standard", "standard_networks": "unet", "aug_flip": "fliplr"}
    model = site.train(KIND, dataset, **settings)
    with monkeypatch.context() as patched:
        refuse_to_decode(patched)
        predicted, part = site.follow(model)
    assert predicted[0]["mask"] in part and ">Prediction<" in part
    metrics = site.json(f"/models/{model}/metrics.json")
    values = metrics["val"]["values"]
    # All background: an IoU of 0.88 and of 0.
    assert max(values["miou"]) > 0.8 and max(values["iou/foreground"]) > 0.7
    assert values["miou"][-1] == pytest.approx(
        (values["iou/background"][-1] + values["iou/foreground"][-1]) / 2
    )
    assert max(values["pixel_accuracy"]) > 0.95
    assert "miou" in metrics["train"]["values"] and "iou/foreground" not in metrics["train"]["values"]
    page = site.get(f"/models/{model}").text
    assert "Validation mIoU" in page and "Segment an image" in page
    best = max(range(1, 7), key=lambda epoch: (values["miou"][epoch], -values["loss"][epoch]))
    assert f"Epoch {best} (best) · mIoU {100 * values['miou'][best]:.1f}%" in page

    with monkeypatch.context() as patched:
        refuse_to_decode(patched)
        result, page = site.evaluate(model)
        compared, comparison = site.compare_with_worse(model, dataset)
    errors = evaluations.load_array(
        site.services.store.folder / model, result["name"], evaluations.ERRORS_FILE
    )
    assert result["metrics"]["miou"] == pytest.approx(values["miou"][best], abs=1e-4)
    assert np.sum(result["details"]["pixels"]) == 20 * 20 * result["records"]
    assert "Confusion matrix" in page and f"evaluation={model}" in page
    if errors.max() > 0:
        assert "Worst images" in page
        assert page.count('alt="Prediction"') == page.count('<img class="mask" src="data:image/png') > 0
        assert f"IoU {100 * (1 - errors.max()):.0f}% · " in page and "% foreground" in page
    else:
        assert "No mistakes." in page
    dataset_folder = site.services.store.folder / dataset
    manifest = manifests.load(dataset_folder)
    with SplitReader(dataset_folder, manifest.splits["val"]) as records:
        masks = [records.read(place).target(manifest.target) for place in range(result["records"])]
    # The support of a class is the number of masks that contain it, whatever is predicted.
    assert [item["support"] for item in result["details"]["classes"]] == [
        sum(bool((mask == number).any()) for mask in masks) for number in range(2)
    ]
    assert compared["counts"]["improved"] == result["records"] and compared["counts"]["worsened"] == 0
    assert "is better by the most" in comparison and "outcome=improved" in comparison
    assert re.search(r">IoU \d+%[^<]* <bdi", comparison) and re.search(r"\d+% foreground", comparison)

    photo = site.data / "photo.png"
    pixels = np.full((40, 80), 30, np.uint8)
    pixels[10:24, 20:48] = 180
    Image.fromarray(pixels).save(photo)
    answer, part = site.predict(KIND, model, image_path=str(photo))
    found = answer["predictions"]
    mask = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["mask"].partition(",")[2]))))
    assert mask.shape == (40, 80)
    assert (mask[10:24, 20:48] == 1).mean() > 0.7 and (mask[:, 60:] == 0).mean() > 0.9
    percents = {item["name"]: item["percent"] for item in found["classes"]}
    assert sum(percents.values()) == pytest.approx(100)
    assert percents["foreground"] == pytest.approx(100 * (mask == 1).mean())
    assert found["mask"] in part and 'class="mask"' in part
    options = {"view_extension_id": "image-segmentation", "colormap": "paired"}
    view = site.predict(KIND, model, image_path=str(photo), **options)[0]["view"]
    assert view["options"] == {"colormap": "paired"}
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(view["mask"].partition(",")[2]))))
    assert np.array_equal(drawn, mask) and view["chances"]


def test_masks_of_a_page_are_decoded_by_one_request_to_another_process(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_squares(site.data / "squares")
    dataset = site.create(KIND, feature_folder=root, folder_pct_val=20, **SIZE)
    refuse_to_decode(monkeypatch)
    requests: list[Request] = []
    run = Decoder.run

    def count(decoder: Decoder, request: Request) -> Decoded:
        requests.append(request)
        return run(decoder, request)

    monkeypatch.setattr(Decoder, "run", count)
    explore = f"/datasets/images/segmentation/explore.json?job_id={dataset}&db=all"
    body = site.json(explore)
    assert {record["label"] for record in body["records"]} == {"12% foreground"}
    assert len(body["records"]) == 40 and len(requests) == 1
    assert site.json(f"{explore}&q=nothing")["records"] == [] and len(requests) == 1, "no page, no request"
    assert site.json(f"/datasets/{dataset}/records/val/0.json")["label"] == "12% foreground"
    assert "12% foreground" in site.get(explore.replace(".json", "")).text

    def refuse(decoder: Decoder, request: Request) -> Decoded:
        raise UnusableImage("decoding it takes too much memory or time")

    monkeypatch.setattr(Decoder, "run", refuse)
    assert {record["label"] for record in site.json(explore)["records"]} == {"unknown classes"}


def test_errors_of_the_folders_belong_to_their_fields(forms: Forms) -> None:
    images = (write_squares(forms.data / "squares") / "images").rename(forms.data / "alone")
    colors = forms.data / "map.txt"
    colors.write_text("0 0\n")
    fields = {"feature_folder": images, "colormap_text_file": colors}
    errors = forms.errors(**fields)
    assert "Enter the folder of label images" in errors["label_folder"][0]
    assert "map.txt: line 1 is not a color" in errors["colormap_text_file"][0]
    fields |= {"label_folder": images, "colormap_method": "textfile", "colormap_text_file": ""}
    errors = forms.errors(**fields)
    assert "is the image folder" in errors["label_folder"][0]
    assert "required" in errors["colormap_text_file"][0]
    errors = forms.errors(feature_folder=images, label_folder=images / "0.png")
    assert "annotations with polygons (.json, .xml, .csv)" in errors["label_folder"][0]


def test_the_source_is_summarized(forms: Forms) -> None:
    root = write_squares(forms.data / "squares")
    Image.new("L", (9, 9)).save(root / "masks" / "0.png")
    (root / "masks" / "1.png").write_text("no image")
    (root / "images" / "more.png").write_bytes((root / "images" / "2.png").read_bytes())
    found = forms.summary(feature_folder=root)
    assert "Used: images/ and masks/." in found.facts
    facts, problems = " ".join(found.facts), " ".join(found.problems)
    assert "40 images with label images." in facts and "2 classes: background, foreground." in facts
    assert "255 is “foreground”" in facts
    assert "1 image has no label image and cannot be used: more.png" in problems
    assert (
        "label image 0.png: it has 9×9 pixels, but the image has 20×20" in problems
        and "1.png: not an image" in problems
    )
    assert found.bars_title.startswith("Images per class") and found.bars[1][0] == "foreground"
    assert "Used: masks/." in forms.summary(feature_folder=root / "images").facts
    alone = forms.summary(feature_folder=(root / "images").rename(forms.data / "alone"))
    assert "Enter the folder of label images" in alone.problems[0]
