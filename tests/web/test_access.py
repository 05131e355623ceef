"""The real application behind its gate: every route, with hostile requests."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from digits.core.settings import Settings
from digits.core.status import Status
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import JOB_TYPES, DatasetJob
from digits.runtime.store import Store
from digits.web.app import create_app
from digits.web.security.peers import CONNECTION
from tests.raw_http import OTHER_UID, Answer, SmallServer, join, peer_of, websocket

pytestmark = pytest.mark.integration

TOKEN = "t" * 43
CANARY = "canary-4f1c6e"
PUBLIC = {
    "static",
    "versioned_static",
    "auth.login",
    "auth.login_post",
    "home.health",
    "home.ready",
    "tensorboard.board_font",
}
UNSAFE = {"POST", "PUT", "PATCH", "DELETE"}


def open_app(settings: Settings) -> Flask:
    return create_app(settings, start=False)


@pytest.fixture
def app(settings: Settings) -> Iterator[Flask]:
    opened = open_app(settings)
    yield opened
    opened.extensions["digits"].stop()


@pytest.fixture
def locked(settings: Settings) -> Iterator[Flask]:
    jobs = settings.jobs_dir.with_name("locked-jobs")
    opened = open_app(dataclasses.replace(settings, login=True, token=TOKEN, port=5000, jobs_dir=jobs))
    yield opened
    opened.extensions["digits"].stop()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def routes(app: Flask) -> list[tuple[Rule, str, str]]:
    """Return every route with each of its methods and a matching path."""
    rules = [rule for rule in app.url_map.iter_rules() if rule.methods]
    return [(rule, method, example(rule)) for rule in rules for method in sorted(rule.methods or ())]


def example(rule: Rule) -> str:
    path = re.sub(r"<any\((\w+)[^>]*>", r"\1", rule.rule).replace("<kind:kind>", "images/classification")
    return re.sub(r"<int:\w+>", "1", re.sub(r"<path:\w+>", "a/b", path)).replace(
        "<job_id>", "20260101-000000-abcdef"
    )


def test_every_route_has_an_example_path(app: Flask) -> None:
    found = routes(app)
    assert len(found) > 60
    assert not [path for _, _, path in found if "<" in path and not re.search(r"<\w+>", path)]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.168.1.1", ""])
def test_every_route_refuses_other_hosts(app: Flask, host: str) -> None:
    client = app.test_client()
    for _, method, path in [*routes(app), (None, "GET", "/socket.io/?EIO=4&transport=polling")]:
        answer = client.open(path, method=method, environ_overrides={"HTTP_HOST": host})
        assert answer.status_code == 421, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_every_write_refuses_other_sites(app: Flask, headers: dict[str, str]) -> None:
    client = app.test_client()
    writes = [(method, path) for _, method, path in routes(app) if method in UNSAFE]
    assert len(writes) > 15
    types = ["application/x-www-form-urlencoded", "text/plain", "application/json"]
    for (method, path), content_type in itertools.product(writes, types):
        answer = client.open(path, method=method, headers={**headers, "Content-Type": content_type})
        assert answer.status_code == 403, (method, path)


def test_every_write_from_a_page_requires_the_form_token(app: Flask) -> None:
    client = app.test_client()
    for rule, method, path in routes(app):
        if method in UNSAFE and rule.endpoint != "tensorboard.proxy":
            answer = client.open(path, method=method, headers={"Origin": "http://localhost"})
            assert answer.status_code == 400 and "CSRF" in answer.text, (method, path)
    board = "/tensorboard/20260101-000000-abcdef/data/plugin/timeseries/timeSeries"
    assert client.post(board, headers={"Origin": "http://localhost"}).status_code == 404


def test_every_route_requires_a_login(locked: Flask) -> None:
    client = locked.test_client()
    for rule, method, path in routes(locked):
        answer = client.open(path, method=method)
        if rule.endpoint in PUBLIC and path != "/logout":
            assert answer.status_code != 403
        else:
            assert answer.status_code == 401, (method, path)
    assert client.get("/socket.io/?EIO=4&transport=polling").status_code == 401
    assert client.get("/nothing/here").status_code == 401


@pytest.mark.parametrize(("login", "status"), [(True, 401), (False, 200)])
def test_server_behind_a_proxy_requires_a_login(settings: Settings, login: bool, status: int) -> None:
    """This includes loopback, and a proxy that runs as the server's user and adds no headers."""
    app = open_app(dataclasses.replace(settings, login=login, behind_proxy=True))
    for host, header in itertools.product(("127.0.0.1:5000", "localhost"), ("X-Forwarded-For", "X-Other")):
        answer = app.test_client().get(
            "/index.json",
            headers={header: "8.8.8.8"},
            environ_overrides={"HTTP_HOST": host, CONNECTION: peer_of(os.geteuid())},
        )
        assert answer.status_code == status
    app.extensions["digits"].stop()


