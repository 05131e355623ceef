"""Downloads of a dataset over HTTP."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.data.archives.writing import MEDIA_TYPES
from tests.data.archives.test_writing import unpacked
from tests.site import Site
from tests.web.trained import Finished


@pytest.mark.tensorflow
def test_a_dataset_is_downloaded_and_read_without_digits(site: Site, in_child: Any) -> None:
    dataset = site.wait_until_done(site.dataset(folder_pct_val=25))
    page = site.get(f"/datasets/{dataset}").text
    assert f"/datasets/{dataset}/download.zip?format=folders" in page
    assert f"/datasets/{dataset}/statistics.json" in page

    answer = site.get(f"/datasets/{dataset}/download.zip")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{dataset}_folders.zip"'
    names = zipfile.ZipFile(io.BytesIO(answer.data)).namelist()
    assert sum(name.startswith("train/left/") for name in names) == 6
    assert sum(name.startswith("val/") for name in names) == 6

    answer = site.get(f"/datasets/{dataset}/download.tar?format=tfrecords")
    assert answer.mimetype == MEDIA_TYPES["tar"]
    files = unpacked("tar", answer.data)
    assert {"dataset.json", "feature_spec.json", "labels.txt", "mean.png", "mean.npy"} < set(files)
    labels = files["labels.txt"].decode().splitlines()
    shards = [name for name in files if name.startswith("train-")]
    for name in shards:
        (site.data / name).write_bytes(files[name])
    found = in_child(_labels_of, [site.data / name for name in shards], files["feature_spec.json"])
    assert [found.count(place) for place in range(len(labels))] == [6, 6, 6]
    assert np.load(io.BytesIO(files["mean.npy"])).shape == (16, 16, 3)


def _labels_of(shards: list[Path], specification: bytes) -> list[int]:
    """Read the records of TFRecord files by ``feature_spec.json`` alone; return their labels."""
    import tensorflow as tf

    features = {
        name: tf.io.VarLenFeature(item["dtype"])
        if None in item["shape"]
        else tf.io.FixedLenFeature(item["shape"], item["dtype"])
        for name, item in json.loads(specification).items()
    }
    labels = []
    for example in tf.data.TFRecordDataset([str(path) for path in shards]):
        parsed = tf.io.parse_single_example(example, features)
        assert tf.io.decode_image(parsed["image/encoded"]).shape == (16, 16, 3)
        labels.append(int(parsed["image/class/label"]))
    return labels


def test_statistics_contain_the_health_check_once_there_is_one(site: Site, finished: Finished) -> None:
    dataset = finished.dataset(site, folder_pct_val=25)
    before = site.json(f"/datasets/{dataset}/statistics.json")
    assert before["splits"]["train"]["counts"] == {"left": 6, "middle": 6, "right": 6}
    assert before["images"] is None and before["findings"] is None
    site.post(f"/datasets/{dataset}/health")
    site.wait(lambda: site.json(f"/datasets/{dataset}/health.json")["state"] == "done")
    after = site.json(f"/datasets/{dataset}/statistics.json")
    about = after["images"]["train"]
    assert about["source_modes"] == {"RGB": 18} and about["source_width"]["max"] == 16
    assert 0 < about["brightness"]["min"] <= about["brightness"]["median"] <= about["brightness"]["max"] < 255
    assert isinstance(after["findings"], list) and isinstance(after["histograms"], list)


def test_invalid_requests_are_refused(site: Site) -> None:
    assert site.get("/datasets/nothing/download.zip").status_code == 404
    dataset = site.dataset()
    assert site.get(f"/datasets/{dataset}/download.zip").status_code == 400
    assert site.wait_for_end(dataset) == "Done"
    for address, word in (("download.rar", "zip"), ("download.zip?format=coco", "folders")):
        answer = site.get(f"/datasets/{dataset}/{address}", headers={"Accept": "application/json"})
        assert answer.status_code == 400 and word in answer.get_json()["error"]["hint"]
