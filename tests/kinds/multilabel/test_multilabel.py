"""Multi-label classification over HTTP, from the dataset form to a prediction."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.kinds.dataset_forms import Forms
from tests.site import Site

LABELS = ["horizontal", "square", "vertical"]


def write_table(folder: Path) -> Path:
    """Write noisy 16×16 images with any of a horizontal line, a vertical line and a square at random places."""
    chance = np.random.default_rng(0)
    rows = ["image,shapes"]
    for number in range(96):
        pixels = chance.integers(0, 60, (16, 16), np.uint8)
        labels = [label for place, label in enumerate(LABELS) if number >> place & 1]
        row, column = chance.integers(1, 15, 2)
        top, left = chance.integers(0, 11, 2)
        if "horizontal" in labels:
            pixels[row, :] = 230
        if "vertical" in labels:
            pixels[:, column] = 230
        if "square" in labels:
            pixels[top : top + 5, left : left + 5] = 150
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{' '.join(labels)}")
    path = folder / "shapes.csv"
    path.write_text("\n".join(rows))
    return path


SIZE = {"resize_width": 16, "resize_height": 16, "resize_channels": 1}
KIND = "images/multilabel"


@pytest.mark.tensorflow
def test_a_table_becomes_a_model_that_predicts_labels(site: Site) -> None:
    table = write_table(site.data)
    dataset = site.create(KIND, table_train=table, **SIZE)
    body = site.json(f"/datasets/{dataset}.json")
    assert body["labels"] == LABELS
    assert body["label_frequencies"] == pytest.approx([0.5] * 3, abs=1 / 6)  # for any split
    page = site.get(f"/datasets/{dataset}").text
    assert "Images per label" in page and "12 images have no labels" in page
    assert "3 labels" in site.get("/").text
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}").text
    assert "horizontal, square" in explored and "no labels" in explored
    of_one = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&label=0").text
    assert "in the rarest label" in of_one
    page = site.get(f"/models/{KIND}/new?dataset={dataset}").text
    assert re.search(r'value="multilabel"[^>]* checked', page)

    settings = {"train_epochs": 30, "batch_size": 8, "learning_rate": 0.003, "use_mean": "pixel"}
    settings |= {"val_interval": 1, "snapshot_interval": 1}
    model = site.train(KIND, dataset, method="standard", standard_networks="multilabel", **settings)
    predicted, part = site.follow(model)
    assert len(predicted[0]) == len(predicted[-1]) > 1 and "%" in part and "wrong:" not in part
    metrics = site.json(f"/models/{model}/metrics.json")
    values = metrics["val"]["values"]
    assert values["map"][-1] > 0.85 and values["map"][-1] > values["map"][0] + 0.1
    assert values["f1"][-1] > 0.75 and 0 < values["f1_macro"][-1] <= 1
    site.evaluate(model)
    _, page = site.compare_with_worse(model, dataset)
    assert "is better by the most" in page and re.search(r"[^<]+ <bdi class=.muted.>", page)
    assert "f1" in metrics["train"]["values"] and "map" not in metrics["train"]["values"]
    page = site.get(f"/models/{model}").text
    assert "Validation mAP" in page and "Predict the labels of an image" in page
    best = max(range(1, 31), key=lambda epoch: (values["map"][epoch], -values["loss"][epoch]))
    assert f"Epoch {best} (best) · mAP {100 * values['map'][best]:.1f}%" in page
    assert f"mAP {100 * values['map'][-1]:.1f}%" in site.get("/").text

    answer, part = site.predict(KIND, model, image_path=str(table.parent / "5.png"))
    percents = [percent for _, percent in answer["predictions"]]
    assert sorted(label for label, _ in answer["predictions"]) == LABELS
    assert percents == sorted(percents, reverse=True) and 0 <= percents[-1] <= percents[0] <= 100
    assert part.count('<li class="prediction') == 3
    assert part.count("is-predicted") == sum(percent >= 50 for percent in percents)


def test_columns_of_zeros_and_ones_become_the_same_dataset(tmp_path: Path) -> None:
    forms = Forms("image-multilabel", tmp_path / "data")
    table = write_table(forms.data)
    rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
    flags = [[str(int(label in labels.split())) for label in reversed(LABELS)] for _, labels in rows]
    lines = [",".join([name, *values]) for (name, _), values in zip(rows, flags, strict=True)]
    columns = table.with_name("columns.csv")
    columns.write_text("\n".join([",".join(["image", *reversed(LABELS)]), *lines]))
    size = {"resize_width": 16, "resize_height": 16, "resize_channels": 1}
    first, second = (forms.create(table_train=path, **size) for path in (table, columns))
    assert second.manifest.target.names == LABELS
    assert first.manifest.content_hash == second.manifest.content_hash


def test_the_error_of_an_invalid_table_belongs_to_its_field(tmp_path: Path) -> None:
    forms = Forms("image-multilabel", tmp_path / "data")
    errors = forms.errors(table_train=write_table(forms.data), label_columns="size")
    assert "no column “size”" in errors["table_train"][0]
