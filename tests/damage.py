"""A folder with jobs of every kind and status, ways to damage one of them, and invariants that must hold."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gevent
from hypothesis import strategies as st

from digits.core import events, saved_state, snapshot_list
from digits.core.events import EventLog
from digits.core.files import write_json
from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import EarlyStopping, Train
from digits.core.resume_point import ResumePoint
from digits.core.saved_state import STATE_FILE
from digits.core.snapshot_list import Snapshot
from digits.core.status import Status
from digits.core.task import Failure, Handle, Task
from digits.kinds.jobs import JOB_TYPES
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.pools import Executors
from digits.runtime.scheduler import Scheduler
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRunner
from tests.site import Site

DATASET, BROKEN = "20260101-000000-da7a5e", "20260101-000001-bad5e7"
TRAINED, FAILED, RUNNING, WAITING = (f"20260101-00000{number}-abcd0{number}" for number in range(2, 6))
# Damaged one at a time; the others must not be affected.
VICTIMS = (BROKEN, TRAINED, FAILED, RUNNING)
HEALTHY = {DATASET: "Done", WAITING: "Done"}
ROUNDS = 4
# A round may take less than a task on a busy machine.
PATIENCE_SECONDS = 5


def make_jobs(site: Site, folder: Path) -> None:
    """Fill ``folder`` with two datasets, and with models that are trained, failed, running and waiting."""
    made = site.dataset(folder_val="")
    assert site.wait_for_end(made) == "Done"
    for job_id in (DATASET, BROKEN):
        shutil.copytree(site.services.store.folder / made, folder / job_id)
        path = folder / job_id / "job.json"
        path.write_text(path.read_text().replace(made, job_id))
    handle: Handle = {"boot": "of long ago", "pid": 12345, "began": 100, "run": 1}
    ends = {TRAINED: Status.DONE, FAILED: Status.ERROR, RUNNING: None, WAITING: None}
    for job_id, end in ends.items():
        task = Task(name="train", title="Train the network")
        if job_id != WAITING:
            task.handle, task.devices = handle, ["cpu"]
            task.move(Status.RUN)
        if end:
            task.move(end)
        if end is Status.ERROR:
            frame: events.Frame = {
                "file": "network.py",
                "line": 3,
                "function": "loss",
                "code": "raise",
                "own": True,
            }
            task.failure = Failure("Wrong shape.", "Look at line 3.", 3, [frame])
        job = ModelJob(
            id=job_id,
            folder=folder / job_id,
            name=f"model {job_id}",
            owner="ada",
            tasks=[task],
            dataset_id=DATASET,
            recipe=Train(
                dataset=str(folder / DATASET),
                batch_size=4,
                weights="/a/snapshot_1.ckpt",
                early_stopping=EarlyStopping(metric="loss", patience=2.5),
                freeze=["conv*"],
            ),
            summary=Summary(sparkline=[3.0, 2.0, 1.5], last_accuracy=91.25),
        )
        job.update_status()
        (job.folder / "train").mkdir(parents=True)
        job.save()
        _write_products(job)


def _write_products(job: ModelJob) -> None:
    job.network_path.write_text("class UserModel(Tower):\n    pass\n")
    if job.id == WAITING:
        return
    task_folder = job.task_folder(job.tasks[0])
    job.recipe.save(task_folder)
    (task_folder / "output.log").write_text("step 1\nstep 2\n")
    log = EventLog(task_folder / "events.jsonl")
    log.append(*_story())
    if job.id == TRAINED:
        log.append(events.Finished({"seed": 7}))
        write_json(task_folder / "exit.json", {"code": 0, "signal": None, "at": time.time(), "run": 1})
    log.close()
    task = Task(name="train", title="Train the network")
    task.read_events(task_folder / "events.jsonl")
    saved_state.save(task, task_folder)
    for name in ("snapshot_1.ckpt", "resume_8.ckpt"):
        for ending in ("index", "data-00000-of-00001"):
            (job.folder / f"{name}.{ending}").write_bytes(b"weights")
    validated = Snapshot(1.0, "snapshot_1.ckpt", {"loss": 0.5, "accuracy": 0.75})
    snapshot_list.append(job.folder, validated, "accuracy")
    ResumePoint(
        snapshot="resume_8.ckpt", step=8, epoch=0.5, seed=7, records=24, step_records=4, watched={"early": {}}
    ).save(job.folder)


def _story() -> list[events.Event]:
    return [
        events.InputPrepared("train", "resident", 24, 5000, 10**9, 10**10),
        events.Built([{"name": "out", "type": "Dense", "shape": [None, 3], "parameters": 99}], 99),
        events.WeightsLoaded("snapshot_1.ckpt", {"a": "b"}, ["c"], {"d": "3 and 4"}, [], [], []),
        events.Warned("This is slow."),
        *(
            events.Measured("train", step, step / 8, {"loss": 1 / step, "accuracy": 0.5})
            for step in range(1, 9)
        ),
        events.Measured("val", 8, 1.0, {"loss": 0.5, "accuracy": 0.75}),
        events.Progressed(0.5, 12.0, "Training"),
        events.Saved(1.0, 8, "snapshot_1.ckpt"),
        events.PhaseChanged(3, 1.0),
        events.BestSnapshotChanged(1.0, "loss", 0.5),
        events.UsageSampled(50.0, 10**9, "CPU", []),
    ]


# Damage

EXTREMES: list[Any] = [
    10**400, -(10**400), 10**30, 2**63, -1, 0, 1.5, 1e308, -1e308, float("nan"), float("inf"), True, None,
    "", "x" * 100_000, "\ud800", "\udcff\x00\n", "../../../etc/passwd", "/etc/passwd", "NaN", "🎉", "R", "D",
    [], {}, [[]], [None], {"": None}, [10**400], {"a": {"b": [1e308]}},
]  # fmt: skip
_DEEP = "[" * 400 + "]" * 400
_VERY_DEEP = "[" * 100_000 + "]" * 100_000


@dataclasses.dataclass(frozen=True)
class Damage:
    """A modification of the file ``name`` in the folder of job ``victim``."""

    victim: str
    name: str
    how: str
    apply: Callable[[Path], None]

    def __repr__(self) -> str:
        return f"{self.victim}/{self.name}: {self.how}"


def damages(jobs: Path) -> st.SearchStrategy[Damage]:
    """Damage to any file that the server reads in a victim's folder below ``jobs``."""
    names = [
        (victim, path.relative_to(jobs / victim).as_posix())
        for victim in VICTIMS
        for path in sorted((jobs / victim).rglob("*"))
        if path.is_file()
    ]
    structured = [item for item in names if item[1].endswith((".json", ".jsonl"))]
    # A job's code may also create any of these.
    forged = [(RUNNING, "train/exit.json"), (BROKEN, "snapshots.jsonl"), (RUNNING, "train/output.9.log")]
    one_field = st.sampled_from(structured).flatmap(lambda item: _field_damage(jobs, *item))
    whole_file = st.sampled_from(names + forged).flatmap(lambda item: _file_damage(*item))
    return st.one_of(one_field, one_field, whole_file)


