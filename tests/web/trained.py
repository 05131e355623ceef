"""A site shared by the tests of a module, and finished datasets and models, each made once per test run."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from digits.core.job import Job, load
from digits.core.model_job import ModelJob
from digits.kinds.jobs import DatasetJob
from tests import once
from tests.shared_executor import SharedExecutor
from tests.site import Site, bars, open_site, site_settings

LINEAR = """class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 16 * 16 * 3]) / 255.0
        return slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
WHOLE_BATCHES = LINEAR.replace("[-1, 16 * 16 * 3]", "[6, 16 * 16 * 3]")
TYPES: dict[str, type[Job]] = {job_type.type: job_type for job_type in (DatasetJob, ModelJob)}


@pytest.fixture(scope="module")
def shared_site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, executor: SharedExecutor
) -> Iterator[Site]:
    """A site shared by all tests of a module, with the settings ``SITE`` of the module.

    Assign it to ``site`` in modules whose tests do not affect each other.
    """
    changes = getattr(request.module, "SITE", {})
    opened = open_site(site_settings(tmp_path_factory.mktemp("site"), **changes), executor)
    yield opened
    opened.close()


def train(site: Site, dataset: str, network: str = LINEAR, /, **fields: Any) -> str:
    """Train a network on a dataset of bars, and return the model's id."""
    wanted = {
        "model_name": "judged",
        "dataset": dataset,
        "method": "custom",
        "custom_network": network,
        "train_epochs": 1,
        "batch_size": 6,
        "learning_rate": 0.02,
        "random_seed": 1,
        "use_mean": "none",
        "select_gpu": "cpu",
    }
    answer = site.post("/models/images/classification.json", **(wanted | fields))
    assert answer.status_code == 200, answer.get_json()
    return site.wait_until_done(answer.get_json()["id"])


def wait_for_evaluation(site: Site, model: str, count: int = 1) -> Any:
    def is_done() -> Any:
        body = site.json(f"/models/{model}/evaluation.json")
        assert body["state"] != "failed", body["error"]
        return body if body["state"] == "done" and len(body["evaluations"]) >= count else None

    return site.wait(is_done)


def copy_job(site: Site, folder: Path, dataset: str = "", name: str = "") -> str:
    """Add a copy of a finished job of any site, where a model belongs to ``dataset``, and return its id."""
    copy = shutil.copytree(folder, site.services.store.new_folder(), dirs_exist_ok=True)
    old = json.loads((folder / "job.json").read_text()).get("dataset_id", folder.name)
    texts = {f"/{old}": f"/{dataset or copy.name}", f'"{old}"': f'"{dataset or copy.name}"'}
    texts[str(folder.parent.parent)] = str(copy.parent.parent)
    for path in copy.rglob("*.json*"):
        text = path.read_text()
        for before, after in texts.items():
            text = text.replace(before, after)
        path.write_text(text)
    job = load(copy, TYPES)
    job.name = name or job.name
    site.services.store.add(job)
    return job.id


@dataclass(frozen=True)
class Finished:
    """Makes each job once in all processes of a test run, below ``folder``."""

    folder: Path
    executor: SharedExecutor

    def dataset(self, site: Site, name: str = "", **fields: Any) -> str:
        """Add a finished dataset of bars, by default with a validation split, to ``site``, and return its id."""
        fields = {"folder_pct_val": 25, "seed": 1} | fields
        bars(site.data / "bars")
        made = self._make(lambda own: own.wait_until_done(own.dataset(**fields)), fields)
        return copy_job(site, made, name=name)

    def model(self, site: Site, dataset: str, network: str = LINEAR, name: str = "", **fields: Any) -> str:
        """Add a model like one of `train` to ``site``, perhaps with another name, and return its id."""
        source = site.services.store.folder / dataset
        manifest = site.services.store.get(dataset, DatasetJob).manifest()
        assert manifest

        def make(own: Site) -> str:
            return train(own, copy_job(own, source), network, **fields)

        made = self._make(make, [manifest.content_hash, network, fields])
        return copy_job(site, made, dataset, name)

    def _make(self, make: Callable[[Site], str], key: Any) -> Path:
        """Return the folder of the job that ``make`` creates in a site, unless a process has done so for ``key``."""
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        place = self.folder / f"finished-{name}"

        def fill(folder: Path) -> None:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            own = open_site(site_settings(place), self.executor)
            try:
                (folder / "id").write_text(make(own))
            finally:
                own.close()

        return place / "jobs" / (once.make_once(self.folder / f"job-{name}", fill) / "id").read_text()
