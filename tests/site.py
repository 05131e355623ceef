"""A complete site in the test process: the application, a client, and images for datasets."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from flask import Flask
from flask.testing import FlaskClient
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket
from PIL import Image
from werkzeug.routing import Rule
from werkzeug.wsgi import ClosingIterator

from digits.client import Answer, Client
from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.resources import resource_folder
from digits.core.settings import Settings
from digits.core.status import Status
from digits.data.models import evaluation
from digits.kinds.standard_networks import network
from digits.runtime.devices import Devices
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import Executor
from digits.web.app import create_app, load_kinds
from digits.web.responses import assets
from digits.web.services import Services
from tests.shared_executor import SharedExecutor, ask_driver_once
from tests.stalls import STALLS
from tests.waiting import wait_until

PATIENCE_SECONDS = 120


class CompiledTemplates(BytecodeCache):
    """Compiles each template once for all sites of this process, because that takes longer than a test."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], Any] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key, bucket.checksum] = bucket.code


COMPILED_TEMPLATES = CompiledTemplates()
COMPILED_BUILDERS: dict[tuple[object, ...], Callable[..., Any]] = {}
COMPILE_BUILDER = Rule._compile_builder
COMPILED_RULES: dict[tuple[object, ...], dict[str, Any]] = {}
COMPILE_RULE = Rule.compile


def builder_once(rule: Rule, append_unknown: bool = True) -> Callable[..., Any]:
    """Compile the function that builds URLs of a rule once for all sites of this process: most of the time of opening one."""
    key = (*_identity(rule), append_unknown)
    if key not in COMPILED_BUILDERS:
        COMPILED_BUILDERS[key] = COMPILE_BUILDER(rule, append_unknown)
    return COMPILED_BUILDERS[key]


def compile_once(rule: Rule) -> None:
    """Compile a rule once for all sites, unless it depends on the kinds of its site."""
    key = _identity(rule)
    if "<kind:" in rule.rule:
        COMPILE_RULE(rule)
    elif key in COMPILED_RULES:
        vars(rule).update(COMPILED_RULES[key])
        for name, append_unknown in (("_build", False), ("_build_unknown", True)):
            setattr(rule, name, builder_once(rule, append_unknown).__get__(rule, None))
    else:
        COMPILE_RULE(rule)
        names = ("_parts", "_trace", "_converters", "arguments")
        COMPILED_RULES[key] = {name: vars(rule)[name] for name in names}


def _identity(rule: Rule) -> tuple[object, ...]:
    return (rule.rule, rule.subdomain, rule.host, repr(rule.defaults), rule.merge_slashes)


Rule._compile_builder, Rule.compile = builder_once, compile_once
HASH_FILES = assets._digest
# The static files of the checkout do not change during the tests.
STATIC_FOLDER = resource_folder("static")
STATIC_DIGEST = functools.cache(functools.partial(HASH_FILES, STATIC_FOLDER))
assets._digest = lambda folder: STATIC_DIGEST() if folder == STATIC_FOLDER else HASH_FILES(folder)


def site_settings(folder: Path, **changes: Any) -> Settings:
    """Return settings of a site that stores everything below ``folder`` and reads images from its ``data`` folder.

    Login is disabled, because Flask's test client has no connection whose owner could be determined.
    """
    values: dict[str, Any] = {
        "port": 0,
        "login": False,
        "jobs_dir": folder / "jobs",
        "data_roots": (folder / "data",),
        "samples_dir": folder / "samples",
        "weights_dir": folder / "weights",
        "state_dir": folder / "state",
        "logfile_filename": folder / "digits.log",
        "standby": False,
        "health_checks": False,
        "evaluations": False,
    }
    return Settings(**(values | changes))


