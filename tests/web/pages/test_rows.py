"""Rows of jobs, which scripts read to compare the metrics of many models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site import Site
from tests.web.trained import shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

PARTS = ("last", "min", "max")


def row_of(site: Site, job_id: str) -> dict[str, Any]:
    row: dict[str, Any] = site.json(f"/jobs/{job_id}/table_data.json")["job"]
    return row


def test_rows_contain_the_range_of_each_metric(site: Site, model: str) -> None:
    row = row_of(site, model)
    curves = site.json(f"/models/{model}/metrics.json")
    for stage in ("train", "val"):
        values = curves[stage]["values"]["loss"]
        found = [row[f"loss ({stage}) {part}"] for part in PARTS]
        assert found == [values[-1], min(values), max(values)]
    assert (row["type"], row["framework"]) == ("model", "tensorflow")


def test_completed_jobs_name_the_fields_of_all_models(site: Site, model: str) -> None:
    kept = site.post(f"/models/{model}/to_pretrained.json").get_json()["id"]
    body = site.json("/completed_jobs.json")
    rows = {row["id"]: row for row in body["models"]}
    fields = body["model_output_fields"]
    assert fields == sorted(fields)
    assert {f"loss (val) {part}" for part in PARTS} < set(fields) & rows[model].keys()
    (pretrained,) = body["pretrained_models"]
    assert pretrained["id"] == kept and pretrained["type"] == "pretrained_model" and pretrained["has_labels"]
    assert {"username", "has_labels"} <= set(fields) & pretrained.keys()
