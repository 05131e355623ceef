"""Shared fixtures, and checks that tests leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from digits.core.settings import Settings
from tests.site import Site, open_site, site_settings
from tests.stalls import HANG_SECONDS, STALLS

# So tests do the same on every machine; those of a GPU ask for it.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

ROOT = Path(__file__).resolve().parent.parent
LEAVE_SECONDS = 5.0


@pytest.fixture(autouse=True, scope="session")
def record_stalls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measure how long requests block the event loop, in this process and in servers started by tests."""
    STALLS.watch.start()
    yield
    STALLS.watch.stop()
    STALLS.read_logs(tmp_path_factory.getbasetemp())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if an event loop was blocked for so long that it counts as a hang."""
    if STALLS.hangs():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(STALLS.summary())
    for label, seconds in STALLS.hangs().items():
        terminalreporter.write_line(
            f"HANG: {label} held an event loop for {seconds:.1f} s; the limit is {HANG_SECONDS:.0f} s",
            red=True,
        )


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a server that stores everything in the test's own folder and starts no standby process."""
    return site_settings(tmp_path)


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    """A whole site in this process, without a fork server."""
    opened = open_site(settings)
    yield opened
    opened.close()


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """This process's environment without settings of DIGITS, for child processes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}


@pytest.fixture
def run_clean(
    clean_environment: dict[str, str], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python in a fresh interpreter, in an empty folder, and returns what it said.

    Called with the arguments for ``python``.
    """

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**clean_environment, "PYTHONPATH": str(ROOT), **variables}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fails a test after which a child process of the tests still runs, and ends that process."""
    before = _children()
    yield
    left = _children() - before
    if not left:
        return
    _, alive = psutil.wait_procs(left, timeout=LEAVE_SECONDS)
    if not alive:
        return
    described = [" ".join(process.cmdline())[:200] for process in alive]
    for process in alive:
        for descendant in [*process.children(recursive=True), process]:
            descendant.kill()
    pytest.fail(f"processes left behind: {described}")


def _children() -> set[psutil.Process]:
    """Direct children that run. Deeper ones belong to a child, such as the parts of a browser."""
    return {child for child in psutil.Process().children() if _counts(child)}


def _counts(process: psutil.Process) -> bool:
    try:
        # Python's own tracker of shared memory lives as long as the tests do.
        return process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(
            process.cmdline()
        )
    except psutil.NoSuchProcess:
        return False