@st.composite
def _field_damage(draw: st.DrawFn, jobs: Path, victim: str, name: str) -> Damage:
    content = (jobs / victim / name).read_text()
    lines = list(filter(None, content.splitlines())) if name.endswith("l") else []
    number = draw(st.integers(0, len(lines) - 1)) if lines else 0
    body = json.loads(lines[number] if lines else content)
    is_sealed = name.endswith(STATE_FILE)
    body = body["saved"] if is_sealed else body
    place = draw(st.sampled_from(_places(body)))
    value = draw(st.sampled_from([*EXTREMES, _DEEP, _VERY_DEEP, "removed"]))

    def apply(path: Path) -> None:
        # Values inserted into the JSON verbatim, however deeply nested.
        text = json.dumps(_replaced(body, place, "MARK" if value in (_DEEP, _VERY_DEEP) else value))
        text = text.replace('"MARK"', str(value)) if value in (_DEEP, _VERY_DEEP) else text
        text = _sealed(text) if is_sealed else text
        path.write_text("\n".join([*lines[:number], text, *lines[number:]]) + "\n" if lines else text)

    return Damage(victim, name, f"{place} = {str(value)[:30]!r}", apply)


def _sealed(text: str) -> str:
    """The content of a file with a checksum, as a network could forge it."""
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f'{{"sha256": "{digest}", "saved": {text}}}'


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] + [place for name, item in inner for place in _places(item, (*here, name))]


def _replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = value.copy()
    if new == "removed" and len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = _replaced(copy[place[0]], place[1:], new)
    return copy


@st.composite
def _file_damage(draw: st.DrawFn, victim: str, name: str) -> Damage:
    how = draw(st.sampled_from(sorted(_FILE_DAMAGES)))
    seed = draw(st.integers(0, 2**32))
    return Damage(victim, name, f"{how} {seed}", lambda path: _FILE_DAMAGES[how](path, seed))


def _flip(path: Path, seed: int) -> None:
    data = bytearray(_content(path))
    for number in range(1 + seed % 8 if data else 0):
        place = hash((seed, number)) % (8 * len(data))
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _in_place_of(make: Callable[[Path], Any]) -> Callable[[Path, int], None]:
    def replace(path: Path, seed: int) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return replace


