"""The rules in the scripts of the pages, tested by Node.js: each `*.test.js` file tests the script of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.node import run_node

pytestmark = pytest.mark.integration


def test_the_scripts_follow_their_rules() -> None:
    answer = run_node("--test", *sorted(Path(__file__).parent.glob("*.test.js")))
    assert answer.returncode == 0, answer.stdout
