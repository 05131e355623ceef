"""Shared fixtures, and checks that tests leave nothing behind."""

from __future__ import annotations

import os

# A process can be forked safely only while it has a single thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Starting oneDNN takes a process longer than it saves in a test. `./digits-test --all` starts it, as servers do.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import fcntl
import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import flask
import gevent
import psutil
import pytest
from hypothesis import HealthCheck, settings

from digits.core.machine import garbage_collection
from digits.core.settings import Settings
from tests import once
from tests.child import Child
from tests.leftovers import SHARED, Leftovers
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site, site_settings
from tests.stalls import HANG_SECONDS, STALLS

# Hide GPUs so that tests behave the same on every machine; GPU tests request one.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# A busy machine is slow, which is no failure. DIGITS_EXAMPLES sets the number of examples of a property.
settings.register_profile(
    "digits",
    deadline=None,
    max_examples=int(os.environ.get("DIGITS_EXAMPLES", "30")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("digits")

ROOT = Path(__file__).resolve().parent.parent

MAX_PROCESSES = 8
# Memory of a test process and the programs that it starts: TensorFlow, a server and a browser.
PROCESS_BYTES = 2 << 30

# A test that uses one of these fixtures runs a site, a server or another program.
INTEGRATION_FIXTURES = {"site", "server", "locked_server", "own_server", "run_clean", "clean_environment"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run a site, another program or TensorFlow, by their fixtures and what their module imports."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if INTEGRATION_FIXTURES.intersection(fixtures) or hasattr(getattr(item, "module", None), "open_site"):
            item.add_marker(pytest.mark.integration)
        if "tensorflow" in fixtures:
            item.add_marker(pytest.mark.tensorflow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among modules and collected tests, which stay: it takes seconds."""
    with garbage_collection.paused():
        collected = yield
    gc.freeze()
    return collected


@pytest.fixture(autouse=True, scope="session")
def record_stalls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measure how long requests block the event loop in this process and in servers started by tests."""
    gevent.get_hub()  # its descriptors belong to no module
    STALLS.watch.start()
    yield
    STALLS.watch.stop()
    STALLS.read_logs(tmp_path_factory.getbasetemp())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if an event loop was blocked for so long that it counts as a hang."""
    if _is_one_of_several(session.config):
        session.config.workeroutput["stalls"] = STALLS.seconds  # type: ignore[attr-defined]
    elif STALLS.hangs():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of test processes: one more than there are cores, because tests also wait for programs.

    ``logical`` means as many as there are cores, for tests that wait for nothing.
    """
    waiting = 0 if config.option.numprocesses == "logical" else 1
    fitting = psutil.virtual_memory().available // PROCESS_BYTES
    return max(1, min((os.cpu_count() or 1) + waiting, fitting, MAX_PROCESSES))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the measurements of a pytest-xdist worker."""
    STALLS.merge(getattr(node, "workeroutput", {}).get("stalls", {}))


def _is_one_of_several(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(STALLS.summary())
    for label, seconds in STALLS.hangs().items():
        terminalreporter.write_line(
            f"HANG: {label} held an event loop for {seconds:.1f} s; the limit is {HANG_SECONDS:.0f} s",
            red=True,
        )


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder shared by all processes of this test run."""
    return once.run_folder(tmp_path_factory, worker_id)


@pytest.fixture
def no_process_remains() -> Iterator[None]:
    before = psutil.Process().children()
    yield
    assert [child for child in psutil.Process().children() if child not in before] == []


@pytest.fixture(scope="module")
def request_in_progress() -> Iterator[None]:
    app = flask.Flask(__name__)
    app.secret_key = "for tests"
    with app.test_request_context(method="POST"):
        yield


@pytest.fixture
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a server that stores everything in the test's folder and starts no standby process."""
    return site_settings(tmp_path)


@pytest.fixture(scope="session")
def executor(temporary_folder: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedExecutor]:
    """Runs the tasks of all sites in forks of one process that has imported TensorFlow."""
    shared = SharedExecutor(log_file=tmp_path_factory.mktemp("executor") / "fork.log")
    SHARED.append(shared)
    yield shared
    SHARED.remove(shared)
    shared.close_shared()


@pytest.fixture
def site(settings: Settings, executor: SharedExecutor) -> Iterator[Site]:
    """A complete site in this process."""
    opened = open_site(settings, executor)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def tensorflow() -> None:
    """Import TensorFlow and the worker's tasks without running an operation."""
    from digits.worker import run

    run.import_programs()
    gc.collect()
    gc.freeze()  # as in the fork server: keeps the garbage collector of the children from copying shared pages


@pytest.fixture(scope="module")
def in_child(tensorflow: None) -> Iterator[Callable[..., Any]]:
    """Return a function that calls another one in a forked process, where it may use TensorFlow.

    All functions of a module are called in the same process, in which TensorFlow starts only once. They must leave no
    state behind that another one depends on.
    """
    with Child() as child:
        yield child.call


@pytest.fixture
def in_own_child(tensorflow: None) -> Callable[..., Any]:
    """Return a function like `in_child`, which calls each function in a process of its own."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        with Child() as child:
            return child.call(function, *arguments)

    return call


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """The environment for child processes, without DIGITS settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}


@pytest.fixture
def run_clean(
    clean_environment: dict[str, str], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs Python in a fresh interpreter and an empty folder, and returns its output.

    Call it with the arguments for ``python``.
    """

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**clean_environment, "PYTHONPATH": str(ROOT), **variables}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture(autouse=True, scope="session")
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep temporary files of these tests and their child processes apart from all others."""
    folder = tmp_path_factory.mktemp("tmp", numbered=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", str(folder))
        patched.setattr(tempfile, "tempdir", str(folder))
        yield


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind_by_module(temporary_folder: None) -> Iterator[None]:
    """Fail a module whose shared fixtures leave a process, connection or file behind; end that process.

    Also fail one that uses TensorFlow here instead of with `in_child`: its threads make the forks of later tests hang.
    """
    before = Leftovers.now()
    yield
    _check(before.since(shared=False))
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = eager.context_safe() if eager else None
    assert context is None or not context._initialized, "the tests of this module used TensorFlow"


@pytest.fixture(autouse=True)
def nothing_left_behind(temporary_folder: None) -> Iterator[None]:
    """Fail a test that leaves a process or file behind; end that process."""
    before = Leftovers.now()
    yield
    _check(before.since(shared=True))


def _check(left: list[str]) -> None:
    if left:
        pytest.fail("left behind: " + "; ".join(left))


@pytest.fixture
def full_disk() -> Iterator[Path]:
    """A file on a full disk. Tests take turns, because there is only one and event logs lock it."""
    with open("/dev/full") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield Path("/dev/full")
