"""Ready-made TFRecord files over HTTP: arrays and images, targets of any shape, and the routes of DIGITS."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data import manifest as manifests
from digits.data.images.statistics import describe
from digits.data.records.records import SplitReader
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds import BUILT_IN
from digits.kinds.generic import reader
from digits.kinds.generic.form import PREBUILT
from digits.kinds.generic.reader import GenericMapping
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.jobs import DatasetJob
from tests.kinds.dataset_forms import Forms
from tests.old_databases import datum, numbers, write_job, write_lmdb
from tests.old_databases import picture as picture_of
from tests.site import Site
from tests.tfrecord_files import COLORS, example, picture, prepare_tfds, ramps, write_records

DATASETS = "/datasets/images/generic"
MODELS = "/models/images/generic"


def vectors(count: int = 60) -> list[bytes]:
    """Four numbers each, and their sum and difference of the first two, far beyond the range of pixels."""
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        x = chance.normal(0, 1, 4)
        made.append(example(x=x.tolist(), y=[float(1000 * (x[0] + x[1])), float(1000 * (x[0] - x[1]))]))
    return made


KIND = "images/generic"


LINEAR = """
class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 4])
        return tf.keras.layers.Dense(2)(flat) * 1000

    @model_property
    def loss(self):
        error = digits.mse_loss(self.inference / 1000, self.y / 1000)
        self.summaries.append(tf.summary.scalar("far", error * 2))
        return error
