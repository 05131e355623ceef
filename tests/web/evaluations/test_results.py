"""The results of all models of a dataset on the same records."""

from __future__ import annotations

import re

import pytest

from digits.kinds.classification.views import Views as ClassificationViews
from digits.kinds.views import Metric
from tests.site import Site
from tests.web.trained import Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site


def test_models_are_sorted_and_the_front_is_marked(
    site: Site, dataset: str, finished: Finished, monkeypatch: pytest.MonkeyPatch
):
    assert "No evaluated models" in site.get(f"/datasets/{dataset}/results").text
    assert "No evaluated models" in site.get(f"/projects/{dataset}").text
    models = [
        finished.model(site, dataset, name=name, learning_rate=rate, train_epochs=epochs)
        for name, rate, epochs in (("untrained", 1e-9, 1), ("trained", 0.02, 4))
    ]
    for model in models:
        site.evaluate(model)

    body = site.json(f"/datasets/{dataset}/results.json")
    by_name = {row["name"]: row for row in body["models"]}
    assert (body["metric"], body["split"], len(by_name)) == ("accuracy", "val", 2)
    assert by_name["trained"]["metrics"]["accuracy"] == 1.0 > by_name["untrained"]["metrics"]["accuracy"]
    assert by_name["trained"]["is_on_front"]
    assert by_name["trained"]["milliseconds"] > 0
    assert by_name["trained"]["parameters"] == 16 * 16 * 3 * 3 + 3

    def names(**arguments: str) -> list[str]:
        page = site.client.get(f"/datasets/{dataset}/results", query_string=arguments).text
        return re.findall(r'<th scope="row"><a href="[^"]+"><bdi[^>]*>(\w+)<', page)

    project = site.get(f"/projects/{dataset}").text
    best = project.split('id="best"')[1].split("</section>")[0]
    assert ">trained</bdi>" in best
    assert re.search(r"Accuracy <b>100[.0]*%</b> on \d+ validation images of <bdi>", best), best
    assert "better than “<bdi>untrained</bdi>”" in best and "/models/compare?first=" in best

    assert names() == names(sort="accuracy", direction="desc") == ["trained", "untrained"]
    assert names(sort="accuracy", direction="asc") == ["untrained", "trained"]
    assert names(sort="loss") == ["trained", "untrained"]
    assert names(sort="name", direction="desc") == ["untrained", "trained"]
    assert len(names(sort="no such column")) == 2
    page = site.get(f"/datasets/{dataset}/results").text
    assert "F1, mean of classes" in page
    assert "Best trade-off" in page and "100.0%" in page and 'opacity="1"' in page
    assert "Production: " not in page
    trained = by_name["trained"]["id"]
    answer = site.post(
        f"/models/{trained}/promote",
        name="best-bars",
        snapshot_epoch=by_name["trained"]["epoch"],
    )
    assert answer.status_code == 302
    body = site.json(f"/datasets/{dataset}/results.json")
    assert {row["name"]: row["production"] for row in body["models"]} == {
        "untrained": [],
        "trained": [{"name": "best-bars", "epoch": by_name["trained"]["epoch"]}],
    }
    page = site.get(f"/datasets/{dataset}/results").text
    assert "Production: " in page and f'action="/models/{trained}/promote"' in page
    assert f"/datasets/{dataset}/results" in site.get(f"/datasets/{dataset}").text
    assert "No evaluated models" in site.get(f"/datasets/{dataset}/results?split=test").text

    def best_loss() -> str:
        page = site.get(f"/models/compare?ids={','.join(models)}").text
        (table,) = re.findall(r'aria-label="Metrics, size.*?</table>', page, re.DOTALL)
        column = re.findall(r'<th scope="col"[^>]*>([^<]+)<', table).index("Loss")
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
        (best,) = {row[column - 1] for row in cells if "<b>" in row[column - 1]}
        return re.sub("<.*?>", "", best)

    lowest = best_loss()
    # Metrics that declare the opposite directions change the order, the front and the best values.
    opposite = (Metric("accuracy", "Hits", best="lowest"), Metric("loss", "Loss"))
    monkeypatch.setattr(ClassificationViews, "metrics", opposite)
    assert names() == names(sort="accuracy", direction="asc") == ["untrained", "trained"]
    assert float(best_loss()) > float(lowest)
    for path in (f"/datasets/{dataset}/results", f"/models/{trained}/evaluation"):
        assert "Hits" in site.get(path).text
    assert "Validation hits" in site.get(f"/models/{models[0]}").text
    offered = site.get(f"/models/images/classification/new?dataset={dataset}").text
    assert "Lowest validation hits" in offered and "When hits stops improving" in offered
    rows = site.json(f"/datasets/{dataset}/results.json")["models"]
    assert next(row for row in rows if row["name"] == "untrained")["is_on_front"]


def test_models_without_an_evaluation_can_be_evaluated(site: Site, finished: Finished):
    dataset = finished.dataset(site, folder_pct_test=25)
    model = finished.model(site, dataset)
    site.evaluate(model)
    url = f"/datasets/{dataset}/results?split=test"
    page = site.get(url).text
    assert f'formaction="/models/{model}/evaluation"' in page and "Time per record" not in page
    (row,) = site.json(url.replace("results", "results.json"))["models"]
    assert (row["metrics"], row["milliseconds"], row["evaluation_url"]) == ({}, None, None)
    answer = site.post(f"/models/{model}/evaluation", split="test", back="results")
    assert answer.headers["Location"] == url
    site.wait(lambda: site.json(f"/models/{model}/evaluation.json")["state"] == "done")
    (row,) = site.json(url.replace("results", "results.json"))["models"]
    assert row["metrics"] and row["milliseconds"] > 0
