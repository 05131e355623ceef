"""The proxy in front of TensorBoard, and the processes behind it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request, Response

from digits.core.errors import NotFound, Unavailable
from digits.runtime.tensorboards import PROGRAM as REAL
from digits.runtime.tensorboards import TensorBoards
from digits.web.services.tensorboard import proxy
from tests.raw_http import PROGRAM, SmallServer, small_server
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.integration

FAKE = Path(__file__).resolve().parents[2] / "fake_tensorboard.py"
PAGE = {"Accept": "text/html"}


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    folder = tmp_path / "tb"
    folder.mkdir()
    return folder


@pytest.fixture
def boards() -> Iterator[TensorBoards]:
    """TensorBoards that start a fake TensorBoard."""
    running = TensorBoards(program=FAKE)
    yield running
    running.stop_all()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TensorBoards, Path]]:
    """A real TensorBoard and its log folder, which holds one run with one scalar."""
    folder = tmp_path_factory.mktemp("real") / "tb"
    write_scalar(folder)
    running = TensorBoards()
    ask(running, folder).close()
    yield running, folder
    running.stop_all()


# Run in a separate process because TensorBoard would import TensorFlow here.
WRITE_SCALAR = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
value = summary_pb2.Summary.Value(tag="loss", simple_value=0.5)
writer.add_event(event_pb2.Event(step=3, wall_time=1.0, summary=summary_pb2.Summary(value=[value])))
writer.close()
"""


def write_scalar(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITE_SCALAR, str(folder)], check=True)


def ask(boards: TensorBoards, logdir: Path, path: str = "", job: str = "job", **request: Any) -> Response:
    built = Request(EnvironBuilder(f"/digits/tensorboard/{job}/{path}", **request).get_environ())
    answer = proxy(boards, job, logdir, path, built, f"/digits/tensorboard/{job}/", page_seconds=0.1)
    if path != "large":
        answer.get_data()
        answer.close()
    return answer


def received(answer: Response) -> dict[str, Any]:
    """Return the request as the fake TensorBoard received it."""
    assert answer.status_code == 200
    return dict(json.loads(answer.get_data()))


# The real TensorBoard


def test_real_pages_are_served(real: tuple[TensorBoards, Path]) -> None:
    boards, folder = real
    page = ask(boards, folder)
    assert page.status_code == 200 and b"TensorBoard" in page.get_data()
    assert "script-src" in page.headers["Content-Security-Policy"]
    assert ask(boards, folder, "index.js", method="HEAD").status_code == 200
    assert ask(boards, folder, "nothing/here").status_code == 404


def test_real_responses_stay_compressed(real: tuple[TensorBoards, Path]) -> None:
    boards, folder = real
    answer = ask(boards, folder, "index.js", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert b"function" in gzip.decompress(answer.get_data())


def test_real_scalars_are_read_without_tensorflow(real: tuple[TensorBoards, Path]) -> None:
    boards, folder = real

    def tags() -> Any:
        return json.loads(ask(boards, folder, "data/plugin/timeseries/tags").get_data())["scalars"][
            "tagDescriptions"
        ]

    while "loss" not in json.loads(ask(boards, folder, "data/plugin/scalars/tags").get_data()).get(".", {}):
        time.sleep(0.1)
    assert tags() is not None
    question = {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}
    answer = ask(boards, folder, "data/plugin/timeseries/timeSeries", method="POST", data=question)
    (series,) = json.loads(answer.get_data())
    assert series["runToSeries"]["."][0]["value"] == 0.5
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    (process,) = (child for child in children if "tensorboard" in " ".join(child.cmdline()))
    files = {Path(part.path).name for part in process.memory_maps()}
    assert not any("tensorflow" in name for name in files)


def test_only_regular_files_below_the_log_folder_are_shown(tmp_path: Path, logdir: Path) -> None:
    write_scalar(tmp_path / "elsewhere")
    (logdir / "linked").symlink_to(tmp_path / "elsewhere")
    (logdir / "own").mkdir()
    (outside,) = (tmp_path / "elsewhere").iterdir()
    (logdir / "own" / outside.name).symlink_to(outside)
    os.mkfifo(logdir / "events.out.tfevents.1.fifo")
    write_scalar(logdir / "real")
    boards = TensorBoards()
    try:
        while "real" not in json.loads(ask(boards, logdir, "data/plugin/scalars/tags").get_data()):
            time.sleep(0.1)
        assert json.loads(ask(boards, logdir, "data/runs").get_data()) == ["real"]
    finally:
        boards.stop_all()


def test_real_process_is_hidden_from_other_users(real: tuple[TensorBoards, Path]) -> None:
    """Other users can read the arguments of all processes and connect to every open port."""
    boards, folder = real
    ask(boards, folder)
    family = [child for child in psutil.Process().children(recursive=True) if is_tensorboard(child)]
    (process,) = family
    assert process.cmdline()[1:] == ["-P", str(REAL)]
    ends = [end for end in process.net_connections() if end.status == psutil.CONN_LISTEN]
    (address,) = [end.laddr for end in ends]
    assert address.ip == "127.0.0.1"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{address.port}/data/environment")


def is_tensorboard(process: psutil.Process) -> bool:
    """Return whether the process is a TensorBoard or a descendant of one."""
    try:
        return any(str(REAL) in other.cmdline() for other in [process, *process.parents()])
    except psutil.Error:
        return False  # it has ended


# Requests and responses


def test_request_is_forwarded_unchanged(boards: TensorBoards, logdir: Path) -> None:
    asked = received(ask(boards, logdir, "data/a b%c/é", query_string="run=a%2Fb&x=%C3%A9&y=[1]"))
    assert asked["path"] == "/data/a%20b%25c/%C3%A9?run=a%2Fb&x=%C3%A9&y=[1]"


def test_post_query_is_forwarded(boards: TensorBoards, logdir: Path) -> None:
    asked = received(ask(boards, logdir, "data/plugin/timeseries/timeSeries", method="POST", data="a=b"))
    assert asked["method"] == "POST" and asked["body"] == "a=b"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ""),
        ("POST", "data/plugin/profile/capture_profile"),
        ("POST", "data/plugin/timeseries/timeSeries/../../x"),
        ("PUT", "data/plugin/timeseries/timeSeries"),
        ("DELETE", "data/plugin/timeseries/timeSeries"),
        ("OPTIONS", ""),
    ],
)
def test_other_writes_are_refused(boards: TensorBoards, logdir: Path, method: str, path: str) -> None:
    with pytest.raises(MethodNotAllowed):
        ask(boards, logdir, path, method=method)
    assert boards.running() == []