"""


@pytest.mark.integration
@pytest.mark.tensorflow
def test_a_network_learns_from_arrays_of_numbers(site: Site) -> None:
    path = write_records(site.data / "vectors.tfrecord", vectors(), "gzip")
    dataset = site.create(KIND, record_train=path, pct_val=20)
    found = site.json(f"/datasets/{dataset}.json")
    assert found["input"] == {"dtype": "float32", "shape": [1, 4, 1]}
    assert found["target"] == {"dtype": "float32", "shape": [2]}
    page = site.get(f"/datasets/{dataset}").text
    assert "Array shape" in page and "1×4×1" in page and "float32 [2]" in page
    explore = site.get(f"{DATASETS}/explore?job_id={dataset}&db=val").text
    assert "12 validation records" in explore and "vectors.tfrecord:" in explore

    preview = site.post("/models/augmentation-preview.json", dataset=dataset, use_mean="none").get_json()
    assert preview["shape"] == [1, 4, 1] and preview["high"] < 10
    assert preview["records"][0]["original"]["url"].startswith("data:image/png")

    network = {"method": "custom", "custom_network": LINEAR}
    model = site.train(KIND, dataset, train_epochs=30, batch_size=8, learning_rate=0.05, **network)
    losses = site.json(f"/models/{model}/metrics.json")["val"]["values"]["loss"]
    assert losses[-1] < 0.01 < losses[0]

    asked = {"job_id": model, "values": "1, 2, 0, 0"}
    outputs = site.post(f"{MODELS}/infer_extension.json", **asked).get_json()["outputs"]
    assert outputs["0"]["output"] == pytest.approx([3000, -1000], abs=100)
    answer, part = site.predict(KIND, model, values="1, 2, 0, 0")
    assert answer["outputs"]["output"] == [outputs["0"]["output"]] and "<dt>Shape</dt>" in part
    page = site.get(f"/models/{model}").text
    assert "Input values" in page and "Choose images" not in page
    for values, message in (("1, 2", "4 numbers"), ("a", "separated by commas"), ("", "Enter numbers")):
        answer = site.post(f"{MODELS}/infer_one.json", job_id=model, values=values)
        assert answer.status_code == 400 and message in answer.get_json()["error"]["message"]

    records = site.post(
        f"{MODELS}/infer_db.json", job_id=model, db_path=str(path), num_test_images=5
    ).get_json()
    assert list(records["outputs"]) == [f"vectors.tfrecord:{number}" for number in range(5)]
    first = np.random.default_rng(0).normal(0, 1, 4)
    sums = [1000 * (first[0] + first[1]), 1000 * (first[0] - first[1])]
    assert records["outputs"]["vectors.tfrecord:0"]["output"] == pytest.approx(sums, abs=100)
    asked = {"job_id": model, "db_path": str(path), "num_test_images": 2}
    address = site.post(f"{MODELS}/infer_db.json", **asked).get_json()["url"]
    found = site.json(f"{address}.json")
    assert found["source"] == "vectors.tfrecord"
    assert [row["image"] for row in found["results"]] == [f"vectors.tfrecord:{number}" for number in range(2)]
    shown = site.get(address).text
    assert "vectors.tfrecord:1" in shown and f"{address}/images/" not in shown
    other = write_records(site.data / "other.tfrecord", [example(z=1.0), *vectors(1)])
    records = site.post(f"{MODELS}/infer_db.json", job_id=model, db_path=str(other)).get_json()
    assert list(records["outputs"]) == ["other.tfrecord:1"]
    assert list(records["skipped"]) == ["other.tfrecord:0"]
    missing = str(site.data / "no")
    for path_text, message in (("", "db_path"), ("/etc/passwd", "outside"), (missing, "not exist")):
        answer = site.post(f"{MODELS}/infer_db.json", job_id=model, db_path=path_text)
        assert answer.status_code in (400, 403) and message in str(answer.get_json()["error"])


def finished(answer: Any) -> Any:
    return answer if answer["state"] not in ("waiting", "running", "incomplete") else None


# Its targets are images, as those of image-to-image, whose test belongs to every commit.
@pytest.mark.nightly
@pytest.mark.integration
@pytest.mark.tensorflow
def test_an_auto_encoder_trains_on_images_without_targets(site: Site) -> None:
    payloads = [example(image=ramp.tobytes(), label=3) for ramp in ramps(12)]
    path = write_records(site.data / "a.tfrecord", payloads)
    dataset = site.create(KIND, record_train=path, target_feature="-", pct_val=25)
    assert site.json(f"/datasets/{dataset}.json")["target"] is None
    assert "no target" in site.get(f"{DATASETS}/explore?job_id={dataset}").text
    model = site.train(KIND, dataset, method="standard", standard_networks="autoencoder", batch_size=4)
    predicted, part = site.follow(model)
    assert predicted[0]["shape"] == [8, 8, 1] and "<figure>" in part
    photo = site.data / "photo.png"
    photo.write_bytes(picture(size=(8, 8)))
    answer, part = site.predict(KIND, model, image_path=str(photo))
    assert np.shape(answer["outputs"]["output"]) == (1, 8, 8, 1)
    assert 'alt="Output as an image"' in part and "8×8×1" in part
    images = write_records(
        site.data / "b.tfrecord", [example(image=picture()), example(image=picture(size=(8, 8)))]
    )
    fields = {"job_id": model, "db_path": str(images)}
    assert len(site.post(f"{MODELS}/infer_db.json", **fields).get_json()["outputs"]) == 2
    found = site.post(f"{MODELS}/infer_db.json", **fields, dont_resize="true").get_json()
    assert list(found["outputs"]) == ["b.tfrecord:1"]
    assert "8×6 pixels, not 8×8" in found["skipped"]["b.tfrecord:0"]


def test_the_form_shows_the_features_and_the_shapes(tmp_path: Path) -> None:
    forms = Forms("generic", tmp_path)
    path = write_records(tmp_path / "a.tfrecord", vectors(5))
    found = forms.summary(record_train=path)
    assert "5 training records." in found.facts and not found.problems
    assert "Inputs: numbers, height × width × channels 1×4×1." in found.facts
    assert "Targets: float32 of shape 2." in found.facts
    assert [row[0] for row in found.table] == ["x (input)", "y (target)"]
    assert found.options["target_feature"][:2] == [("", "Automatic: y"), ("-", "None")]
    found = forms.summary(record_train=path, input_shape="2×2", target_feature="-")
    assert "Inputs: numbers, height × width × channels 2×2×1." in found.facts
    assert "Targets: none." in found.facts
    found = forms.summary(record_train=path, input_shape="3×3")
    assert "4 numbers, not 3×3" in found.problems[0]
    assert found.options["target_feature"][:2] == [("", "Automatic: y"), ("-", "None")]
    path.write_bytes(path.read_bytes()[:-9])
    assert "a.tfrecord, record 4: truncated" in forms.summary(record_train=path).problems[0]


OLD = ("images", "labels", "masks")


def write_old(data: Path) -> dict[str, dict[str, Path]]:
    """Write databases of DIGITS 4 to 6: images with classes, vectors of numbers, and grayscale images."""
    made: dict[str, dict[str, Path]] = {noun: {} for noun in OLD}
    for name, count in (("train", 6), ("val", 4)):
        records = (
            [datum(picture_of(item), item % 3) for item in range(count)],
            [numbers([[[item / 4, -item]]]) for item in range(count)],
            [datum(picture_of(item, 1), 0, "PNG") for item in range(count)],
        )
        for noun, values in zip(OLD, records, strict=True):
            made[noun][name] = write_lmdb(data / f"{name}_{noun}", values, key="{:08d}")
    return made


def old_fields(databases: dict[str, Path], field: str) -> dict[str, Any]:
    return {"method": "prebuilt"} | {f"prebuilt_{name}_{field}": path for name, path in databases.items()}


def test_databases_become_a_dataset_of_the_kind_of_their_labels(tmp_path: Path) -> None:
    forms = Forms("generic", tmp_path / "data")
    made = write_old(forms.data)
    images, labels = old_fields(made["images"], "images"), old_fields(made["labels"], "labels")
    for sent, kind, channels in (
        (images | labels, "image-regression", 3),
        (images, "image-classification", 3),
        (old_fields(made["masks"], "images"), "image-processing", 1),
    ):
        created = forms.create(**sent)
        assert ["labels determine the kind" in warning for warning in created.warnings] == [True]
        assert created.counts == {"train": 6, "val": 4}
        assert (created.manifest.kind, created.manifest.shape) == (kind, (6, 8, channels))

    found = forms.errors(**(images | old_fields(made["masks"], "labels")))
    assert "post the paths as database_train and database_targets" in found["prebuilt_train_images"][0]
    found = forms.errors(**images, prebuilt_train_labels=made["labels"]["train"])
    assert "labels for both" in found["prebuilt_train_images"][0]
    assert list(forms.errors(**images, record_train="/a")) == ["record_train"]
    for outside in PREBUILT.fields(forms.form()):
        assert list(forms.errors(**(images | {outside: "/etc"}))) == [outside]
    found = forms.errors(prebuilt_train_images=forms.data)
    assert "is not a database" in found["prebuilt_train_images"][0]
    path = write_records(forms.data / "a.tfrecord", vectors(3))
    created = forms.create(record_train=path, prebuilt_mean_file="/data/mean.binaryproto")
    assert created.warnings == ["prebuilt_mean_file is ignored: the mean is computed."]
    assert "no feature “z”" in forms.errors(record_train=path, target_feature="z")["record_train"][0]
    assert "28×28" in forms.errors(record_train=path, input_shape="0")["input_shape"][0]


def test_a_job_has_the_kind_of_the_labels_and_is_cloned(site: Site) -> None:
    made = write_old(site.data)
    sent = {name: str(value) for name, value in old_fields(made["masks"], "images").items()}
    dataset = site.post(f"{DATASETS}.json", dataset_name="old", **sent).get_json()["id"]
    assert site.wait_for_end(dataset) == "Done", site.json(f"/datasets/{dataset}.json")["error"]
    body = site.json(f"/datasets/{dataset}.json")
    assert [task["entry_count"] for task in body["create_db_tasks"]] == [6, 4]
    assert body["feature_dims"] == [6, 8, 1]
    assert site.services.store.get(dataset, DatasetJob).data_kind.name == "image-processing"
    twin = site.post("/datasets/images/processing.json", clone=dataset).get_json()["id"]
    assert site.wait_for_end(twin) == "Done"
    assert site.json(f"/datasets/{twin}.json")["content_hash"] == body["content_hash"]


@pytest.mark.parametrize("backend", ["lmdb", "hdf5"])
def test_folders_of_databases_are_refused_with_the_kinds_that_read_them(tmp_path: Path, backend: str) -> None:
    forms = Forms("generic", tmp_path)
    job = write_job(tmp_path / "job", backend=backend, train=3)
    for folder in (job, job / "train_db"):
        (message,) = forms.errors(record_train=folder)["record_train"]
        assert "contains LMDB or HDF5 databases. Choose the kind by their labels" in message
        assert forms.summary(record_train=folder).problems == [message]
        routes = {f"/datasets/{kind.route}/new" for kind in BUILT_IN}
        assert routes.issuperset(re.findall(r"/datasets/\S+/new", message))


@pytest.mark.integration
def test_the_routes_without_an_extension_are_those_of_this_kind(site: Site) -> None:
    page = site.get(f"{DATASETS}/new").text
    assert "Ready-made TFRecords" in page and 'href="/docs/databases.md">other kinds</a>' in page
    assert site.get(f"{MODELS}/new").status_code == 200
    answer = site.post(f"{MODELS}.json", model_name="a", dataset="none")
    assert answer.status_code == 400 and "dataset" in answer.get_json()["errors"]


def test_a_folder_of_tensorflow_datasets_needs_no_settings(tmp_path: Path) -> None:
    forms = Forms("generic", tmp_path / "data")
    made = forms.create(record_train=prepare_tfds(forms.data / "spots"), pct_val=25)
    target = made.manifest.target
    assert (made.manifest.shape, target.dtype, target.names) == ((6, 8, 3), "int64", ["0", "1"])
    assert all(record.as_pixels()[0, 0].tolist() in map(list, COLORS.values()) for record in made.records())


@pytest.mark.integration
def test_arrays_have_versions_and_statistics(site: Site) -> None:
    path = write_records(site.data / "a.tfrecord", vectors(20))
    dataset = site.create(KIND, record_train=path, input_shape="2×2", pct_val=0)
    answer = site.post(f"/datasets/{dataset}/versions.json", dataset_name="half", keep=50)
    assert answer.status_code == 200, answer.get_json()
    half = answer.get_json()["id"]
    assert site.wait_for_end(half) == "Done", site.json(f"/datasets/{half}.json")["error"]
    for made, count in ((dataset, 20), (half, 10)):
        folder = site.services.store.get(made, DatasetJob).folder
        found = manifests.load(folder)
        assert (found.dtype, found.shape, found.splits["train"].count) == ("float32", (2, 2, 1), count)
        with SplitReader(folder, found.splits["train"]) as records:
            described, _ = describe(map(records.read, range(count)), count, found.target)
        assert len(set(described["pixels_hash"].tolist())) == count
        mean = np.load(folder / "mean.npy")
        assert mean.shape == (2, 2, 1) and np.abs(mean).max() < 2
    assert Image.open(io.BytesIO(site.get(f"/datasets/{half}/records/train/0").data)).size == (2, 2)


def plan(path: Path, **settings: Any) -> Plan:
    recipe = CreateGeneric(train=str(path), **settings)
    found = GenericMapping(recipe, *GenericMapping.complete(recipe))
    height, width, channels = found.shape
    size: dict[str, Any] = {"height": height, "width": width, "channels": channels if channels == 3 else 1}
    recipe = CreateGeneric(train=str(path), dtype=found.dtype, shape=list(found.shape), **size, **settings)  # type: ignore[arg-type]
    return reader.read(recipe, Progress())


@pytest.mark.parametrize(
    ("values", "settings", "dtype", "shape", "names"),
    [
        ({"x": [0.5] * 4, "y": 0.5}, {}, "float32", [1], ["y"]),
        ({"x": [0.5] * 4, "y": 2}, {}, "int64", [], ["0", "1", "2"]),
        ({"x": [0.5] * 4, "y": [1, -2]}, {}, "int64", [2], []),
        ({"x": [0.5] * 4, "y": [0.5] * 6}, {"target_shape": [2, 3]}, "float32", [2, 3], []),
        ({"x": [0.5] * 4, "text": b"a"}, {}, "float32", [], []),
        ({"x": [0.5] * 10, "y": 0.5}, {"input_shape": [1, 2, 5]}, "float32", [1], ["y"]),
    ],
)
def test_targets_have_any_shape(
    tmp_path: Path,
    values: dict[str, Any],
    settings: dict[str, Any],
    dtype: str,
    shape: list[int],
    names: list[str],
) -> None:
    path = write_records(tmp_path / "a", [example(**values)] * 4)
    made = plan(path, **settings)
    assert (made.target.dtype, made.target.shape, made.target.names) == (dtype, shape, names)
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 3, "val": 1}
    array = made.array(made.splits["train"], 0)
    expected = tuple(settings.get("input_shape", (1, len(values["x"]), 1)))
    assert array.dtype == np.float32 and array.shape == expected
    assert made.stacked == array.shape[2]


@pytest.mark.parametrize(
    ("payloads", "settings", "message"),
    [
        ([example(x=[0.5] * 4), example(x=[0.5] * 3)], {}, "record 1: “x” has 3 numbers, but 4 in the first"),
        ([example(x=[0.5] * 4), example(x=[1] * 4)], {}, "record 1: “x” is int64, but float32 in the first"),
        ([example(x=[0.5] * 4, y=1), example(x=[0.5] * 4)], {}, "record 1: it has no feature “y”"),
        ([example(x=[0.5, float("nan")])], {}, "record 0: “x” contains NaN or infinity"),
        ([example(x=[0.5] * 4, y=b"a")], {"target_feature": "y"}, "“y” is bytes instead of numbers"),
        ([example(x=[0.5] * 4)], {"input_feature": "z"}, "no feature “z”"),
        ([example(y=0.5)], {}, "None of the features looks like an input"),
        ([example(x=[0.5] * 5000)], {}, "“x” has shape 1×5000×1"),
    ],
)
def test_faults_are_reported_with_the_file_and_the_record(
    tmp_path: Path, payloads: list[bytes], settings: dict[str, Any], message: str
) -> None:
    path = write_records(tmp_path / "a", payloads)
    with pytest.raises(UnusableSource, match=message):
        plan(path, pct_val=0, **settings)