@dataclass
class Site:
    """The application and its client; call ``close`` at the end."""

    app: Flask
    client: FlaskClient
    data: Path

    @property
    def services(self) -> Services:
        parts: Services = self.app.extensions["digits"]
        return parts

    @cached_property
    def api(self) -> Client:
        """The client for scripts."""

        def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
            answer = self.client.open(path, method=method, headers=dict(headers), data=body, buffered=True)
            return Answer(answer.status_code, answer.headers, io.BytesIO(answer.data))

        return Client(transport=send, sleep=lambda seconds: gevent.sleep(0.05))

    def get(self, path: str, **arguments: Any) -> Any:
        return self.client.get(path, buffered=True, **arguments)

    def json(self, path: str) -> Any:
        return self.client.get(path).get_json()

    def post(self, path: str, **fields: Any) -> Any:
        return self.client.post(path, data=fields)

    def wait(self, question: Callable[[], Any]) -> Any:
        """Let the scheduler run until ``question`` returns a true value."""
        return wait_until(question, PATIENCE_SECONDS)

    def status(self, job_id: str) -> str:
        return self.api.status(job_id).status

    def wait_for_end(self, job_id: str) -> str:
        self.wait(lambda: not self.services.store.get(job_id, Job).status.is_running)
        return self.status(job_id)

    def wait_until_done(self, job_id: str) -> str:
        """Wait until a job is done, and return its id."""
        assert self.wait_for_end(job_id) == "Done", self.json(f"/jobs/{job_id}/status")
        return job_id

    def dataset(self, **fields: Any) -> str:
        """Start creating a dataset of three classes of bars, and return its id."""
        wanted = {
            "dataset_name": "bars",
            "method": "folder",
            "folder_train": str(bars(self.data / "bars")),
            "resize_width": 16,
            "resize_height": 16,
            "resize_channels": 3,
            **fields,
        }
        return self.api.create_dataset("images/classification", wanted.pop("dataset_name"), **wanted).id

    def create(self, kind: str, **fields: Any) -> str:
        """Create a dataset of the route ``kind``, such as ``images/detection``, and return its id."""
        sent = {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
        answer = self.post(f"/datasets/{kind}.json", **{"dataset_name": "a", "seed": 1} | sent)
        assert answer.status_code == 200, answer.get_json()
        return self.wait_until_done(answer.get_json()["id"])

    def train(self, kind: str, dataset: str, **fields: Any) -> str:
        """Train a model on a dataset, by default for one epoch with Adam, and return its id."""
        settings = {
            "model_name": "a",
            "dataset": dataset,
            "train_epochs": 1,
            "random_seed": 1,
            "solver_type": "ADAM",
            "lr_policy": "fixed",
            "use_mean": "none",
        }
        answer = self.post(f"/models/{kind}.json", **settings | fields)
        assert answer.status_code == 200, answer.get_json()
        return self.wait_until_done(answer.get_json()["id"])

    def predict(self, kind: str, model: str, **asked: Any) -> tuple[dict[str, Any], str]:
        """Return the prediction of a model as JSON, and as the part of its page."""
        url, asked = f"/models/{kind}/infer_one", {"job_id": model, **asked}
        answer = self.post(f"{url}.json", **asked)
        assert answer.status_code == 200, answer.get_json()
        part = self.client.post(url, data=asked, headers={"X-Fragment": "prediction"}).text
        assert "<html" not in part
        found: dict[str, Any] = answer.get_json()
        return found, part

    def finished_model(self, dataset_id: str, rows: int = 20, weights: bytes = b"weights") -> str:
        """Add a model like a finished training with ``rows`` rows of metrics, and return its id."""
        folder = self.services.store.new_folder()
        (folder / "train").mkdir()
        (folder / "network.py").write_text(network("lenet").text)
        (folder / "snapshot_1.ckpt.index").write_bytes(b"index")
        (folder / "snapshot_1.ckpt.data-00000-of-00001").write_bytes(weights)
        with open(folder / "train" / "events.jsonl", "w") as log:
            for step in range(1, rows + 1):
                row = {
                    "at": 1e9 + step,
                    "event": "measured",
                    "stage": "train",
                    "step": step,
                    "epoch": step / rows,
                }
                log.write(json.dumps({**row, "values": {"loss": 1 / step, "accuracy": 0.5}}) + "\n")
            log.write(json.dumps({"at": 2e9, "event": "finished"}) + "\n")
        task = ModelJob.first_tasks()[0]
        for status in (Status.WAIT, Status.RUN, Status.DONE):
            task.move(status)
        recipe = Train(dataset=str(self.services.store.folder / dataset_id), epochs=1)
        job = ModelJob(
            id=folder.name, folder=folder, name="finished", tasks=[task], dataset_id=dataset_id, recipe=recipe
        )
        job.update_status()
        self.services.store.add(job)
        return job.id

    def follow(self, model: str) -> tuple[Any, str]:
        """Return the predictions of a model's last snapshot for its first records, and the part of the page."""
        answer = self.get(f"/models/{model}/epoch-predictions.json")
        assert answer.status_code == 200, answer.text
        part = self.get(f"/models/{model}/epoch-predictions")
        assert part.status_code == 200
        return answer.get_json()["epochs"][-1]["predictions"], part.text

    def evaluate(self, model: str, **fields: Any) -> tuple[dict[str, Any], str]:
        """Evaluate a model, and return the latest result as JSON and its page."""
        answer = self.client.post(f"/models/{model}/evaluation", data=fields)
        assert answer.status_code == 302, answer.text
        self.wait(lambda: self.json(f"/models/{model}/evaluation.json")["state"] != "running")
        body = self.json(f"/models/{model}/evaluation.json")
        assert body["state"] == "done", body["error"]
        result: dict[str, Any] = body["evaluations"][0]
        return result, self.get(f"/models/{model}/evaluation").text

    def compare_with_worse(self, model: str, dataset: str) -> tuple[dict[str, Any], str]:
        """Compare an evaluated model with a worse one, which is the first, and return the pair as JSON and the page.

        The worse one has larger errors, and different predictions for every other record.
        """
        other = self.finished_model(dataset)
        folder = self.services.store.folder
        copy = folder / other / evaluation.FOLDER
        shutil.copytree(folder / model / evaluation.FOLDER, copy)
        for path in copy.glob(f"*/{evaluation.ERRORS_FILE}"):
            np.save(path, np.load(path) + np.float32(0.125))
        for path in copy.glob(f"*/{evaluation.PREDICTIONS_FILE}"):
            predictions = np.load(path)
            predictions[::2] = np.roll(predictions[::2], 1, axis=1)
            np.save(path, predictions)
        query = f"first={other}&second={model}"
        body = self.json(f"/models/compare.json?{query}")["pair"]
        return body, self.get(f"/models/compare?{query}").text

    def close(self) -> None:
        for job in self.services.store.all(Job):
            self.services.scheduler.abort(job)
        self.wait(lambda: not list(self.services.store.running()))
        self.services.stop()


def open_site(
    settings: Settings,
    executor: Executor | None = None,
    clusters: Mapping[str, ClusterExecutor] | None = None,
) -> Site:
    settings.data_roots[0].mkdir(exist_ok=True)
    if isinstance(executor, SharedExecutor):
        executor = executor.for_site()
    app = create_app(settings, executor=executor, clusters=clusters)
    load_kinds()
    app.testing = True
    app.jinja_env.bytecode_cache = COMPILED_TEMPLATES
    app.config["PROPAGATE_EXCEPTIONS"] = False
    app.wsgi_app = STALLS.watch.wrap(_whole(app.wsgi_app))
    site = Site(app, app.test_client(), settings.data_roots[0])
    site.services.devices = Devices(ask_driver_once)
    return site


def open_idle_site(settings: Settings) -> Site:
    """Return a site that never starts a job, with a folder of images; stop its services at the end."""
    bars(settings.data_roots[0] / "bars", each=2)
    app = create_app(settings, start=False)
    app.testing = True
    app.config["PROPAGATE_EXCEPTIONS"] = False
    return Site(app, app.test_client(), settings.data_roots[0])


def _whole(app: Any) -> Any:
    """Wrap ``app`` so that responses are complete before the test continues, and that none of them repeats a key."""

    def run(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        media_types: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], *arguments: Any) -> Any:
            media_types.extend(value for name, value in headers if name == "Content-Type")
            return start_response(status, headers, *arguments)

        with contextlib.closing(ClosingIterator(app(environ, start))) as answer:
            pieces = list(answer)
        # Files of jobs are sent as they are, also damaged ones.
        is_made = not environ["PATH_INFO"].startswith("/files/")
        if media_types == ["application/json"] and is_made and (body := b"".join(pieces)):
            json.loads(body, object_pairs_hook=_need_unique_keys)
        return pieces

    return run


def _need_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    assert len(unique) == len(pairs), f"repeated keys: {[key for key, _ in pairs]}"
    return unique


def bars(folder: Path, each: int = 8) -> Path:
    """Create three classes of small images that the simplest network can distinguish."""
    random = np.random.default_rng(0)
    for number, name in enumerate(("left", "middle", "right")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(each):
            pixels = random.integers(0, 60, (16, 16, 3), np.uint8)
            pixels[:, 5 * number : 5 * number + 5] += 180
            Image.fromarray(pixels).save(folder / name / f"{index:02}.png")
    return folder