def test_credentials_are_not_forwarded(boards: TensorBoards, logdir: Path) -> None:
    headers = {
        "Cookie": "digits-5000=secret",
        "Authorization": "Bearer secret",
        "X-Forwarded-For": "secret",
        "X-Forwarded-Host": "secret",
        "Forwarded": "for=secret",
        "X-CSRFToken": "secret",
        "Proxy-Authorization": "secret",
        "Connection": "keep-alive, X-Other",
        "Accept-Language": "de",
    }
    asked = received(ask(boards, logdir, headers=headers))
    assert "secret" not in json.dumps(asked)
    assert asked["headers"]["Accept-Language"] == "de"
    assert asked["headers"]["Host"].startswith("127.0.0.1:")


def test_cookies_are_removed_from_responses(boards: TensorBoards, logdir: Path) -> None:
    answer = ask(boards, logdir)
    assert "Set-Cookie" not in answer.headers
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"


def test_redirects_stay_within_the_job(boards: TensorBoards, logdir: Path) -> None:
    assert ask(boards, logdir, "move/in").headers["Location"] == "/digits/tensorboard/job/to"
    assert "Location" not in ask(boards, logdir, "move/out").headers


def test_long_response_is_streamed(boards: TensorBoards, logdir: Path) -> None:
    answer = ask(boards, logdir, "large")
    pieces = list(answer.response)
    assert sum(map(len, pieces)) == 5_000_000 and max(map(len, pieces)) <= 64 * 1024
    answer.close()


# The processes


def test_job_reuses_its_process(boards: TensorBoards, logdir: Path) -> None:
    first, again = received(ask(boards, logdir)), received(ask(boards, logdir))
    other = received(ask(boards, logdir, job="other"))
    assert first["process"] == again["process"] != other["process"]
    assert sorted(boards.running()) == ["job", "other"]


def test_stopped_process_ends_and_restarts_on_request(boards: TensorBoards, logdir: Path) -> None:
    first = received(ask(boards, logdir))["process"]
    boards.stop("job")
    assert not psutil.pid_exists(first) and boards.running() == []
    boards.stop("job")
    boards.stop("unknown")
    assert received(ask(boards, logdir))["process"] != first


def test_dead_process_is_replaced(boards: TensorBoards, logdir: Path) -> None:
    first = received(ask(boards, logdir))["process"]
    with pytest.raises(Unavailable):
        ask(boards, logdir, "die")
    assert received(ask(boards, logdir))["process"] != first


def test_number_of_processes_is_limited(logdir: Path) -> None:
    now = [0.0]
    boards = TensorBoards(program=FAKE, max_processes=2, clock=lambda: now[0])
    for job in ("a", "b", "a", "c"):
        now[0] += 1
        received(ask(boards, logdir, job=job))
    assert sorted(boards.running()) == ["a", "c"]
    boards.stop_all()
    assert boards.running() == []