def test_new_route_requires_a_login_by_default(locked: Flask) -> None:
    locked.add_url_rule("/fresh", "fresh", lambda: "secret")
    client = locked.test_client()
    assert client.get("/fresh").status_code == 401
    assert client.get("/fresh", headers={"Authorization": f"Bearer {TOKEN}"}).text == "secret"


def test_login_page_is_rendered(app: Flask, locked: Flask) -> None:
    local = app.test_client().get("/login").text
    assert 'name="username"' in local and 'type="password"' not in local
    client = locked.test_client()
    led = client.get("/models/images/classification/new", headers={"Accept": "text/html"})
    assert led.status_code == 302
    page = client.get(led.location).text
    assert 'type="password"' in page and 'value="/models/images/classification/new"' in page
    token = re.findall(r'name="csrf_token" value="([^"]+)"', page)[-1]
    fields = {"password": "wrong", "username": "fred", "csrf_token": token, "next": "/index.json"}
    browser = {"Origin": "http://localhost"}
    wrong = client.post("/login", data=fields, headers=browser)
    assert wrong.status_code == 401 and "Wrong password or token" in wrong.text
    right = client.post("/login", data=fields | {"password": TOKEN}, headers=browser)
    assert right.status_code == 302 and right.location == "/index.json"
    assert client.get("/index.json").status_code == 200


def test_login_works_below_a_prefix(settings: Settings) -> None:
    app = open_app(dataclasses.replace(settings, login=True, token=TOKEN, url_prefix="/digits"))
    client = app.test_client()
    led = client.get("/digits/", headers={"Accept": "text/html"})
    assert led.status_code == 302 and led.location == "/digits/login?next=/digits/"
    answer = client.post("/digits/login", data={"password": TOKEN})
    assert answer.location == "/digits/"
    page = client.get("/digits/")
    assert page.status_code == 200
    assert not re.findall(r'(?:href|src|action)="/(?!digits/)', page.text)
    assert client.get("/font-roboto/missing.woff2").status_code == 404
    app.extensions["digits"].stop()


def test_scripts_have_the_nonce_of_the_page(client: FlaskClient) -> None:
    answer = client.get("/")
    (nonce,) = re.findall(r"'nonce-([\w-]+)'", answer.headers["Content-Security-Policy"])
    assert answer.status_code == 200
    assert not re.findall(r"<script(?![^>]*(?:src=|application/json))[^>]*>", answer.text)
    assert not re.findall(r"\son\w+\s*=\s*[\"']", answer.text)
    for tag in re.findall(r"<style[^>]*>", answer.text):
        assert nonce in tag


def test_secrets_are_not_served_as_job_files(locked: Flask, settings: Settings) -> None:
    names = {path.name for path in settings.state_dir.iterdir()}
    assert {"cookie-key", "form-key"} <= names
    assert not settings.state_dir.is_relative_to(settings.jobs_dir)
    for path in settings.state_dir.iterdir():
        assert path.stat().st_mode & 0o077 == 0


def test_tensorboard_font_is_served(client: FlaskClient) -> None:
    answer = client.get("/font-roboto/-L14Jk06m6pUHB-5mXQQnYX0hVgzZQUfRDuZrPvH3D8.woff2")
    assert answer.status_code == 200 and answer.data.startswith(b"wOF2")
    for other in ("missing.woff2", "LICENSE", "../index.html", "index.html", "roboto.html"):
        assert client.get(f"/font-roboto/{other}").status_code == 404


# Paths


