"""The event log, with intact, damaged and truncated files."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core import events
from digits.core.metrics.series import Metrics
from digits.core.task import TaskState
from digits.web import template_filters
from tests.power_loss import Recording

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
NAMES = st.text(min_size=1, max_size=20)
NOW = st.just(1.0)
SAMPLES = st.one_of(
    st.builds(events.Progressed, st.floats(0, 1), st.none() | st.floats(0, 1e6), NAMES, at=NOW),
    st.builds(
        events.Measured,
        st.sampled_from(["train", "val"]),
        st.integers(0, 10**9),
        st.floats(0, 100),
        st.dictionaries(NAMES, NUMBERS),
        at=NOW,
    ),
    st.builds(events.Skipped, NAMES, NAMES, at=NOW),
    st.builds(events.Saved, st.floats(0, 100), st.integers(0, 10**9), NAMES, at=NOW),
    st.builds(events.Failed, NAMES, line=st.none() | st.integers(1, 100), at=NOW),
    st.builds(events.Finished, at=NOW),
)


def same(left: events.Event, right: events.Event) -> bool:
    return events.encode(left) == events.encode(right)


def test_events_wait_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)

    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        log.append(events.Warned("first"), events.Warned("second"))
        log.append(events.Warned("third"))
    assert path.read_bytes() == b""
    log.append(events.Warned("fourth"))
    log.close()
    found, _ = events.read(path)
    assert [event.message for event in found] == ["first", "second", "third", "fourth"]


def test_synced_events_survive_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job"
    job.mkdir()
    recording = Recording(job, tmp_path / "recording")
    recording.start(monkeypatch)
    (job / "train").mkdir()
    log = events.EventLog(job / "train" / "events.jsonl")
    for synchronize in (log.sync, log.close):
        log.append(events.Warned("first"), events.Warned("second"))
        written = (job / "train" / "events.jsonl").read_bytes()
        assert recording.surviving().get("train/events.jsonl") != written
        synchronize()
        assert recording.surviving()["train/events.jsonl"] == written


def test_a_log_is_not_synced_while_events_wait_for_disk_space(full_disk: Path) -> None:
    log = events.EventLog(full_disk)
    log.append(events.Warned("first"))
    for synchronize in (log.sync, log.close):
        with pytest.raises(OSError, match="No space left"):
            synchronize()


@given(st.lists(SAMPLES, max_size=8))
def test_events_survive_a_round_trip(happened: list[events.Event]) -> None:
    lines = [events.encode(event) for event in happened]
    again = [events.decode(line) for line in lines]
    assert all(
        event is not None and same(event, before) for event, before in zip(again, happened, strict=True)
    )


@settings(max_examples=40)
@given(happened=st.lists(SAMPLES, min_size=1, max_size=4), data=st.data())
def test_a_partial_line_affects_no_other_line(
    tmp_path_factory: pytest.TempPathFactory, happened: list[events.Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    whole = b"".join(events.encode(event) for event in happened)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    before, cursor = events.read(path)
    assert len(before) == complete

    log = events.EventLog(path)
    log.append(events.Warned("after the crash"))
    log.close()
    after, _ = events.read(path, cursor)
    # A line cut just before its end may still be complete.
    assert isinstance(after[-1], events.Warned)
    assert len(after) <= 2


def test_nan_and_infinity_never_reach_the_file_or_the_browser(tmp_path: Path) -> None:
    event = events.Measured("train", 1, 0.5, {"loss": math.nan, "top": math.inf, "low": -math.inf, "ok": 1.0})
    line = events.encode(event)
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = events.decode(line)
    assert isinstance(again, events.Measured)
    assert math.isnan(again.values["loss"])
    assert again.values["low"] == -math.inf
    assert events.for_browser(again.values) == {"loss": None, "top": None, "low": None, "ok": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"noise",
        b"[]",
        b'{"event": "unknown"}',
        b'{"event": "progressed"}',
        b'{"event": "progressed", "fraction": "half"}',
        b'{"event": "measured", "stage": "train", "step": 1, "epoch": 1, "values": 3}',
        b'{"event": "saved", "epoch": 1, "step": "x", "path": "p"}',
        b'{"event": ["finished"]}',
    ],
)
def test_invalid_events_are_ignored(line: bytes) -> None:
    assert events.decode(line) is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from([10**400, -(10**30), 2**63, 1e308])
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


EVENTS = list(get_args(events.AnyEvent))


@settings(max_examples=100)
@given(data=st.data(), kind=st.sampled_from(EVENTS))
def test_no_json_line_stops_the_reader(data: st.DataObject, kind: type[events.Event]) -> None:
    fields = list(kind.__struct_fields__)
    right: dict[str, Any] = {"fraction": 0.5, "stage": "train", "split": "train", "step": 1, "epoch": 1.0}
    body = {name: data.draw(JSON) for name in fields if name not in right or data.draw(st.booleans())}
    body = {
        "event": kind.__struct_config__.tag,
        **{name: right[name] for name in fields if name in right},
        **body,
    }
    event = events.decode(json.dumps(body).encode())
    if event is None:
        return
    state, metrics = TaskState(), Metrics()
    state.apply(event)
    metrics.add(event)
    json.dumps(events.for_browser(msgspec.structs.asdict(event)), allow_nan=False)
    json.dumps(metrics.as_json(), allow_nan=False)
    template_filters.duration(state.seconds_left)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"measured","at":1,"stage":"train","step":1,"epoch":1,"values":{"loss":1'
        + b"0" * 400
        + b"}}",
        b'{"event":"measured","at":1,"stage":"train","step":1' + b"0" * 400 + b',"epoch":1,"values":{}}',
        b'{"event":"measured","at":1,"stage":"train","step":1' + b"0" * 5000 + b',"epoch":1,"values":{}}',
        b'{"event":"finished","at":1,"result":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"event":"finished","at":1,"result":' + b'{"a":' * 500 + b"1" + b"}" * 501,
        b'{"event":"progressed","at":1e999,"fraction":1}',
        b'{"event":"progressed","at":1,"fraction":NaN}',
        b'{"event":"progressed","at":1,"fraction":0.5,"seconds_left":1e300}',
        b'{"event":"warned","at":1e300,"message":"m"}',
    ],
    ids=range(9),
)
def test_a_malformed_line_does_not_stop_the_reader(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line + b"\n" + events.encode(events.Warned("after it")))
    *others, last = events.read(path)[0]
    assert isinstance(last, events.Warned)
    assert [event.values for event in others if isinstance(event, events.Measured)] in ([], [{}])


def test_a_shortened_log_is_not_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(events.encode(events.Warned("one")))
    for cursor in (10**6, 2**63, 2**200):
        assert events.read(path, cursor) == ([], cursor)


def test_unknown_keys_are_ignored() -> None:
    event = events.decode(b'{"event": "warned", "message": "m", "color": "red", "at": 1.0}')
    assert event == events.Warned("m", at=1.0)


def test_reading_stops_at_the_given_offset(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)
    log.append(events.Warned("one"))
    middle = path.stat().st_size
    log.append(events.Warned("two"))
    log.close()
    happened, cursor = events.read(path, until=middle)
    assert ([event.message for event in happened if isinstance(event, events.Warned)], cursor) == (
        ["one"],
        middle,
    )


def test_a_log_that_is_not_a_regular_file_has_no_events(tmp_path: Path) -> None:
    assert events.read(tmp_path / "missing") == ([], 0)
    os.symlink("/etc/passwd", tmp_path / "link")
    assert events.read(tmp_path / "link") == ([], 0)
    os.mkfifo(tmp_path / "pipe")
    assert events.read(tmp_path / "pipe")[0] == []


def test_a_line_cut_by_a_full_disk_is_completed_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)
    write = os.write

    def full(descriptor: int, line: bytes) -> int:
        if len(line) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, line[:40])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        log.append(events.Warned("half of it is written"))
    assert events.read(path)[0] == []
    log.append(events.Failed("the disk is full"))
    log.close()
    first, second = events.read(path)[0]
    assert isinstance(first, events.Warned)
    assert isinstance(second, events.Failed)


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert not events.is_written(path)
    writer = "import sys; from pathlib import Path; from digits.core.events import EventLog; "
    writer += "log = EventLog(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", writer, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(events, "WRITER_SECONDS", 0.1)
            assert events.is_written(path)
            with pytest.raises(events.LogInUse, match="Another process"):
                events.EventLog(path)
        # A writer that is about to end is waited for.
        end = threading.Timer(0.2, process.kill)
        end.start()
        events.EventLog(path).close()
        end.join()


def test_few_reports_are_logged_in_a_week_and_none_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now)
        interval = events.ReportInterval(0.5)
        assert interval.is_due() and not interval.is_due()
        assert interval.is_due(now=True)
        count, week = 0, 7 * 24 * 3600
        while now < 1000 + week:
            elapsed = now - 1000
            assert 0.5 <= interval.current <= max(0.5, min(30.0, elapsed / 1000))
            now += interval.current
            count += interval.is_due()
    assert count < 30_000


@settings(max_examples=40, deadline=None)
@given(lines=st.lists(st.binary(max_size=60), max_size=30), data=st.data())
def test_lines_do_not_depend_on_the_block_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    """A line may be longer than the blocks in which a log is read, and than any event."""
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    warned = [events.encode(events.Warned(str(number), at=1.0)) for number in range(3)]
    long = b"x" * data.draw(st.sampled_from([0, 300_000, events.MAX_LINE_BYTES + 10, 3_000_000]))
    path.write_bytes(warned[0] + b"\n".join([*lines, long, b""]) + warned[1] + warned[2][:20])
    messages = [event.message for event in events.read(path)[0] if isinstance(event, events.Warned)]
    assert messages == ["0", "1"]
    assert events.read(path)[1] == path.stat().st_size - 20


def test_metrics_beyond_the_limit_of_a_chart_are_dropped() -> None:
    names = [f"m{number}" for number in range(events.MAX_METRICS + 10)]
    row = events.Measured("train", 1, 0.5, dict.fromkeys(names, 1.0))
    assert list(row.values) == names[: events.MAX_METRICS]
