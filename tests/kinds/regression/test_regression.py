"""Image regression over HTTP, from the dataset form to a prediction."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.site import Site


@pytest.fixture
def table(site: Site) -> Path:
    """Gray 16×16 images, and a table of their brightness and its negative."""
    chance = np.random.default_rng(0)
    rows = ["image,brightness,darkness"]
    for number in range(48):
        level = int(chance.integers(20, 230))
        pixels = chance.integers(level - 10, level + 10, (16, 16), np.uint8)
        Image.fromarray(pixels).save(site.data / f"{number}.png")
        rows.append(f"{number}.png,{level},{255 - level}")
    path = site.data / "levels.csv"
    path.write_text("\n".join(rows))
    return path


SIZE = {"resize_width": 16, "resize_height": 16, "resize_channels": 1}
KIND = "images/regression"


@pytest.mark.tensorflow
def test_a_table_becomes_a_model_that_predicts_numbers(site: Site, table: Path) -> None:
    dataset = site.create(KIND, table_train=table, **SIZE)
    body = site.json(f"/datasets/{dataset}.json")
    assert body["targets"] == ["brightness", "darkness"]
    page = site.get(f"/datasets/{dataset}").text
    assert "Target distribution" in page and "2 targets" in site.get("/").text
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&label=0").text
    assert "in the range" in explored
    # The form of the model fits the kind.
    fields = {"model_name": "no", "dataset": dataset}
    answer = site.post(f"/models/{KIND}.json", standard_networks="unet", balance="class_weights", **fields)
    assert answer.status_code == 400
    refused = answer.get_json()["errors"]
    assert "U-Net is not a network for image regression" in refused["standard_networks"][0]
    unavailable = "Not available for image regression. Choose None or Oversample rare classes."
    assert refused["balance"] == [unavailable]
    page = site.get(f"/models/{KIND}/new?dataset={dataset}").text
    assert re.search(r'value="regression"[^>]* checked', page)
    assert 'value="sampling"' in page and 'value="class_weights"' not in page

    settings = {"train_epochs": 30, "batch_size": 8, "learning_rate": 0.003, "best_metric": "r2"}
    settings |= {"val_interval": 1, "snapshot_interval": 1}
    model = site.train(KIND, dataset, method="standard", standard_networks="regression", **settings)
    predicted, part = site.follow(model)
    assert "{} {:.3g}".format(*predicted[0][0]) in part
    metrics = site.json(f"/models/{model}/metrics.json")["val"]["values"]
    assert metrics["r2"][-1] > 0.6
    assert 0 < metrics["mae"][-1] <= metrics["rmse"][-1] < 45
    site.evaluate(model)
    _, page = site.compare_with_worse(model, dataset)
    assert "is better by the most" in page and re.search(r">brightness [^<]+ <bdi", page)
    page = site.get(f"/models/{model}").text
    assert "Validation MAE" in page and "Predict from an image" in page
    best = max(range(1, 31), key=lambda epoch: metrics["r2"][epoch])
    assert f"Epoch {best} (best) · MAE {metrics['mae'][best]:.3g} · RMSE" in page
    assert f"R² {metrics['r2'][best]:.3g}" in site.get("/").text

    name, level, dark = table.read_text().splitlines()[1].split(",")
    answer, part = site.predict(KIND, model, image_path=str(table.parent / name))
    assert [label for label, _ in answer["predictions"]] == ["brightness", "darkness"]
    predicted = [value for _, value in answer["predictions"]]
    assert predicted == pytest.approx([float(level), float(dark)], abs=80)
    assert '<th scope="row"' in part and "brightness" in part


def test_the_form_returns_with_the_error_of_an_invalid_table(site: Site, table: Path) -> None:
    wrong = {"target_columns": "size", "table_train": str(table), "dataset_name": "no"}
    page = site.client.post("/datasets/images/regression", data=wrong)
    assert page.status_code == 400
    assert "no column “size”" in page.text and str(table) in page.text
