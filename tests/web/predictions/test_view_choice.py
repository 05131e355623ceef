"""Views of predictions over HTTP: chosen with a prediction, or later without predicting again."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from digits.core.errors import NotFound
from digits.kinds.predictions.rendering import Prediction
from digits.runtime.inference_servers import InferenceServers
from digits.web.services.recent_predictions import Recent, RecentPredictions
from tests.site import Site
from tests.web.trained import Finished

pytestmark = pytest.mark.integration

SCORES = np.array([1.5, -2, 0.25], np.float32)
PART = {"X-Fragment": "prediction"}


@pytest.fixture
def asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests to the inference server, which answers with `SCORES`."""
    requests = []

    def exchange(
        self: object, folder: Path, request: dict[str, Any], attached: Sequence[IO[bytes]] = ()
    ) -> tuple[dict[str, Any], list[bytearray]]:
        requests.append(request)
        predictions = [["a", 70.0], ["b", 20.0]]
        outputs = [
            {"name": "logits", "dtype": "float32", "shape": [3], "attached": True},
            {"name": "large", "dtype": "float32", "shape": [9999, 9999], "attached": False},
        ]
        answer = {"ok": True, "predictions": predictions, "outputs": outputs, "milliseconds": 1.0}
        return answer, [bytearray(SCORES.tobytes())]

    monkeypatch.setattr(InferenceServers, "exchange", exchange)
    monkeypatch.setattr(site.services, "tensorflow", site.services.tensorflow._replace(available=True))
    return requests


def test_a_prediction_is_shown_in_any_view_that_fits(
    site: Site, finished: Finished, asked: list[dict[str, Any]]
) -> None:
    dataset = finished.dataset(site)
    model = site.finished_model(dataset)
    fields = {"job_id": model, "image_path": str(next(site.data.rglob("*.png")))}
    url = "/models/images/classification/classify_one"
    page = site.get(f"/models/{model}").text
    assert 'name="view_extension_id"' in page and '<option value="all-raw-data">' in page
    assert '<option value="text-classification">' not in page

    part = site.client.post(url, data=fields, headers=PART).text
    assert 'data-views="all-raw-data"' in part and "70.0%" in part
    recent = re.findall(r'data-recent="([^"]+)"', part)[0]
    raw = site.client.get(recent, query_string={"view_extension_id": "all-raw-data"}, headers=PART).text
    assert len(asked) == 1
    assert "1.5, -2, 0.25" in raw and "Too large to be shown: large." in raw and "<html" not in raw
    assert "<html" in site.get(f"{recent}?view_extension_id=all-raw-data").text
    body = site.json(f"{recent}.json?view=all-raw-data")
    assert body["view"]["outputs"][0]["min"] == -2 and body["predictions"][0] == ["a", 70.0]

    assert site.json(f"{recent}/outputs.json") == {"logits": SCORES.tolist()}
    assert site.get(f"{recent}/outputs.csv").text.splitlines()[:2] == ["output,index,value", '"logits",0,1.5']
    assert np.array_equal(np.load(io.BytesIO(site.get(f"{recent}/outputs.npy").data)), SCORES)
    assert site.get(f"{recent}/outputs.npy?output=other").status_code == 404
    assert site.get("/models/recent-predictions/none").status_code == 404

    answer = site.post(f"{url}.json", **fields, view_extension_id="all-raw-data").get_json()
    assert answer["view"]["name"] == "all-raw-data" and answer["view"]["options"] == {}
    assert len(asked) == 2
    for wrong in ("image-gradients", "nothing"):
        refused = site.post(f"{url}.json", **fields, view_extension_id=wrong)
        assert refused.status_code == 400
        assert refused.get_json()["error"]["message"].startswith("“view_extension_id”: there is no view")
    options = {"view_extension_id": "image-gan", "gan_view_task_id": "attributes"}
    refused = site.post("/models/images/classification/generate.json", job_id=model, **options)
    assert refused.status_code == 400
    assert refused.get_json()["error"]["message"].startswith("“gan_view_task_id”")
    assert len(asked) == 2


def test_the_numbers_of_an_output_are_passed_on_as_text(
    site: Site, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not parse them, because they may be millions."""
    dataset = finished.dataset(site)
    answer = {"ok": True, "names": ["output", 'a"b'], "omitted": ["large"]}
    texts = [bytearray(b"[1.50,NaN]"), bytearray(b"[" + b"10," * 200_000 + b"2]")]
    monkeypatch.setattr(InferenceServers, "exchange", lambda *_: (answer, texts))
    monkeypatch.setattr(site.services, "tensorflow", site.services.tensorflow._replace(available=True))
    fields = {"job_id": site.finished_model(dataset), "image_path": str(next(site.data.rglob("*.png")))}
    response = site.post("/models/images/generic/infer_one.json", **fields)
    body = b'{"outputs":{"output":[[1.50,NaN]],"a\\"b":[' + texts[1] + b']},"omitted":["large"]}\n'
    assert response.data == body
    assert response.mimetype == "application/json" and response.content_length == len(body)


def test_the_options_of_a_view_are_rendered(site: Site) -> None:
    form = site.get("/models/view-config/image-gradients").text
    assert 'name="arrow_color"' in form and 'value="80"' in form
    assert site.get("/models/view-config/nothing").status_code == 404


def test_the_latest_predictions_are_kept_up_to_a_size() -> None:
    kept = RecentPredictions(max_bytes=2000)
    prediction = Prediction("generic", None, outputs={"y": np.zeros(200, np.float32)})
    names = [kept.add(Recent("job", prediction, "Epoch 1", 1.0)) for _ in range(3)]
    assert [name in kept for name in names] == [False, True, True]
    with pytest.raises(NotFound, match="no longer has this prediction"):
        kept.get(names[0])
    large = Prediction("generic", None, outputs={"y": np.zeros(2000, np.float32)})
    assert kept.add(Recent("job", large, "Epoch 1", 1.0)) not in kept
    assert kept.add(Recent("job", prediction, "Epoch 1", 1.0)) in kept
