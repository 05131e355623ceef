"""With any damage to one job's folder, the server starts, all pages respond, and no other job is affected.

``DIGITS_DAMAGE_CASES=1000 ./digits-test tests/web/test_damage.py`` sets the number of cases.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from digits.runtime import task_states
from digits.runtime.executors.local import LocalExecutor
from tests import damage
from tests.damage import Damage
from tests.site import Site, open_site, site_settings

pytestmark = pytest.mark.integration

CASES = int(os.environ.get("DIGITS_DAMAGE_CASES", "5"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    """A site whose tasks finish immediately, and a jobs folder to copy for every case."""
    folder = tmp_path_factory.mktemp("world")
    opened = open_site(site_settings(folder))
    damage.make_jobs(opened, folder / "template")
    opened.services.scheduler.stop()
    opened.services.stop()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            LocalExecutor,
            "start",
            lambda self, folder, devices, *, run=1, owned=False: damage.starts_at_once(folder, run),
        )
        patched.setattr(task_states, "SAVE_BYTES", 100)  # read and write saved states even of short logs
        yield opened, folder
    opened.services.tensorboards.stop_all()


def wrongs(world: tuple[Site, Path], *done: Damage, look: Callable[[], object] = lambda: None) -> list[str]:
    site, folder = world
    jobs = folder / "case"
    shutil.rmtree(jobs, ignore_errors=True)
    shutil.copytree(folder / "template", jobs)
    for item in done:
        path = jobs / item.victim / item.name
        if path.is_file() or not os.path.lexists(path):
            item.apply(path)
    return damage.check(site, jobs, [item.victim for item in done] or damage.VICTIMS, look)


def test_undamaged_jobs_have_no_problems(world: tuple[Site, Path]) -> None:
    assert wrongs(world) == []


def put(victim: str, name: str, content: bytes) -> Damage:
    def apply(path: Path) -> None:
        path.write_bytes(path.read_bytes() + content if name.endswith("l") else content)

    return Damage(victim, name, "put", apply)


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    "done",
    [
        put(damage.RUNNING, "train/events.jsonl", b'{"event":"measured","at":1,"stage":"train","step":9,"epoch":1,"values":{"loss":' + HUGE + b"}}\n"),
        put(damage.RUNNING, "train/events.jsonl", b'{"event":"finished","at":' + HUGE + b"}\n"),
        put(damage.RUNNING, "train/exit.json", b'{"code":0,"signal":null,"at":1e300,"run":1}'),
        put(damage.RUNNING, "train/exit.json", b'{"code":0,"signal":null,"at":-1e300,"run":1}'),
        put(damage.RUNNING, "train/exit.json", b'{"code":' + HUGE + b',"signal":' + HUGE + b',"run":1}'),
        put(damage.RUNNING, "train/exit.json", b'{"code":null,"signal":999999,"run":1}'),
        put(damage.BROKEN, "dataset.json", b'{"schema":1}'),
        Damage(damage.RUNNING, "train/exit.json", "a link to itself", lambda path: path.symlink_to(path.name)),
        Damage(damage.TRAINED, "snapshots.jsonl", "a link to itself", link_to_itself),
    ],
    ids=range(9),
)  # fmt: skip
def test_a_damaged_line_affects_only_its_job(world: tuple[Site, Path], done: Damage) -> None:
    assert wrongs(world, done) == []


def changed(victim: str, change: Any) -> Damage:
    def apply(path: Path) -> None:
        body = json.loads(path.read_text())
        change(body)
        path.write_text(json.dumps(body))

    return Damage(victim, "job.json", "changed", apply)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(tasks=[]),
        lambda body: body["tasks"][0].update(handle="a string"),
        lambda body: body["tasks"][0].update(handle={"boot": "b", "pid": -1, "began": 1}),
        lambda body: body["tasks"][0].update(name="../../elsewhere"),
        lambda body: body["history"][0].__setitem__(1, 1e300),
        lambda body: body["history"][0].__setitem__(1, -1e300),
        lambda body: body["tasks"][0]["history"][0].__setitem__(1, 1e300),
        lambda body: body.update(dataset_id=body["id"]),
        lambda body: body.update(device="next:many"),
        lambda body: body.update(notes=[1]),
    ],
    ids=range(10),
)
def test_an_invalid_job_is_shown_as_damaged(world: tuple[Site, Path], change: Any) -> None:
    assert wrongs(world, changed(damage.RUNNING, change), changed(damage.FAILED, change)) == []


def test_an_unreadable_folder_is_shown_as_damaged(
    world: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, which can read every file."""

    def lock(path: Path) -> None:
        for name in ("listdir", "open"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name), path.parent))

    assert wrongs(world, Damage(damage.TRAINED, "job.json", "locked", lock)) == []


def refusing(known: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def refuse(path: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(path, (str, Path)) and Path(path).is_relative_to(folder):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return known(path, *arguments, **keywords)

    return refuse


def test_a_damaged_job_page_names_the_damage(world: tuple[Site, Path]) -> None:
    site, _ = world
    texts: dict[str, str] = {}

    def look() -> None:
        page = site.get(f"/models/{damage.TRAINED}", headers={"Accept": "text/html"}, follow_redirects=True)
        texts["page"], texts["home"] = page.text, site.get("/").text
        texts["json"] = site.get(f"/models/{damage.TRAINED}.json").get_json()["error"]["message"]
        texts["dataset"] = site.get(f"/datasets/{damage.BROKEN}").text

    done = changed(damage.TRAINED, lambda body: body["recipe"].update(epochs="many"))
    assert wrongs(world, done, put(damage.BROKEN, "dataset.json", b"{}"), look=look) == []
    for text in texts.values():
        assert "is damaged:" in text
    for name in ("page", "home", "json"):
        assert "Expected `float`, got `str` - at `$.recipe.epochs`" in texts[name]
    assert "dataset.json: " in texts["dataset"]


@settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # cases are small, and shrinking takes minutes
)
@given(data=st.data())
def test_random_damage(world: tuple[Site, Path], data: st.DataObject) -> None:
    done = data.draw(st.lists(damage.damages(world[1] / "template"), min_size=1, max_size=3))
    assert wrongs(world, *done) == [], done
