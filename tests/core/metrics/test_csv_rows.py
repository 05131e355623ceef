"""The CSV table of all metrics is exact, even if the training was resumed."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core import events
from digits.core.events import Measured, Resumed
from digits.core.metrics import csv_rows

STEPS = st.integers(0, 8)
EVENTS = st.one_of(
    st.builds(
        Measured,
        st.sampled_from(["train", "val", "other"]),
        STEPS,
        st.just(0.5),
        st.dictionaries(st.sampled_from(["a", "b", ""]), st.floats(), max_size=3),
    ),
    st.builds(Resumed, STEPS, st.just(0.5)),
    st.just(events.Progressed(0.5)),
)


def table(log: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(csv_rows.table(log)))))


def expected(happened: list[events.Event]) -> list[dict[str, str]]:
    """Return the valid rows, computed naively: later events remove earlier rows from a list."""
    stages: dict[str, list[Measured]] = {"train": [], "val": []}
    for event in happened:
        if isinstance(event, Resumed):
            for name, rows in stages.items():
                stages[name] = [row for row in rows if row.step <= event.step]
        elif isinstance(event, Measured) and event.stage in stages:
            earlier = [row for row in stages[event.stage] if row.step < event.step]
            stages[event.stage] = [*earlier, event]
    rows = [*stages["train"], *stages["val"]]
    names = sorted({name for row in rows for name in row.values})

    def text(row: Measured) -> dict[str, str]:
        known: dict[str, Any] = {name: row.values.get(name, "") for name in names}
        cells = {"stage": row.stage, "step": row.step, "epoch": row.epoch, **known}
        return {name: str(value) for name, value in cells.items()}

    return [text(row) for row in rows]


@settings(deadline=None)
@given(happened=st.lists(EVENTS, max_size=30), one_line_each_turn=st.booleans())
def test_the_table_contains_exactly_the_valid_rows(
    tmp_path_factory: pytest.TempPathFactory, happened: list[events.Event], one_line_each_turn: bool
) -> None:
    log = tmp_path_factory.mktemp("log") / "events.jsonl"
    log.write_bytes(b"".join(map(events.encode, happened)))
    with pytest.MonkeyPatch.context() as patched:
        if one_line_each_turn:
            patched.setattr(events, "TURN_SECONDS", 0.0)
        assert table(log) == expected(happened)


def test_a_metric_without_valid_rows_has_no_column(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    rows = [Measured("train", 1, 0.1, {"loss": 1.0}), Measured("train", 2, 0.2, {"loss": 0.5, "late": 0.25})]
    log.write_bytes(b"".join(map(events.encode, [*rows, Resumed(1, 0.1)])))
    assert "".join(csv_rows.table(log)) == "stage,step,epoch,loss\ntrain,1,0.1,1.0\n"


def test_a_missing_log_has_an_empty_table(tmp_path: Path) -> None:
    assert "".join(csv_rows.table(tmp_path / "missing" / "events.jsonl")) == "stage,step,epoch\n"