_FILE_DAMAGES: dict[str, Callable[[Path, int], Any]] = {
    "bits flipped": _flip,
    "cut short": lambda path, seed: path.write_bytes(_content(path)[: seed % (len(_content(path)) + 1)]),
    "zeros": lambda path, seed: path.write_bytes(bytes(len(_content(path)))),
    "noise": lambda path, seed: path.write_bytes(seed.to_bytes(5, "big") * 100),
    "grown": lambda path, seed: path.write_bytes(_content(path) * 2),
    "removed": lambda path, seed: path.unlink(missing_ok=True),
    "a folder": _in_place_of(os.mkdir),
    "a pipe": _in_place_of(os.mkfifo),
    "a link": _in_place_of(lambda path: path.symlink_to("/etc/passwd")),
    "a link to itself": _in_place_of(lambda path: path.symlink_to(path.name)),
}


# Invariants


def starts_at_once(folder: Path, run: int) -> Handle:
    """Replace task processes: every task finishes immediately."""
    log = EventLog(folder / "events.jsonl")
    log.append(events.Finished())
    log.close()
    write_json(folder / "exit.json", {"code": 0, "signal": None, "run": run})
    return {"boot": "now", "pid": 0, "began": None, "run": run}


def check(
    site: Site, jobs: Path, victims: Iterable[str], look: Callable[[], object] = lambda: None
) -> list[str]:
    """Start a server on ``jobs``, request all pages, call ``look``, and return all problems."""
    parts = site.services
    parts.store = Store(jobs, JOB_TYPES)
    try:
        parts.store.load()
        parts.executor.ledger = DeviceLedger({"dataset": 1, "training": 1})
        parts.runner = TaskRunner(Executors(parts.executor), may_run=parts.store.maintain)
        parts.scheduler = Scheduler(parts.store, parts.runner, report=parts.report)
        parts.scheduler.start()
        for _ in range(ROUNDS):
            parts.runner.tick()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _wrong_states(site) and time.monotonic() < deadline:
            gevent.sleep(0.02)
            parts.runner.tick()
        look()
        wrong = [*_wrong_states(site), *_wrong_answers(site, sorted({*victims, *HEALTHY}))]
        return [*wrong, *_wrong_deletions(site, victims)]
    finally:
        parts.scheduler.stop()
        parts.runner.close()
        parts.store.close()


def _wrong_states(site: Site) -> list[str]:
    found = {job.id: job.status.title for job in site.services.store.all(Job)}
    wrong = [
        f"{job_id} is {found.get(job_id)}, not {status}"
        for job_id, status in HEALTHY.items()
        if found.get(job_id) != status
    ]
    left = [job.id for job in site.services.store.running()]
    return wrong + [f"{job_id} never ends" for job_id in left if job_id not in HEALTHY]


def _wrong_answers(site: Site, asked: Iterable[str]) -> list[str]:
    wrong = []
    for path in [*_LISTS, *(path for job_id in asked for path in _paths(job_id))]:
        answer = site.get(path)
        is_healthy = any(job_id in path for job_id in HEALTHY)
        if answer.status_code >= 500 or (is_healthy and answer.status_code >= 400):
            wrong.append(f"{path}: {answer.status_code}")
    page = site.get("/").text
    return wrong + [f"the home page lacks {job_id}" for job_id in (*HEALTHY, *VICTIMS) if job_id not in page]


_LISTS = ("/?q=model&sort=last_accuracy", "/?sort=bytes", "/index.json", "/completed_jobs.json")


def _paths(job_id: str) -> list[str]:
    """Return the URLs of a job's pages and their JSON: all for a victim, the main ones for a healthy job."""
    kind = "datasets" if job_id in (DATASET, BROKEN) else "models"
    paths = [f"/{kind}/{job_id}", f"/{kind}/{job_id}.json", f"/{kind}/{job_id}/status"]
    if job_id in HEALTHY:
        return paths
    paths += [f"/jobs/{job_id}", f"/jobs/{job_id}/table_data.json", f"/jobs/{job_id}/output"]
    paths += [f"/files/{job_id}/job.json", f"/{kind}/images/classification/new?clone={job_id}"]
    if kind == "datasets":
        paths += [f"/datasets/summary?job_id={job_id}", f"/datasets/{job_id}/records/train/0"]
        paths += [f"/datasets/images/classification/explore?job_id={job_id}&db=train&size=10"]
        paths += [f"/models/images/classification/new?dataset={job_id}"]
    else:
        paths += [f"/models/{job_id}/metrics.json", f"/models/{job_id}/metrics.json?after=5"]
        paths += [f"/models/{job_id}/metrics.csv", f"/models/{job_id}/download.zip"]
    return paths


def _wrong_deletions(site: Site, victims: Iterable[str]) -> list[str]:
    wrong = []
    for job_id in set(victims):
        status = site.client.delete(f"/jobs/{job_id}").status_code
        if status != 200 or (site.services.store.folder / job_id).exists():
            wrong.append(f"{job_id} was not deleted: {status}")
    return wrong
