"""A saved state and the rest of the log yield the same state as the complete log; invalid files are ignored."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core import events, saved_state
from digits.core.files import UnreadableFile
from digits.core.metrics import series as metrics_module
from digits.core.saved_state import STATE_FILE
from digits.core.status import Status
from digits.core.task import EVENTS_FILE, Task, TaskState

TEXT = st.text(max_size=5)
VALUES = st.dictionaries(st.sampled_from("abc"), st.floats(), max_size=3)
EVENTS = st.one_of(
    st.builds(
        events.Measured,
        st.sampled_from(["train", "val"]),
        st.integers(0, 60),
        st.floats(0, 9),
        VALUES,
        at=st.floats(0, 1e9),
    ),
    st.builds(events.Resumed, st.integers(0, 60), st.just(0.5), at=st.floats(0, 1e9)),
    st.builds(events.PhaseChanged, st.integers(0, 60), st.floats(0, 9)),
    st.builds(events.Progressed, st.floats(0, 1), st.none() | st.floats(0, 9), TEXT),
    st.builds(events.Counted, st.just("train"), st.just(["a", "b"]), st.just([1, 2])),
    st.builds(events.Skipped, TEXT, TEXT),
    st.builds(events.Warned, TEXT),
    st.builds(events.Built, st.just([{"name": "n", "type": "t", "shape": [None, 3], "parameters": 9}]), st.just(9)),
    st.builds(events.InputPrepared, st.just("train"), TEXT, *[st.integers(0, 9)] * 4),
    st.builds(events.WeightsLoaded, TEXT, st.just({"a": "b"}), *[st.just(["c"])] , st.just({}), *[st.just([])] * 3),
    st.builds(events.Saved, st.floats(0, 9), st.just(1), st.sampled_from("pq")),
    st.builds(events.Removed, st.floats(0, 9), st.sampled_from("pq")),
    st.builds(events.UsageSampled, st.just(0.5), st.just(7), gpus=st.just([{"index": 0}])),
    st.builds(events.Failed, TEXT, TEXT),
    st.builds(events.Finished, st.just({"seed": 2**200})),
)  # fmt: skip
STORY: list[events.Event] = [
    events.Measured("train", 1, 0.5, {"loss": 1.0}, at=1.0),
    events.Measured("train", 2, 1.0, {"loss": math.nan, "accuracy": 0.5}, at=2.0),
    events.Warned("slow", at=3.0),
]


@pytest.fixture(autouse=True, scope="module")
def few_points() -> Iterator[None]:
    """Lower the limit so that short curves are thinned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metrics_module, "MAX_CHART_POINTS", 8)
        yield


