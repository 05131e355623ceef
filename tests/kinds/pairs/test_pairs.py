"""Pairs over HTTP, from class folders to the comparison of two images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data import manifest as manifests
from tests.kinds.dataset_forms import Forms
from tests.old_databases import write_lmdb
from tests.site import Site, bars

SIZE = {"resize_width": 16, "resize_height": 16}


KIND = "images/pairs"


@pytest.mark.tensorflow
def test_class_folders_become_a_model_that_compares_images(site: Site) -> None:
    folder = bars(site.data / "bars")
    dataset = site.create(KIND, pair_source=folder, pair_count=192, resize_channels=1, **SIZE)
    page = site.get(f"/datasets/{dataset}").text
    assert "Training pairs" in page and "16×16 grayscale" in page
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&label=1").text
    assert "96 training pairs in the label" in explored and "--width: 32; --height: 16" in explored
    picture = Image.open(io.BytesIO(site.get(f"/datasets/{dataset}/records/train/0").data))
    assert (picture.size, picture.mode) == ((32, 16), "L")

    settings = {"train_epochs": 6, "batch_size": 16, "shuffle": "y"}
    checked = site.post("/models/preflight", dataset=dataset, model_name="a", use_mean="none", **settings)
    assert checked.get_json()["warnings"] == []
    model = site.train(KIND, dataset, **settings)
    predicted, part = site.follow(model)
    assert f"{predicted[0]['distance']:.3g}" in part
    values = site.json(f"/models/{model}/metrics.json")["val"]["values"]
    assert values["auc"][-1] > 0.9 and values["best_accuracy"][-1] > 0.8
    result, page = site.evaluate(model)
    assert result["details"]["curves"][0]["auc"] == pytest.approx(result["metrics"]["auc"])
    assert 'id="curve-threshold"' in page and "Worst pairs" in page
    sorting = f"evaluation={model}/{result['name']}&db=val"
    shown = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&{sorting}")
    assert shown.status_code == 200 and "Sorted by the error" in shown.text
    page = site.get(f"/models/{model}").text
    assert 'name="left_file"' in page and "image-file" not in page

    shard = site.services.store.folder / dataset / "val-00000-of-00001.tfrecord"
    asked = {"job_id": model, "db_path": str(shard), "num_test_images": 3}
    found = site.post("/models/images/generic/infer_db.json", **asked).get_json()
    assert len(found["outputs"]) == 3 and not found["skipped"]
    shown = site.get(found["url"]).text
    assert shown.count("Threshold") == 3 and "confusion" not in shown
    row = site.json(f"{found['url']}.json")["results"][0]
    assert row["predictions"].keys() == {"distance", "threshold", "same"}
    assert '""threshold""' in site.get(f"{found['url']}.csv").text
    asked["db_path"] = str(write_lmdb(site.data / "pairs_db", [b""]))
    refused = site.post("/models/images/generic/infer_db.json", **asked)
    assert refused.status_code == 400 and "single images" in refused.get_json()["error"]["message"]

    url = "/models/images/pairs/infer_one"
    left, other, right = (str(folder / name) for name in ("left/00.png", "left/01.png", "right/00.png"))
    same = site.predict(KIND, model, left_path=left, right_path=other)[0]["predictions"]
    with open(right, "rb") as file:
        different = site.post(
            f"{url}.json", job_id=model, left_path=left, right_file=(file, "right.png")
        ).get_json()["predictions"]
    assert same["distance"] < different["distance"]
    assert (same["same"], different["same"]) == (True, False)
    _, part = site.predict(KIND, model, left_path=left, right_path=right)
    assert "Different" in part and "Threshold" in part

    listed = site.data / "listed.csv"
    listed.write_text(
        "first,second\nleft/00.png,left/01.png\nleft/00.png,right/00.png\nleft/00.png,/etc/hostname\n"
    )
    for sent in ({"pair_list_path": str(listed)}, {"pair_list_file": (listed.open("rb"), "listed.csv")}):
        many = site.post(f"/models/{model}/predictions.json", **sent, image_folder=str(folder))
        address = many.get_json()["url"]
        found = site.wait(lambda at=address: (body := site.json(f"{at}.json"))["state"] == "done" and body)
        assert [row.get("predictions", {}).get("same") for row in found["results"]] == [True, False, None]
        for row, one in zip(found["results"], (same, different), strict=False):
            assert row["predictions"]["distance"] == pytest.approx(one["distance"], abs=1e-4)
        assert "outside the folders" in found["results"][2]["error"]
    page = site.get(address).text
    assert "left/00.png | right/00.png" in page and f"{address}/images/1?part=1" in page
    assert site.get(f"{address}/images/1").data != site.get(f"{address}/images/1?part=1").data
    for text, words in (("left/00.png\n", "Line 1 of the list has only one"), ("a.png,b.png", "relative")):
        sent = {"pair_list_file": (io.BytesIO(text.encode()), "a.csv")}
        refused = site.post(f"/models/{model}/predictions.json", **sent)
        assert refused.status_code == 400 and words in refused.get_json()["error"]["message"]
    for fields, words in (
        ({"left_path": left}, "Upload the second image"),
        ({"left_path": left, "right_path": "/etc/hostname"}, "outside"),
        ({"left_path": left, "right_file": (io.BytesIO(b"no"), "a.png")}, "second image cannot be read"),
    ):
        refused = site.post(f"{url}.json", job_id=model, **fields)
        assert refused.status_code in (400, 403) and words in refused.get_json()["error"]["message"]


def test_pairs_in_color_are_stacked_along_the_channels_and_missing_images_are_skipped(site: Site) -> None:
    folder = bars(site.data / "bars")
    table = folder / "pairs.csv"
    others = {"left": 1, "right": 0}
    lines = [f"left/0{n}.png,{name}/05.png,{same}" for n in range(5) for name, same in others.items()]
    table.write_text("\n".join([*lines, "left/00.png,missing.png,0"]))
    separate = folder / "test.csv"
    separate.write_text("\n".join(lines[:4]))
    fields = {"pair_source": table, "test_source": separate, "pct_val": 0, **SIZE}
    dataset = site.create(KIND, **fields, max_unusable_percent=20)
    manifest = manifests.load(site.services.store.folder / dataset)
    assert manifest.splits["test"].count == 4
    assert (manifest.shape, manifest.encoding, manifest.skipped) == ((16, 16, 6), "none", 1)
    picture = np.asarray(Image.open(io.BytesIO(site.get(f"/datasets/{dataset}/records/train/0").data)))
    assert picture.shape == (16, 32, 3)
    assert Image.open(io.BytesIO(site.get(f"/files/{dataset}/mean.png").data)).size == (32, 16)

    fields = {"dataset_name": "fewer", "edits": '{"exclude": [["train", 0]]}'}
    fields |= {"resize_width": 8, "resize_height": 8}
    version = site.post(f"/datasets/{dataset}/versions.json", **fields).get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    manifest = manifests.load(site.services.store.folder / version)
    assert (manifest.shape, manifest.splits["train"].count) == ((8, 8, 6), 9)
    small = Image.open(io.BytesIO(site.get(f"/datasets/{version}/records/train/0").data))
    assert (small.size, small.mode) == ((16, 8), "RGB")


def test_the_source_is_summarized_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    forms = Forms("image-pairs", tmp_path)
    folder = bars(tmp_path / "bars")
    found = forms.summary(pair_source=folder)
    assert found.facts[0] == "24 images in 3 classes." and found.bars_title == "Pairs"
    table = folder / "pairs.csv"
    table.write_text("left/00.png,left/01.png,1\nleft/00.png,missing.png,0\n")
    found = forms.summary(pair_source=table)
    assert found.facts[0] == "2 rows with two images and a label each."
    assert found.problems == ["1 second image not found."]
    errors = forms.errors(pair_source=table, pct_val=50, pct_test=50)
    assert "nothing is left" in errors["pct_test"][0]
    table.write_text("left/00.png,left/01.png\n")
    for source, words in ((table, "has 2 columns"), (tmp_path / "nothing", "nothing")):
        assert words in forms.errors(pair_source=source)["pair_source"][0]
