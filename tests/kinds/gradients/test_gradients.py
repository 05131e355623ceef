"""Gradients over HTTP, from the form to predictions from slopes and from an image."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.kinds.gradients.ramps import draw_ramp
from digits.kinds.gradients.reader import draw_slopes
from tests.kinds.dataset_forms import Forms
from tests.old_databases import datum, write_lmdb
from tests.site import Site

SIZE = {"image_width": 16, "image_height": 16}


KIND = "images/gradients"


# Its targets are numbers, as those of regression, whose test belongs to every commit.
@pytest.mark.nightly
@pytest.mark.tensorflow
def test_a_model_learns_the_gradients_of_generated_images(site: Site) -> None:
    dataset = site.create(KIND, train_image_count=256, val_image_count=64, **SIZE)
    page = site.get(f"/datasets/{dataset}").text
    assert "Brighter toward" in page and "256 generated images" in page
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&label=3").text
    assert "bottom right" in explored and 'class="arrow-drawing"' in explored

    model = site.train(KIND, dataset, train_epochs=8, shuffle="y")
    predicted, part = site.follow(model)
    assert dict(predicted[0]).keys() == {"gradient_x", "gradient_y"} and "gradient_x " in part
    assert site.json(f"/models/{model}/metrics.json")["val"]["values"]["r2"][-1] > 0.8
    page = site.get(f"/models/{model}").text
    assert 'name="gradient_x"' in page and 'name="image_file"' in page

    for x, y in ((0.4, -0.3), (-0.3, 0.4)):
        answer, part = site.predict(KIND, model, gradient_x=x, gradient_y=y)
        assert [name for name, _ in answer["predictions"]] == ["gradient_x", "gradient_y"]
        assert [value for _, value in answer["predictions"]] == pytest.approx([x, y], abs=0.2)
        assert "arrow-drawing" in part and "data:image/png" in part
    url, file = f"/models/{KIND}/infer_one", io.BytesIO()
    Image.fromarray(draw_ramp(0.4, -0.3, 16, 16)[:, :, 0]).save(file, "PNG")
    answer, part = (
        site.post(page, job_id=model, image_file=(io.BytesIO(file.getvalue()), "ramp.png"))
        for page in (f"{url}.json", url)
    )
    assert dict(answer.get_json()["predictions"])["gradient_x"] == pytest.approx(0.4, abs=0.2)
    assert "arrow-drawing" in part.text and "data:image/png" in part.text
    for x, y in (("0.6", "0"), ("0", ""), ("nan", "0"), ("right", "0")):
        refused = site.post(f"{url}.json", job_id=model, gradient_x=x, gradient_y=y)
        assert refused.status_code == 400
        assert "must be a number from -0.5 to 0.5" in refused.get_json()["error"]["message"]
    assert not list((site.services.folder / "uploads").iterdir())

    # The routes of DIGITS 6
    generic = "/models/images/generic"
    asked = {"job_id": model, "gradient_x": 0.4, "gradient_y": -0.3}
    options = {"view_extension_id": "image-gradients", "arrow_color": "blue"}
    view = site.post(f"{url}.json", **asked, **options).get_json()["view"]
    assert [view["x"], view["y"]] == pytest.approx([0.4, -0.3], abs=0.2) and view["color"] == "#2b6cb0"
    options["arrow_size"] = "-1"
    refused = site.post(f"{generic}/infer_extension.json", **asked, **options)
    assert refused.status_code == 400 and "arrow_size" in refused.text
    outputs = site.post(f"{generic}/infer_extension.json", **asked).get_json()["outputs"]
    assert outputs["0"]["output"] == pytest.approx([0.4, -0.3], abs=0.2)
    path = site.data / "ramp 1.png"
    Image.fromarray(draw_ramp(0.4, -0.3, 16, 16)[:, :, 0]).save(path)
    one = site.post(f"{generic}/infer_one.json", job_id=model, image_path=str(path)).get_json()["outputs"]
    assert one["output"] == [pytest.approx([0.4, -0.3], abs=0.2)]
    listed = b"ramp 1.png 1\nmissing.png\n" + str(path).encode() + b"\nramp 1.png\n"
    many = site.post(
        f"{generic}/infer_many.json",
        job_id=model,
        image_list=(io.BytesIO(listed), "list.txt"),
        image_folder=str(site.data),
        num_test_images=3,
    ).get_json()
    assert list(many["outputs"]) == [str(path)] and list(many["skipped"]) == [str(site.data / "missing.png")]
    # Batches of other sizes are rounded differently.
    assert many["outputs"][str(path)]["output"] == pytest.approx(one["output"][0], abs=1e-5)

    # Several records: generated images, a database, and a dataset of the same kind
    asked = {"job_id": model, "test_image_count": 3}
    outputs = site.post(f"{generic}/infer_extension.json", **asked).get_json()["outputs"]
    slopes = draw_slopes(1, "test", 3).tolist()
    assert [found["output"] for found in outputs.values()] == [pytest.approx(s, abs=0.2) for s in slopes]
    assert list(outputs) == ["0", "1", "2"]
    for count in ("0", "many"):
        refused = site.post(f"{generic}/infer_extension.json", job_id=model, test_image_count=count)
        assert refused.status_code == 400 and "test_image_count" in refused.get_json()["error"]["message"]
    database = write_lmdb(
        site.data / "val_db" / "features", [datum(draw_ramp(x, y, 16, 16), 0) for x, y in slopes]
    )
    values = list(outputs.values())
    for place in (database, database.parent):
        found = site.post(f"{generic}/infer_db.json", job_id=model, db_path=str(place)).get_json()
        assert list(found["outputs"]) == ["00000000_0", "00000001_1", "00000002_2"], found
        assert list(found["outputs"].values()) == [
            {"output": pytest.approx(v["output"], abs=1e-5)} for v in values
        ]
    body = site.json(f"/datasets/{dataset}.json")
    task = body["create_db_tasks"][1]
    assert (task["stage"], task["entry_count"], body["feature_dims"]) == ("val_db", 64, [16, 16, 1])
    shard = Path(body["directory"], task["feature_db_path"])
    asked = {"job_id": model, "db_path": str(shard), "num_test_images": 2}
    found = site.post(f"{generic}/infer_db.json", **asked).get_json()["outputs"]
    assert list(found) == [f"{shard.name}:0", f"{shard.name}:1"]
    address = site.post(f"{generic}/infer_extension.json", job_id=model, test_image_count=2).get_json()["url"]
    found = site.json(f"{address}.json")
    assert (found["source"], found["images"], found["unreadable"]) == ("2 images", 2, 0)
    picture = Image.open(io.BytesIO(site.get(f"{address}/images/1").data))
    assert np.array_equal(np.asarray(picture), draw_ramp(*slopes[1], 16, 16)[:, :, 0])


def test_datasets_and_models_are_created_by_the_routes_of_digits_6(site: Site) -> None:
    fields = {"dataset_name": "ramps", "train_image_count": 8, "val_image_count": 0, **SIZE}
    created = site.post("/datasets/generic/create/image-gradients.json", **fields)
    assert created.status_code == 200
    dataset = created.get_json()["id"]
    assert site.post("/datasets/generic/create/image-gradients", **fields).status_code == 302
    wrong = site.post("/datasets/generic/create/image-gradients.json", **fields | {"train_image_count": 0})
    assert wrong.status_code == 400 and list(wrong.get_json()["errors"]) == ["train_image_count"]
    assert site.post("/datasets/generic/create/sounds.json", **fields).status_code == 404
    page = site.get("/datasets/images/gradients/new").text
    assert 'name="train_image_count"' in page and "resize_width" not in page
    assert site.wait_for_end(dataset) == "Done"
    for ending in (".json", "image-gradients.json", "/image-gradients.json"):
        answer = site.post(f"/models/images/generic{ending}", dataset=dataset, model_name="")
        assert answer.status_code == 400 and "model_name" in answer.get_json()["errors"]


def test_the_form_checks_its_numbers(tmp_path: Path) -> None:
    forms = Forms("image-gradients", tmp_path / "data")
    errors = forms.errors(train_image_count=0, image_width=0)
    assert set(errors) == {"train_image_count", "image_width"}
    made = forms.create(train_image_count=20, val_image_count=0, test_image_count=7, **SIZE)
    assert made.counts == {"train": 20, "test": 7}