def payloads(tree: Path, step: int = 1) -> list[str]:
    """Return paths to files beside the roots. With a ``step`` of 5, each way up still occurs with each separator."""
    ups = ["..", "%2e%2e", "%252e%252e", "..;", "..%5c", "....", "%c0%ae%c0%ae", "..%00", ".%2e"]
    separators = ["/", "//", "%2f", "%252f", "\\", ";/", "/./"]
    targets = [f"outside/{CANARY}", "state/cookie-key"]
    relative = [separator.join([up] * depth) + separator + target
                for up, separator, target, depth in itertools.product(ups, separators, targets, (1, 2, 3))]  # fmt: skip
    absolute = [f"{start}{tree}/{target}{end}" for start in ("", "/", "//", "file://", "~/..")
                for target in targets for end in ("", "%00.png", "?", "#", "%0a")]  # fmt: skip
    return relative[::step] + absolute


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_payload_reads_outside_the_roots(
    app: Flask, client: FlaskClient, tmp_path: Path, step: int
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "outside" / CANARY).write_text(f"content of {CANARY}")
    secret = (tmp_path / "state/cookie-key").read_text().strip()
    before = sorted(tmp_path.rglob("*"))
    corpus = payloads(tmp_path, step)
    assert len(corpus) > 100
    job = "20260101-000000-abcdef"
    places: list[Callable[[str], str]] = [
        lambda text: f"/files/{text}",
        lambda text: f"/files/{job}/{text}",
        lambda text: f"/static/{text}",
        lambda text: f"/static/v-1/{text}",
        lambda text: f"/tensorboard/{text}/",
        lambda text: f"/tensorboard/{job}/{text}",
        lambda text: f"/datasets/{text}.json",
        lambda text: f"/datasets/{job}/records/{text}/1",
        lambda text: f"/models/{text}/metrics.json",
        lambda text: f"/font-roboto/{text}",
        lambda text: f"/autocomplete/path?query={quote(text, safe='%')}",
        lambda text: f"/datasets/summary?job_id={quote(text, safe='%')}",
        lambda text: f"/try/{text}",
    ]
    for place, text in itertools.product(places, corpus):
        answer = client.get(place(text), buffered=True)
        assert answer.status_code < 500, place(text)
        assert f"content of {CANARY}" not in answer.text and secret not in answer.text
        assert "autocomplete" not in place(text) or answer.json == {"suggestions": []}
    assert sorted(tmp_path.rglob("*")) == before


def test_folder_outside_the_roots_is_refused_in_the_form(client: FlaskClient, tmp_path: Path) -> None:
    (tmp_path / "outside/a").mkdir(parents=True)
    answer = client.post(
        "/datasets/images/classification.json",
        data={"method": "folder", "dataset_name": "x", "folder_train": str(tmp_path / "outside")},
    )
    assert answer.status_code == 400 and answer.json is not None
    assert "outside the folders" in str(answer.json["errors"]["folder_train"])


# The command


