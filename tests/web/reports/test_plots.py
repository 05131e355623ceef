"""The charts of a report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from digits.core.events import Measured
from digits.core.metrics import Metrics
from digits.kinds import all_kinds
from digits.kinds.views import training_charts, views_of
from digits.web.reports.plots import curves
from tests.static.node import run_node

NAMES = [
    "loss",
    "my_loss",
    "accuracy",
    "accuracy_top5",
    "mAP",
    "learning_rate",
    "ratio/a",
    "ratio/b",
    "kl",
    "Top_Accuracy",
    "mean_absolute_error",
    "PSNR",
]
PROGRAM = """
import { MetricStore } from %s;
const [kinds, names] = %s;
console.log(JSON.stringify(kinds.map((charts) => {
  const store = new MetricStore(charts);
  store.add([{ stage: 'train', epoch: 1, step: 1, values: Object.fromEntries(names.map((name) => [name, 1])) }]);
  const ids = [...new Set(names.map((name) => store.chartOf(name).id))].sort();
  return Object.fromEntries(ids.map((id) => [id, store.series(id).map(({ name }) => name).sort()]));
})));
"""


@pytest.mark.integration
def test_a_report_and_the_page_group_metrics_alike(root: Path, tmp_path: Path) -> None:
    kinds = [training_charts(views_of(kind)) for kind in all_kinds().values()]
    program = tmp_path / "program.mjs"
    module = json.dumps((root / "static" / "js" / "metrics.js").as_uri())
    program.write_text(
        PROGRAM % (module, json.dumps([[list(map(asdict, charts)) for charts in kinds], NAMES]))
    )
    metrics = Metrics()
    metrics.add(Measured(stage="train", epoch=1.0, step=1, values=dict.fromkeys(NAMES, 1.0)))
    for charts, on_page in zip(kinds, json.loads(run_node(program).stdout), strict=True):
        titles = {chart.id: chart.title for chart in charts}
        in_report = {
            plot.title: sorted(line.name.removesuffix(" (training)") for line in plot.lines)
            for plot in curves(metrics, charts)
        }
        assert in_report == {
            titles.get(name, name.removeprefix("own-").replace("_", " ")): sorted(
                name.replace("_", " ") for name in names
            )
            for name, names in on_page.items()
        }
