"""Rows of jobs, which scripts read to compare the metrics of many models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site import Site
from tests.web.digits6.script import Script

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

PARTS = ("last", "min", "max")


def row_of(site: Site, job_id: str) -> dict[str, Any]:
    row: dict[str, Any] = site.json(f"/jobs/{job_id}/table_data.json")["job"]
    return row


def test_rows_contain_the_range_of_each_metric(site: Site, script: Script, model: str) -> None:
    row = row_of(site, model)
    curves = site.json(f"/models/{model}/metrics.json")
    for stage, name in (("train", "loss"), ("val", "loss"), ("val", "accuracy")):
        values = curves[stage]["values"][name]
        found = [row[f"{name} ({stage}) {part}"] for part in PARTS]
        assert found == [values[-1], min(values), max(values)]
    assert (row["type"], row["framework"], row["group"]) == ("model", "tensorflow", "scripts")


def test_completed_jobs_name_the_fields_of_all_models(site: Site, script: Script, model: str) -> None:
    kept = script.create(f"/models/{model}/to_pretrained.json", {})
    body = site.json("/completed_jobs.json")
    rows = {row["id"]: row for row in body["models"]}
    fields = body["model_output_fields"]
    assert fields == sorted(fields)
    assert {f"accuracy (val) {part}" for part in PARTS} < set(fields) & rows[model].keys()
    (pretrained,) = body["pretrained_models"]
    assert pretrained["id"] == kept and pretrained["type"] == "pretrained_model" and pretrained["has_labels"]
    assert {"username", "has_labels"} <= set(fields) & pretrained.keys()
