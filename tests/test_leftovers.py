"""The check for leftover processes and files detects them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests import leftovers
from tests.leftovers import Leftovers
from tests.shared_executor import ON_CPU, SharedExecutor
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.integration

DETACHES = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Leftovers:
    monkeypatch.setattr(leftovers, "LEAVE_SECONDS", 0.1)
    return Leftovers.now()


def test_a_clean_test_has_no_leftovers(before: Leftovers, tmp_path: Path) -> None:
    subprocess.run(["true"], check=True)
    (tmp_path / "closed").write_text("")
    assert before.since(shared=False) == before.since(shared=True) == []


def test_a_child_process_is_detected_and_ended(before: Leftovers) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        assert before.since(shared=True) == ["process sleep 600"]
        assert process.wait() < 0


def test_a_detached_process_is_detected_unless_a_shared_fixture_may_own_it(before: Leftovers) -> None:
    subprocess.run([sys.executable, "-c", DETACHES], check=True)
    assert before.since(shared=True) == []
    assert before.since(shared=False) == ["process sleep 600"]
    assert before.since(shared=False) == []


def test_a_task_in_the_shared_fork_server_is_detected(
    before: Leftovers, executor: SharedExecutor, tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text('{"task": "nothing"}')
    handle = executor.start(tmp_path, ON_CPU)
    os.kill(handle["pid"], signal.SIGSTOP)
    supervisor = psutil.Process(handle["pid"])
    assert before.since(shared=False) != []
    wait_until(lambda: has_ended(supervisor))
    assert executor.is_warm()


def test_open_and_temporary_files_are_detected(before: Leftovers, tmp_path: Path) -> None:
    with open(tmp_path / "open", "w"), tempfile.NamedTemporaryFile() as temporary:
        found = before.since(shared=True)
    assert f"open file {tmp_path / 'open'}" in found
    assert f"temporary file {temporary.name}" in found
    assert before.since(shared=True) == []


def test_pipes_are_detected_unless_a_shared_fixture_may_own_them(before: Leftovers) -> None:
    ends = os.pipe()
    try:
        assert before.since(shared=True) == []
        assert [name.partition(":")[0] for name in before.since(shared=False)] == ["open file pipe"] * 2
    finally:
        for end in ends:
            os.close(end)
    assert before.since(shared=False) == []