def write(folder: Path, happened: list[events.Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EVENTS_FILE).write_bytes(b"".join(map(events.encode, happened)))


def append(folder: Path, happened: list[events.Event]) -> None:
    with open(folder / EVENTS_FILE, "ab") as log:
        log.write(b"".join(map(events.encode, happened)))


def read(folder: Path) -> Task:
    task = Task(name="train", title="Train")
    task.read_events(folder / EVENTS_FILE)
    return task


def restored(folder: Path, run: int = 1, log_start: int = 0) -> Task:
    task = Task(name="train", title="Train", log_start=log_start)
    for _ in range(run - 1):
        for status in (Status.RUN, Status.ERROR, Status.INIT):
            task.move(status)
    saved_state.restore(task, folder)
    return task


def saved_folder(tmp_path: Path, happened: list[events.Event] | None = None) -> Path:
    folder = tmp_path / "job" / "train"
    write(folder, STORY if happened is None else happened)
    saved_state.save(read(folder), folder)
    return folder


@settings(deadline=None)
@given(before=st.lists(EVENTS, max_size=40), after=st.lists(EVENTS, max_size=20))
def test_a_saved_state_and_the_rest_of_the_log_yield_the_complete_state(
    tmp_path_factory: pytest.TempPathFactory, before: list[events.Event], after: list[events.Event]
) -> None:
    folder = saved_folder(tmp_path_factory.mktemp("folder"), before)
    append(folder, after)
    task = restored(folder)
    assert task.state.cursor == task.saved_cursor == sum(len(events.encode(event)) for event in before)
    happened, is_complete = task.read_events(folder / EVENTS_FILE)
    assert is_complete and len(happened) == len(after)
    assert task.state == read(folder).state


def test_a_state_saved_after_any_time_slice_is_readable(tmp_path: Path) -> None:
    """A deadline in the past ends each time slice after one line."""
    folder = tmp_path / "job" / "train"
    write(folder, STORY)
    task, turns = Task(name="train", title="Train"), 0
    while not task.read_events(folder / EVENTS_FILE, deadline=0.0)[1]:
        turns += 1
        saved_state.save(task, folder)
        assert restored(folder).state == task.state
    assert turns == len(STORY)
    assert task.state == read(folder).state


@settings(deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_ignored(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = saved_folder(tmp_path_factory.mktemp("folder"))
    right = restored(folder).state
    content = bytearray((folder / STATE_FILE).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    (folder / STATE_FILE).write_bytes(content)
    assert restored(folder).state in (TaskState(), right)


@pytest.mark.parametrize("size", range(0, 200, 20))
def test_a_shortened_log_is_read_from_its_start(tmp_path: Path, size: int) -> None:
    folder = saved_folder(tmp_path)
    os.truncate(folder / EVENTS_FILE, size)
    assert restored(folder).state == TaskState()
    append(folder, [events.Warned("another run")] * 9)
    assert restored(folder).state == TaskState()


@pytest.mark.parametrize("place", range(3))
def test_another_log_is_read_from_its_start(tmp_path: Path, place: int) -> None:
    folder = saved_folder(tmp_path)
    other = list(STORY)
    other[place] = msgspec.structs.replace(other[place], at=9.0)
    write(folder, other)
    assert restored(folder).state == TaskState()
    (folder / EVENTS_FILE).unlink()
    assert restored(folder).state == TaskState()


def test_the_end_of_an_earlier_run_does_not_apply_to_a_new_one(tmp_path: Path) -> None:
    folder = saved_folder(tmp_path, [*STORY, events.Failed("disk full")])
    log_start = (folder / EVENTS_FILE).stat().st_size
    assert restored(folder).state.failure
    again = restored(folder, run=2, log_start=log_start)
    assert again.state.failure is None and again.state.warnings == ["slow"]
    write(folder, [*STORY, events.Finished()])
    saved_state.save(read(folder), folder)
    assert restored(folder, run=2, log_start=log_start).state == TaskState()


def test_a_state_that_covers_the_start_of_another_run_is_ignored(tmp_path: Path) -> None:
    folder = saved_folder(tmp_path)
    assert restored(folder, run=2, log_start=10).state == TaskState()


def test_another_version_reads_the_log_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved_folder(tmp_path)
    monkeypatch.setattr(saved_state, "__version__", "7.99")
    assert restored(folder).state == TaskState()


def test_a_state_is_not_saved_through_a_link(tmp_path: Path) -> None:
    folder = saved_folder(tmp_path)
    task = read(folder)
    (folder / STATE_FILE).unlink()
    os.rename(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnreadableFile):
        saved_state.save(task, folder)
    assert os.listdir(tmp_path / "elsewhere") == [EVENTS_FILE]


def test_a_huge_state_is_not_saved(tmp_path: Path) -> None:
    folder = saved_folder(tmp_path)
    (folder / STATE_FILE).unlink()
    append(folder, [events.Counted("train", ["x" * 600_000], [1])])
    saved_state.save(read(folder), folder)
    assert not (folder / STATE_FILE).exists()


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] + [place for name, item in inner for place in _places(item, (*here, name))]


@settings(deadline=None)
@given(data=st.data())
def test_a_forged_file_yields_a_usable_state_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A network can write a file with a valid checksum."""
    folder = saved_folder(tmp_path_factory.mktemp("folder"), [*STORY, *(STORY[0:1] * 3)])
    saved = json.loads((folder / STATE_FILE).read_text())["saved"]
    place = data.draw(st.sampled_from([place for place in _places(saved) if place]))
    target = saved
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = data.draw(
        st.none()
        | st.booleans()
        | st.integers(-(2**64), 2**64)
        | st.floats(-9, 9)
        | st.sampled_from(["", [], {}, [1], [None], [2**70], [3, 2, 1, 0], {"loss": [0.5]}])
    )
    body = json.dumps(saved).encode()
    digest = hashlib.sha256(body).hexdigest()
    (folder / STATE_FILE).write_bytes(b'{"sha256":"%s","saved":%s}' % (digest.encode(), body))
    task = restored(folder)
    append(folder, [events.Measured("train", 2**40, 1.0, {"loss": 0.5}), events.Resumed(1, 0.5), *STORY])
    task.read_events(folder / EVENTS_FILE)
    json.dumps(events.for_browser(msgspec.to_builtins(task.state.metrics.as_json())), allow_nan=False)
    task.state.metrics.sparkline()
    saved_state.save(task, folder)
