"""The log of refusals counts those of a flood instead of writing a line for each."""

from __future__ import annotations

import logging

import gevent
import pytest

from digits.web.security.gate import Gate
from digits.web.security.refusal_log import MAX_LINES, RefusalLog
from tests.web.security.test_gate import App, through


def test_a_flood_is_logged_as_some_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refusals = RefusalLog(logging.getLogger("refusals"), period_seconds=0.01)
    for number in range(MAX_LINES + 1234):
        refusals.add(f"{number}: 403")
    gevent.sleep(0.02)
    refusals.add("later: 403")
    gevent.sleep(0.02)
    lines = [f"{number}: 403" for number in range(MAX_LINES)]
    # Gates of earlier tests may still report how much they refused.
    messages = [record.getMessage() for record in caplog.records if record.name == "refusals"]
    assert messages == [*lines, "1,234 more refused in 0 s", "later: 403"]


def test_the_gate_does_not_log_every_refusal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gate = Gate(App())
    answers = [through(gate, headers={"Host": "elsewhere"}).status_code for _ in range(3 * MAX_LINES)]
    assert set(answers) == {421}
    assert len([line for line in caplog.messages if ": 421 " in line]) == MAX_LINES