def test_idle_process_is_stopped(logdir: Path) -> None:
    now = [0.0]
    boards = TensorBoards(program=FAKE, idle_seconds=60, clock=lambda: now[0])
    received(ask(boards, logdir, job="old"))
    now[0] = 59
    received(ask(boards, logdir, job="new"))
    boards.stop_idle()
    assert sorted(boards.running()) == ["new", "old"]
    now[0] = 60
    boards.stop_idle()
    assert boards.running() == ["new"]
    boards.stop_all()


def test_process_that_is_responding_is_not_idle(logdir: Path) -> None:
    now = [0.0]
    boards = TensorBoards(program=FAKE, idle_seconds=60, clock=lambda: now[0])
    answer = ask(boards, logdir, "large")
    pieces = iter(answer.response)
    next(pieces)
    now[0] = 1000
    boards.stop_idle()
    assert boards.running() == ["job"]
    assert sum(map(len, pieces)) > 0
    boards.stop_all()


def test_idle_processes_stop_without_a_request(logdir: Path) -> None:
    boards = TensorBoards(program=FAKE, idle_seconds=0.2)
    process = received(ask(boards, logdir))["process"]
    wait_until(lambda: has_ended(process))
    boards.stop_all()


def test_job_without_events_is_not_found(boards: TensorBoards, tmp_path: Path, logdir: Path) -> None:
    (tmp_path / "link").symlink_to(logdir)
    for folder in (tmp_path / "missing", tmp_path / "link"):
        with pytest.raises(NotFound, match="no TensorBoard logs"):
            ask(boards, folder)
    assert boards.running() == []


def test_page_shows_that_tensorboard_is_starting(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.mkdir()
    boards = TensorBoards(program=FAKE, start_seconds=0.1)
    page = ask(boards, hangs, headers=PAGE)
    assert page.status_code == 202 and 'http-equiv="refresh"' in page.get_data(as_text=True)
    assert page.headers["Retry-After"] == "1"
    with pytest.raises(Unavailable, match="still starting"):
        ask(boards, hangs)
    boards.stop_all()


def test_failed_start_is_reported(tmp_path: Path) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    boards = TensorBoards(program=FAKE)
    with pytest.raises(Unavailable) as failure:
        ask(boards, crashes)
    assert "no module named plugin" in failure.value.hint
    assert boards.running() == []


@pytest.mark.parametrize("program", ["fake", pytest.param("real", marks=pytest.mark.nightly)])
def test_no_process_outlives_the_server(tmp_path: Path, logdir: Path, program: str) -> None:
    """SIGKILL leaves the server no time to clean up."""
    write_scalar(logdir)
    board = {"board": str(FAKE)} if program == "fake" else {}
    with small_server(tmp_path, logdir=str(logdir), **board) as server:
        assert server.get("/pre/tensorboard/job/").status == 200
        descendants = psutil.Process(server.process.pid).children(recursive=True)
        assert len(descendants) == 1
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until(lambda: all(map(has_ended, descendants)))


def test_no_process_outlives_a_normal_exit(logdir: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(PROGRAM.parent.parent)!r})
from pathlib import Path
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request
from digits.runtime.tensorboards import TensorBoards
from digits.web.services.tensorboard import proxy
boards = TensorBoards(program=Path({str(FAKE)!r}))
request = Request(EnvironBuilder("/").get_environ())
sys.stdout.write(proxy(boards, "job", Path({str(logdir)!r}), "", request, "/").get_data(as_text=True))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    wait_until(lambda: has_ended(json.loads(run.stdout)["process"]))


# In the server, with gevent


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "tb").mkdir()
    with small_server(folder, logdir=str(folder / "tb"), board=str(FAKE)) as server:
        yield server


def test_served_response_keeps_its_security_policy(served: SmallServer) -> None:
    answer = served.get("/pre/tensorboard/job/a%20b?x=%C3%A9", "Cookie: a=b")
    assert answer.status == 200 and json.loads(answer.body)["path"] == "/a%20b?x=%C3%A9"
    assert answer.headers["content-security-policy"] == "default-src 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("set-cookie", "access-control-allow-origin", "x-digits-foreign"):
        assert name not in answer.headers


def test_slow_response_does_not_block_other_requests(served: SmallServer) -> None:
    with served.connect() as slow:
        slow.sendall(b"GET /pre/tensorboard/job/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert served.get("/pre/tensorboard/job/quick").status == 200
        assert served.get("/").body == b"home"


def test_closed_connection_is_detected(served: SmallServer) -> None:
    with served.connect() as hasty:
        hasty.sendall(b"GET /pre/tensorboard/job/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        hasty.recv(1000)
    assert served.get("/pre/tensorboard/job/quick").status == 200