@contextlib.contextmanager
def running(folder: Path, environment: dict[str, str], *options: str) -> Iterator[SmallServer]:
    """Run the real server as a subprocess, with its startup output in ``output``."""
    variables = {
        **environment,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "DIGITS_PORT": "0",
        "DIGITS_STANDBY": "0",
        "DIGITS_JOBS_DIR": str(folder / "jobs"),
        "DIGITS_STATE_DIR": str(folder / "state"),
        "DIGITS_SAMPLES_DIR": str(folder / "samples"),
        "DIGITS_LOGFILE_FILENAME": str(folder / "digits.log"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "digits", "serve", *options], env=variables, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            output = "".join(itertools.takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", output)
            assert found, output
            yield SmallServer(process, int(found[1]), folder / "digits.log", output)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def old_job(tmp_path_factory: pytest.TempPathFactory) -> DatasetJob:
    """A job in the folder of `command`."""
    store = Store(tmp_path_factory.mktemp("command") / "jobs", JOB_TYPES)
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    job = DatasetJob.create(store.new_folder(), name="old", recipe=recipe)
    job.tasks[0].move(Status.ABORT)
    store.add(job)
    store.close()
    return job


@pytest.fixture(scope="module")
def command(old_job: DatasetJob) -> Iterator[SmallServer]:
    """The real server as a subprocess, with a token. A signal ends it, and its log contains no secret."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}
    with running(old_job.folder.parent.parent, {**environment, "DIGITS_TOKEN": TOKEN}) as server:
        yield server
        with server.connect() as idle:
            idle.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert Answer.read(idle).status == 200
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.process.wait(30) == 0
        assert TOKEN not in server.log and f"digits-{server.port}=" not in server.log


def test_command_admits_only_its_own_user(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    with running(tmp_path, clean_environment) as server:
        assert server.get("/index.json").status == 200
        assert (server.get("/index.json", uid=OTHER_UID).status == 401) == (os.geteuid() != OTHER_UID)
        assert server.get("/index.json", "X-Forwarded-For: 127.0.0.1").status == 401
        link = re.search(r"login link +http://127\.0\.0\.1:\d+(/\?token=\S+)", server.output)
        assert link and ("runs as root" in server.output) == (os.geteuid() == 0)
        proxied = server.get(link[1], "Via: 1.1 proxy", "Accept: text/html")
        cookie = proxied.headers["set-cookie"].partition(";")[0]
        assert server.get("/index.json", "Via: 1.1 proxy", f"Cookie: {cookie}").status == 200
        # Server files are readable only by its user.
        for path in tmp_path.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path


def test_command_protects_every_route(command: SmallServer) -> None:
    polling = "/socket.io/?EIO=4&transport=polling"
    bearer = f"Authorization: Bearer {TOKEN}"
    for path in ("/", "/index.json", polling, "/tensorboard/x/"):
        assert command.get(path).status == 401
        assert command.send(f"GET {path} HTTP/1.1\nHost: evil.example\n{bearer}\n\n").status == 421
    assert command.get("/index.json", bearer).status == 200
    assert b"sid" in command.get(polling, bearer).body
    with websocket(command, "Host: evil.example", bearer) as live:
        assert live.status == 421
    with websocket(command, "Origin: http://evil.example", bearer) as live:
        assert live.status == 403
    with websocket(command) as live:
        assert live.status == 401
    with websocket(command, bearer) as live:
        join(live)
    swapped = command.get(f"/?token={TOKEN}", "Accept: text/html")
    assert swapped.status == 302 and swapped.headers["location"] == "/"
    cookie = swapped.headers["set-cookie"].partition(";")[0]
    assert cookie.startswith(f"digits-{command.port}=")
    assert command.get("/", f"Cookie: {cookie}").status == 200
    assert cookie.partition("=")[2] not in command.log


class Polling:
    """A Socket.IO client without a websocket, in the room of a job."""

    def __init__(self, server: SmallServer, room: str, *headers: str) -> None:
        self._server = server
        self._headers = headers
        self._path = "/socket.io/?EIO=4&transport=polling"
        opened = server.get(self._path, *headers).body.decode()
        self._path += f"&sid={json.loads(opened[1:])['sid']}"
        self._post("40/jobs,")
        assert self.get().body.startswith(b"40/jobs,")
        self._post(f'42/jobs,["join",{{"room":"{room}"}}]')

    def get(self) -> Answer:
        return self._server.get(self._path, *self._headers)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[socket.socket]:
        """The connection of a long-polling request."""
        with self._server.connect() as connection:
            lines = [f"GET {self._path} HTTP/1.1", "Host: localhost", *self._headers, "Connection: close"]
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            yield connection

    def _post(self, text: str) -> None:
        lines = [f"POST {self._path} HTTP/1.1", "Host: localhost", *self._headers, "Connection: close"]
        lines += ["Content-Type: text/plain", f"Content-Length: {len(text)}"]
        assert self._server.send("\n".join(lines) + f"\n\n{text}").status == 200


def write(server: SmallServer, method: str, path: str, header: str, fields: str = "") -> int:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", header, "Connection: close"]
    lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(fields)}"]
    return server.send("\n".join(lines) + f"\n\n{fields}").status


def test_logout_ends_polling(command: SmallServer, old_job: DatasetJob) -> None:
    """A long-polling request admitted before the logout must not receive later messages."""
    answers = [command.get(f"/?token={TOKEN}") for _ in range(2)]
    cookies = [f"Cookie: {answer.headers['set-cookie'].partition(';')[0]}" for answer in answers]
    leaves, stays = (Polling(command, old_job.id, cookie) for cookie in cookies)
    with leaves.waiting() as leaving, stays.waiting() as staying:
        assert write(command, "POST", "/logout", cookies[0]) == 302
        assert write(command, "PUT", f"/jobs/{old_job.id}", cookies[1], "job_name=new") == 200
        assert b'"new"' in Answer.read(staying).body
        assert b'"new"' not in Answer.read(leaving).body
    assert leaves.get().status == 401
