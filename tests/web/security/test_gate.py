"""Requests the gate admits: hosts, sizes, logins and origins. Headers of its responses."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app
from werkzeug.wrappers import Request

from digits.web.security import origin
from digits.web.security.auth import Auth
from digits.web.security.bodies import MAX_BODY_BYTES, MAX_IMAGE_BYTES
from digits.web.security.environ import KEEPS_POLICY, NONCE, VISITOR
from digits.web.security.gate import Gate
from digits.web.security.origin import Hosts, is_opened_by_another_site, origin_matches
from digits.web.security.peers import CONNECTION, Peer
from digits.web.security.sessions import Sessions
from tests.failing_disk import few_descriptors
from tests.raw_http import OTHER_UID, Answer, SmallServer, join, peer_of, small_server, websocket

TOKEN = "t" * 43
SITE = "http://localhost"
POLLING = "/socket.io/?EIO=4&transport=polling"
ROUTES = [
    "/",
    "/models/1",
    "/static/x.js",
    "/login",
    "/health",
    "/ready",
    "/files/a",
    "/tensorboard/1/",
    POLLING,
]
UPGRADE: dict[str, str | None] = {"Upgrade": "websocket", "Connection": "Upgrade"}
UNSAFE = ["POST", "PUT", "PATCH", "DELETE", "SOMETHING"]

GOOD_HOSTS = [
    "localhost", "localhost:5000", "LOCALHOST", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]",
    "[::1]:5000", "[0:0:0:0:0:0:0:1]",
]  # fmt: skip
EVIL_HOSTS = [
    None, "", " ", "evil.example", "evil.example:5000", "localhost.evil.example", "evil.example/localhost",
    "localhost,evil.example", "localhost, localhost", "user@localhost", "localhost@evil.example", "localhost:",
    "localhost:abc", "localhost:5000:5000", "localhost:999999", "localhost evil.example", "http://localhost",
    "localhost/", "localhost#", "localhost?x", "localhost\\", "localhost%00", "localhost\t", "127.1", "2130706433",
    "0x7f.1", "0177.0.0.1", "127.0.0.1.nip.io", "0.0.0.0", "192.168.1.5", "8.8.8.8", "[::]", "[::2]", "::1", "[::1",
    "[::ffff:8.8.8.8]", "[fe80::1%25lo]", "löcalhost", "xn--evil", "*", "*.localhost", "a" * 300, "localhost..",
]  # fmt: skip
EVIL_ORIGINS = [
    "null", "", "http://evil.example", "https://evil.example", "http://localhost.evil.example", "http://localhost:8888",
    "https://localhost:443", "http://localhost@evil.example", "http://evil.example#localhost", "localhost",
    "//localhost", "http://localhost/", "http://localhost/path", "http://localhost?x", "http://localhost#", "file://",
    "file://localhost", "ftp://localhost", "chrome-extension://localhost", "http://127.0.0.1", "http://[::1]",
    "http://localhost,http://evil.example", "http://localhost http://evil.example", "http://user@localhost",
    "http://[localhost", "http://", "data:text/html,x", "http://localhost.", "http://löcalhost", "ws://localhost",
]  # fmt: skip


class App:
    """An application that reads request bodies and records the requests that reach it."""

    def __init__(self, *headers: tuple[str, str]) -> None:
        self.reached: list[dict[str, Any]] = []
        self.headers = [*headers] or [("Content-Type", "text/html; charset=utf-8")]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.reached.append(environ)
        length = str(len(environ["wsgi.input"].read()))
        start_response("200 OK", [*self.headers])
        return [length.encode()]


def make_auth(**options: Any) -> Auth:
    return Auth(Sessions("k" * 32), port=5000, **options)


def connection_of(uid: int | None) -> dict[str, Any]:
    """Return the WSGI environ entry of a connection owned by the user ``uid``."""
    return {CONNECTION: peer_of(uid)}


def send(
    app: App, path: str = "/", method: str = "GET", headers: dict[str, str | None] | None = None, **gate: Any
) -> TestResponse:
    """Send a request through a new gate with the options ``gate``, and return the response."""
    return through(Gate(app, **gate), path, method, headers)


def through(
    gate: Gate,
    path: str = "/",
    method: str = "GET",
    headers: dict[str, str | None] | None = None,
    data: bytes = b"",
    environ: dict[str, Any] | None = None,
) -> TestResponse:
    """Send a request through ``gate`` without normalizing it, and return the response."""
    base = EnvironBuilder("/", input_stream=io.BytesIO(data), content_length=len(data)).get_environ()
    base.pop("HTTP_HOST")
    target, _, query = path.partition("?")
    base |= {"REQUEST_METHOD": method, "PATH_INFO": target, "QUERY_STRING": query, "REMOTE_ADDR": "127.0.0.1"}
    for name, value in {"Host": "localhost", **(headers or {})}.items():
        if value is not None:
            base["HTTP_" + name.upper().replace("-", "_")] = value
    base |= environ or {}
    answer, status, answered = run_wsgi_app(gate, base, buffered=True)
    return TestResponse(answer, status, answered, request=Request(base))


# Hosts


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_own_host_names_are_accepted(host: str) -> None:
    for route in ROUTES:
        assert send(App(), route, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", EVIL_HOSTS)
def test_other_host_names_are_refused_everywhere(host: str | None) -> None:
    app = App()
    for route, method in itertools.product(ROUTES, ("GET", "POST", "OPTIONS")):
        assert send(app, route, method, {"Host": host}).status_code == 421
    assert app.reached == []


def test_refused_host_gets_a_remedy() -> None:
    answer = send(App(), headers={"Host": "digits.example:5000"})
    assert "'digits.example'" in answer.text and "--allowed-host" in answer.text
    assert "<" not in send(App(), headers={"Host": "<script>"}).text.replace("<script>'", "")


@pytest.mark.parametrize("allowed", ["digits.example", "DIGITS.example", "digits.example:8080"])
def test_allowed_hosts_are_accepted_on_any_port(allowed: str) -> None:
    hosts = Hosts("127.0.0.1", [allowed])
    assert all(host in hosts for host in ("digits.example", "Digits.Example:1234", "localhost"))
    assert all(host not in hosts for host in ("x.digits.example", "digits.example.evil", "*"))


def test_bound_address_is_accepted() -> None:
    hosts = Hosts("192.168.1.5")
    assert "192.168.1.5:5000" in hosts and "localhost" in hosts and "192.168.1.6" not in hosts
    assert "[fe80::1]" in Hosts("[fe80:0::1]") and "[fe80::2]" not in Hosts("fe80::1")


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::", ""])
def test_server_on_all_addresses_accepts_only_those_of_this_machine(
    everywhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin.socket, "gethostname", lambda: "Machine")
    addresses = [SimpleNamespace(address=text) for text in ("10.0.0.7", "FE80::7%eth0")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": addresses})
    hosts = Hosts(everywhere)
    assert all(host in hosts for host in ("10.0.0.7:5000", "[fe80::7]", "machine", "machine:80", "localhost"))
    assert all(host not in hosts for host in ("10.0.0.8", "0.0.0.0", "[::]", "evil.example", ""))


def test_addresses_of_this_machine_are_found() -> None:
    families = (socket.AF_INET, socket.AF_INET6)
    items = (item for found in psutil.net_if_addrs().values() for item in found if item.family in families)
    hosts = Hosts("0.0.0.0")
    for item in items:
        address = item.address.split("%")[0]
        assert (f"[{address}]" if ":" in address else address) in hosts


# Malformed requests

MALFORMED: list[tuple[int, dict[str, Any]]] = [
    *((400, {"path": path}) for path in ("http://evil.example/", "*", "", "evil", "/a\0b")),
    *((405, {"method": method}) for method in ("TRACE", "CONNECT", "get", "G T", "", "A" * 50)),
    *(
        (400, {"method": "POST", "environ": {"CONTENT_LENGTH": length}})
        for length in ("-1", "1e3", "0x10", "abc", "5,5", " 5", "٥")
    ),
    *(
        (400, {"method": "POST", "headers": {"Transfer-Encoding": coding}})
        for coding in ("gzip", "gzip, chunked", "chunked, chunked", "xchunked", "identity")
    ),
    (400, {"path": "/socket.io/", "headers": UPGRADE | {"Transfer-Encoding": "chunked"}}),
]


@pytest.mark.parametrize(("status", "asked"), MALFORMED)
def test_malformed_requests_are_refused(status: int, asked: dict[str, Any]) -> None:
    app = App()
    assert through(Gate(app), **asked).status_code == status
    assert app.reached == []


# Proxies


def test_forwarded_headers_are_removed() -> None:
    app = App()
    forged = {
        "X-Forwarded-Host": "evil.example", "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/evil", "X-Forwarded-Port": "1", "Forwarded": "host=evil.example",
        "X-Real-IP": "1.2.3.4", "X-Original-URL": "/evil", "X-Rewrite-URL": "/evil",
    }  # fmt: skip
    assert send(app, headers={**forged}).status_code == 200
    (environ,) = app.reached
    assert "evil" not in repr(environ) and "1.2.3.4" not in repr(environ)
    assert environ["wsgi.url_scheme"] == "http"


def test_forwarded_headers_of_a_proxy_are_trusted() -> None:
    app = App()
    headers = {
        "X-Forwarded-Host": "digits.example",
        "X-Forwarded-For": "6.6.6.6, 1.2.3.4",
        "X-Forwarded-Proto": "https",
    }
    answer = send(app, headers={**headers}, behind_proxy=1, allowed_hosts=["digits.example"])
    assert answer.status_code == 200
    (environ,) = app.reached
    assert environ["HTTP_HOST"] == "digits.example" and environ["REMOTE_ADDR"] == "1.2.3.4"
    assert environ["wsgi.url_scheme"] == "https" and "HTTP_X_FORWARDED_HOST" not in environ
    assert send(App(), headers={"X-Forwarded-Host": "evil.example"}, behind_proxy=1).status_code == 421


# The prefix


def test_prefix_is_moved_to_the_script_name() -> None:
    app = App()
    assert send(app, "/digits/models/1", url_prefix="/digits").status_code == 200
    (environ,) = app.reached
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/digits", "/models/1")


def test_paths_outside_the_prefix_are_not_found() -> None:
    app = App()
    assert send(app, "/models/1", url_prefix="/digits").status_code == 404
    assert send(app, "/digitsx", url_prefix="/digits").status_code == 404
    for path in ("/", "/digits"):
        answer = send(app, path, url_prefix="/digits")
        assert answer.status_code == 302 and answer.location == "/digits/"
    assert app.reached == []
    assert send(app, "/font-roboto/a.woff2", url_prefix="/digits").status_code == 200
    assert app.reached[0]["PATH_INFO"] == "/font-roboto/a.woff2"


def test_checks_apply_below_a_prefix() -> None:
    gate = Gate(
        App(), url_prefix="/digits", auth=make_auth(token=TOKEN), logins_per_minute=1, clock=lambda: 0.0
    )
    assert through(gate, "/digits/models").status_code == 401
    assert through(gate, "/digits/static/x.js").status_code == 200
    login = through(gate, "/digits/models?a=b", headers={"Accept": "text/html"}).location
    assert login == "/digits/login?next=/digits/models%3Fa%3Db"
    assert through(gate, f"/digits/models?token={TOKEN}").location == "/digits/models"
    assert through(gate, "/digits/login", "POST").status_code == 200
    assert through(gate, "/digits/login", "POST").status_code == 429


# Sizes


@pytest.mark.parametrize(("length", "status"), [("0", 200), ("100", 200), ("101", 413), ("9" * 30, 413)])
def test_length_is_limited(length: str, status: int) -> None:
    gate = Gate(App(), max_body_bytes=100)
    answer = through(gate, "/", "POST", data=b"x" * 100, environ={"CONTENT_LENGTH": length})
    assert answer.status_code == status


def test_uploads_have_a_larger_limit() -> None:
    gate = Gate(App(), max_body_bytes=100, body_limits={"/upload": 1000, "/upload/huge": 2000})
    for path, length, status in [
        ("/upload", 1000, 200),
        ("/upload", 1001, 413),
        ("/upload/huge/x", 2000, 200),
    ]:
        form = {"CONTENT_TYPE": "multipart/form-data; boundary=x"}
        assert through(gate, path, "POST", data=b"x" * length, environ=form).status_code == status
        assert through(gate, path, "POST", data=b"x" * length).status_code == 413  # would be kept in memory


@pytest.mark.parametrize(
    "path",
    [
        "/models/1/predictions",
        "/models/1/predictions.json",
        "/models/images/classification/classify_many.json",
        "/models/images/generic/infer_many.json",
    ],
)
def test_images_to_predict_may_be_larger_than_other_requests(path: str) -> None:
    too_large = {"CONTENT_LENGTH": str(MAX_IMAGE_BYTES + 1)}
    form, data = {"CONTENT_TYPE": "multipart/form-data; boundary=x"}, b"x" * (MAX_BODY_BYTES + 1)
    assert through(Gate(App()), path, "POST", data=data, environ=form).status_code == 200
    assert through(Gate(App()), path, "POST", environ=too_large | form).status_code == 413


@pytest.mark.parametrize("path", ["/serve/name", "/serve/name/v2/models/m/infer", "/models/1/predict"])
def test_bodies_that_are_read_in_pieces_may_be_large_unless_they_are_forms(path: str) -> None:
    data = b"x" * (MAX_BODY_BYTES + 1)
    for content_type, status in (("application/json", 200), ("application/x-www-form-urlencoded", 413)):
        asked = {"CONTENT_TYPE": content_type}
        assert through(Gate(App()), path, "POST", data=data, environ=asked).status_code == status


@pytest.mark.parametrize(
    ("path", "accepted", "is_json"),
    [
        ("/pretrained_models/upload_archive", "*/*", True),
        ("/models/1/predictions.json", "*/*", True),
        ("/models", "application/json", True),
        ("/models", "*/*", False),
        ("/models", "text/html", False),
    ],
)
def test_programs_get_json_for_a_large_body(path: str, accepted: str, is_json: bool) -> None:
    too_large = {"CONTENT_LENGTH": str(10**12), "HTTP_ACCEPT": accepted}
    answer = through(Gate(App()), path, "POST", environ=too_large)
    assert answer.status_code == 413
    assert answer.is_json == is_json
    assert not is_json or "larger than the limit" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize("read", ["read", "readline", "readlines", "iterate", "pieces"])
def test_body_without_a_length_is_counted(read: str) -> None:
    ways: dict[str, Any] = {
        "read": lambda stream: stream.read(),
        "readline": lambda stream: [stream.readline() for _ in range(20)],
        "readlines": lambda stream: stream.readlines(),
        "iterate": list,
        "pieces": lambda stream: [stream.read(7) for _ in range(40)],
    }

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        data = ways[read](environ["wsgi.input"])
        start_response("200 OK", [])
        return [data if isinstance(data, bytes) else b"".join(data)]

    gate = Gate(app, max_body_bytes=100)
    for size, status in ((100, 200), (101, 413)):
        body = b"\n".join([b"123456789"] * 30)[:size]
        environ = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}
        answer = through(gate, "/", "POST", data=body, environ=environ)
        assert answer.status_code == status
        assert status == 413 or answer.data == body


# Origins


@pytest.mark.parametrize("method", UNSAFE)
def test_writes_from_scripts_are_accepted(method: str) -> None:
    for route in ROUTES:
        assert send(App(), route, method).status_code == 200


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize(
    "own", [{"Origin": SITE}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}]
)
def test_writes_from_own_pages_are_accepted(method: str, own: dict[str, str | None]) -> None:
    for route in ROUTES:
        assert send(App(), route, method, own).status_code == 200


WRITES = list(
    itertools.product(
        ROUTES,
        UNSAFE,
        (
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain",
            "application/json",
        ),
    )
)


@pytest.mark.parametrize(("number", "origin"), list(enumerate(EVIL_ORIGINS)))
def test_writes_from_other_origins_are_refused(number: int, origin: str) -> None:
    app = App()
    for route, method, content_type in WRITES[
        number % 10 :: 10
    ]:  # each write comes from three of the origins
        headers: dict[str, str | None] = {"Origin": origin, "Content-Type": content_type}
        assert send(app, route, method, headers).status_code == 403
        assert send(app, route, method, headers | {"Sec-Fetch-Site": "same-origin"}).status_code == 403
    assert app.reached == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "same-origin,cross-site", "nonsense"])
def test_writes_from_other_sites_are_refused(site: str) -> None:
    app = App()
    for route, method in itertools.product(ROUTES, UNSAFE):
        assert send(app, route, method, {"Sec-Fetch-Site": site}).status_code == 403
        assert send(app, route, method, {"Sec-Fetch-Site": site, "Origin": SITE}).status_code == 403
    assert app.reached == []


def test_links_from_other_sites_work() -> None:
    headers: dict[str, str | None] = {"Sec-Fetch-Site": "cross-site", "Origin": "http://other.example"}
    for route in ROUTES:
        assert send(App(), route, "GET", headers).status_code == (403 if route == POLLING else 200)


def test_origin_must_have_the_same_port() -> None:
    assert origin_matches("http://localhost:5000", "localhost:5000")
    assert origin_matches("https://Digits.example", "digits.example")
    assert not origin_matches("http://localhost:8888", "localhost:5000")
    assert not origin_matches("http://localhost", "localhost:5000")


@pytest.mark.parametrize("origin", EVIL_ORIGINS)
def test_live_connections_from_other_origins_are_refused(origin: str) -> None:
    app = App()
    for path in (POLLING, "/socket.io/", "/socket.iox", "/anything"):
        headers = {"Origin": origin, **(UPGRADE if path == "/anything" else {})}
        assert send(app, path, "GET", headers).status_code == 403
        assert send(app, path, "GET", {**UPGRADE, "Origin": origin}).status_code == 403
        assert send(app, path, "GET", {**UPGRADE, "Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert app.reached == []


# Logins


@pytest.fixture
def locked() -> Gate:
    return Gate(App(), auth=make_auth(token=TOKEN))


def test_only_public_paths_are_open_without_a_login(locked: Gate) -> None:
    public = {"/login", "/health", "/ready", "/static/x.js"}
    for route, method in itertools.product(ROUTES, ("GET", "HEAD", "OPTIONS", "POST", "DELETE")):
        expected = 200 if route in public else 401
        assert through(locked, route, method).status_code == expected, (route, method)


@pytest.mark.parametrize(
    "path", ["/static/../index.json", "/static/a/../../models", "/statics/x", "/login/", "/loginx"]
)
def test_paths_similar_to_public_ones_are_not_public(locked: Gate, path: str) -> None:
    assert through(locked, path).status_code == 401


def test_token_grants_access_to_every_route(locked: Gate) -> None:
    for scheme, route in itertools.product(("Bearer", "bearer"), ROUTES):
        assert through(locked, route, "POST", {"Authorization": f"{scheme} {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "Bearer x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_wrong_token_is_refused(locked: Gate, value: str) -> None:
    answer = through(locked, headers={"Authorization": value})
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_browsers_are_redirected_to_the_login(locked: Gate) -> None:
    answer = through(locked, "/models/1?a=b c", headers={"Accept": "text/html"})
    assert answer.status_code == 302 and answer.location == "/login?next=/models/1%3Fa%3Db%2Bc"
    for headers in ({"Accept": "application/json"}, {"Accept": "text/html", "Sec-Fetch-Dest": "empty"}):
        assert through(locked, "/models/1", headers={**headers}).status_code == 401
    assert through(locked, "/models/1", "POST", {"Accept": "text/html"}).status_code == 401
    evil = through(locked, "//evil.example/x", headers={"Accept": "text/html"})
    assert evil.location == "/login?next=/evil.example/x"


def test_token_in_the_url_is_exchanged_for_a_cookie(locked: Gate) -> None:
    answer = through(locked, f"/models/1?a=b&token={TOKEN}&c=d")
    assert answer.status_code == 302 and answer.location == "/models/1?a=b&c=d"
    name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
    assert name == "digits-5000" and TOKEN not in answer.headers["Set-Cookie"]
    assert through(locked, headers={"Cookie": f"{name}={value}"}).status_code == 200
    again = through(locked, f"/?token={TOKEN}", headers={"Cookie": f"{name}={value}"})
    assert again.status_code == 302 and "Set-Cookie" not in again.headers


@pytest.mark.parametrize("query", ["token=wrong", "token=", f"token=x&token={TOKEN}", f"TOKEN={TOKEN}"])
def test_wrong_token_in_the_url_is_refused(locked: Gate, query: str) -> None:
    answer = through(locked, f"/models?{query}")
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers
    page = through(locked, f"/models?{query}", headers={"Accept": "text/html"})
    assert page.status_code == 302 and "token=" not in page.location


def test_token_in_the_url_never_redirects_to_another_site(locked: Gate) -> None:
    answer = through(locked, f"//evil.example?token={TOKEN}")
    assert answer.location == "/evil.example"


def test_token_in_the_url_does_not_allow_writes(locked: Gate) -> None:
    assert through(locked, f"/models?token={TOKEN}", "POST").status_code == 401
    assert through(locked, f"/socket.io/?token={TOKEN}", headers=UPGRADE).status_code == 401


def test_application_receives_the_visitor() -> None:
    auth, app = make_auth(token=TOKEN), App()
    gate = Gate(app, auth=auth)
    through(gate, headers={"Cookie": f"digits-5000={auth.sessions.start('fred')}"})
    through(gate, headers={"Authorization": f"Bearer {TOKEN}"})
    assert app.reached[0][VISITOR].session.username == "fred"
    assert app.reached[1][VISITOR].session is None


def test_session_in_use_is_renewed() -> None:
    now = [0.0]
    auth = Auth(Sessions("k" * 32, clock=lambda: now[0]), token=TOKEN, port=5000)
    cookie = auth.sessions.start("fred")
    gate = Gate(App(), auth=auth)
    assert "Set-Cookie" not in through(gate, headers={"Cookie": f"digits-5000={cookie}"}).headers
    now[0] += 24 * 3600
    renewed = through(gate, headers={"Cookie": f"digits-5000={cookie}"}).headers["Set-Cookie"]
    assert renewed.startswith("digits-5000=") and cookie not in renewed


def test_websocket_with_a_cookie_requires_an_origin() -> None:
    auth = make_auth(token=TOKEN)
    cookie = f"digits-5000={auth.sessions.start('fred')}"
    gate = Gate(App(), auth=auth)
    assert through(gate, "/socket.io/", headers={**UPGRADE, "Cookie": cookie}).status_code == 403
    for own, status in (
        ({"Cookie": cookie, "Origin": SITE}, 200),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Origin": SITE}, 401),
    ):
        assert through(gate, "/socket.io/", headers={**UPGRADE, **own}).status_code == status, own


# The owner of the connection

OWN, OTHER = connection_of(os.geteuid()), connection_of(os.geteuid() + 1)
FORWARDING = ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP",
              "X-Original-URL", "CF-Connecting-IP", "True-Client-IP", "X-Envoy-External-Address"]  # fmt: skip


@pytest.fixture
def own() -> Gate:
    """The gate of a loopback server that admits its own user without a login."""
    return Gate(App(), auth=make_auth(token=TOKEN, admit_own_user=True))


def test_own_user_needs_no_login(own: Gate) -> None:
    for route, method in itertools.product(ROUTES, ("GET", "POST", "DELETE")):
        assert through(own, route, method, environ=OWN).status_code == 200


@pytest.mark.parametrize(
    "environ", [OTHER, connection_of(None), {}], ids=["other user", "unknown user", "no connection"]
)
def test_other_users_need_the_token(own: Gate, environ: dict[str, Any]) -> None:
    for route, method in itertools.product(ROUTES, ("GET", "POST", "DELETE")):
        expected = 200 if route in ("/login", "/health", "/ready", "/static/x.js") else 401
        assert through(own, route, method, environ=environ).status_code == expected
    assert through(own, headers={"Authorization": f"Bearer {TOKEN}"}, environ=environ).status_code == 200
    swapped = through(own, f"/?token={TOKEN}", environ=environ)
    cookie = swapped.headers["Set-Cookie"].partition(";")[0]
    assert through(own, headers={"Cookie": cookie}, environ=environ).status_code == 200


def test_refusal_explains_why_a_login_is_required(own: Gate) -> None:
    assert "another user" in through(own, environ=OTHER).text
    assert "cannot determine" in through(own, environ=connection_of(None)).text
    assert "proxy" in through(own, headers={"Via": "1.1 x"}, environ=OWN).text
    locked = Gate(App(), auth=make_auth(token=TOKEN))
    assert "user" not in through(locked, environ=OTHER).text


def test_too_many_open_files_are_not_a_missing_login(own: Gate) -> None:
    connection = {CONNECTION: Peer(("127.0.0.1", 1), ("127.0.0.1", 2))}
    with few_descriptors(0):
        answer = through(own, environ=connection)
    assert answer.status_code == 503 and "too many open files" in answer.text


@pytest.mark.parametrize("header", FORWARDING)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:5000", "localhost"])
def test_forwarded_requests_need_the_token(own: Gate, header: str, host: str) -> None:
    headers: dict[str, str | None] = {header: "127.0.0.1", "Host": host}
    assert through(own, headers=headers, environ=OWN).status_code == 401
    assert (
        through(own, headers={**headers, "Authorization": f"Bearer {TOKEN}"}, environ=OWN).status_code == 200
    )


def test_own_user_is_redirected_to_the_url_without_the_token(own: Gate) -> None:
    answer = through(own, f"/models?token={TOKEN}", environ=OWN)
    assert answer.status_code == 302 and answer.location == "/models"
    assert "Set-Cookie" not in answer.headers


def test_guesses_by_other_users_are_rate_limited(own: Gate) -> None:
    answers = [through(own, "/login", "POST", environ=OTHER).status_code for _ in range(20)]
    assert answers.count(429) == 10
    assert through(own, "/login", "POST", environ=OWN).status_code == 200


# Rate limits


@pytest.mark.parametrize("way", ["form", "bearer", "address"])
def test_guesses_are_rate_limited(way: str) -> None:
    now, app = [0.0], App()
    gate = Gate(app, auth=make_auth(token=TOKEN), clock=lambda: now[0])

    def guess(address: str = "10.0.0.1") -> int:
        environ = {"REMOTE_ADDR": address}
        if way == "form":
            return through(gate, "/login", "POST", environ=environ).status_code
        if way == "bearer":
            return through(gate, headers={"Authorization": "Bearer x"}, environ=environ).status_code
        return through(gate, "/?token=x", environ=environ).status_code

    answers = [guess() for _ in range(100)]
    assert answers[9] != 429 and answers.count(429) == 90
    assert guess("10.0.0.2") != 429
    now[0] += 6
    assert guess() != 429 and guess() == 429
    right = through(gate, headers={"Authorization": f"Bearer {TOKEN}"}, environ={"REMOTE_ADDR": "10.0.0.1"})
    assert right.status_code == 200


def test_logins_with_only_a_name_are_not_rate_limited() -> None:
    gate = Gate(App(), auth=make_auth())
    assert {through(gate, "/login", "POST").status_code for _ in range(30)} == {200}


# Responses


def test_pages_get_their_policy_and_a_fresh_nonce() -> None:
    app = App()
    nonces = set()
    for _ in range(2):
        answer = send(app)
        policy = answer.headers["Content-Security-Policy"]
        (nonce,) = re.findall(r"'nonce-([\w-]{20,})'", policy)
        assert nonce == app.reached[-1][NONCE]
        nonces.add(nonce)
        assert (
            "default-src 'self'" in policy and "object-src 'none'" in policy and "base-uri 'none'" in policy
        )
        assert "script-src" not in policy and "unsafe-eval" not in policy
    assert len(nonces) == 2


@pytest.mark.parametrize("status", [200, 421, 403, 401, 413])
def test_every_response_has_the_security_headers(status: int) -> None:
    headers: dict[str, str | None] = {"Host": "evil.example"} if status == 421 else {}
    gate = Gate(App(), auth=make_auth(token=TOKEN) if status == 401 else None, max_body_bytes=10)
    if status == 403:
        headers["Origin"] = "null"
    data = b"x" * 11 if status == 413 else b""
    answer = through(gate, "/", "POST", headers, data=data)
    assert answer.status_code == status
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "Content-Security-Policy" in answer.headers


def test_headers_of_the_application_are_kept() -> None:
    app = App(
        ("Content-Type", "application/json"),
        ("Cache-Control", "max-age=5"),
        ("Referrer-Policy", "no-referrer"),
    )
    answer = send(app)
    assert answer.headers.getlist("Cache-Control") == ["max-age=5"]
    assert answer.headers.getlist("Referrer-Policy") == ["no-referrer"]
    assert send(App(("Content-Type", "application/json"))).headers["Cache-Control"] == "no-store"
    assert "Cache-Control" not in send(App()).headers


def test_cors_headers_of_the_application_are_removed() -> None:
    app = App(("Access-Control-Allow-Origin", "*"), ("access-control-allow-credentials", "true"))
    answer = send(app, headers={"Origin": "http://evil.example"})
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


def test_foreign_responses_keep_their_own_policy() -> None:
    answer = send(App((KEEPS_POLICY, "1"), ("Content-Security-Policy", "default-src 'none'")))
    assert answer.headers.getlist("Content-Security-Policy") == ["default-src 'none'"]
    assert KEEPS_POLICY not in answer.headers
    assert "Content-Security-Policy" not in send(App((KEEPS_POLICY, "1"))).headers


def test_refusals_have_the_format_the_client_accepts() -> None:
    evil: dict[str, str | None] = {"Host": "evil.example"}
    assert send(App(), headers=evil).content_type.startswith("text/plain")
    for answer in (
        send(App(), headers=evil | {"Accept": "application/json"}),
        send(App(), "/a.json", headers=evil),
    ):
        assert answer.json is not None and "--allowed-host" in answer.json["error"]["message"]
    assert send(App(), method="HEAD", headers=evil).data == b""


# Through the real server, with Socket.IO beside Flask


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with small_server(tmp_path_factory.mktemp("open")) as running:
        yield running


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with small_server(tmp_path_factory.mktemp("locked"), auth={"token": TOKEN}) as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/static/x.js", POLLING, "/pre/tensorboard/1/"])
@pytest.mark.parametrize(
    "host",
    ["Host: evil.example\n", "", "Host: localhost\nHost: evil.example\n", "Host: evil.example\nHost: localhost\n",
     "Host: localhost@evil.example\n", "Host:\n", "Host: localhost\nX-Forwarded-Host: evil.example\nhost: evil\n",
     "Host: localhost\n evil.example\n"],
)  # fmt: skip
def test_forged_host_is_refused_by_the_server(server: SmallServer, path: str, host: str) -> None:
    assert server.send(f"GET {path} HTTP/1.1\n{host}Connection: close\n\n").status in (400, 421)
    assert server.send(f"GET http://evil.example{path} HTTP/1.1\nHost: localhost\n\n").status == 400


def test_http_1_0_request_without_a_host_is_refused(server: SmallServer) -> None:
    assert server.send("GET / HTTP/1.0\n\n").status == 421
    assert server.send("GET /\n\n").status in (0, 421)


@pytest.mark.parametrize(
    "headers",
    [["Host: evil.example"], ["Origin: http://evil.example"], ["Origin: null"], ["Origin: http://localhost:1"],
     ["Host: evil.example", "Origin: http://evil.example"], ["Sec-Fetch-Site: cross-site"],
     ["X-Forwarded-Host: evil.example", "Origin: http://evil.example"]],
)  # fmt: skip
def test_forged_websocket_and_polling_are_refused(server: SmallServer, headers: list[str]) -> None:
    with websocket(server, *headers) as live:
        assert live.status in (403, 421)
    own = [] if any(line.startswith("Host:") for line in headers) else ["Host: localhost"]
    lines = "\n".join([f"GET {POLLING} HTTP/1.1", *own, *headers, "Connection: close"])
    answer = server.send(lines + "\n\n")
    assert answer.status in (403, 421) and b"sid" not in answer.body


def test_own_websocket_and_polling_work(server: SmallServer) -> None:
    origin = f"Origin: http://localhost:{server.port}"
    with websocket(server, origin) as live:
        assert live.status == 101
        join(live)
    answer = server.get(POLLING, origin)
    assert answer.status == 200 and b"sid" in answer.body
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.integration
def test_chunked_body_is_limited_by_the_server(tmp_path: Path) -> None:
    with small_server(tmp_path, gate={"max_body_bytes": 1000}) as server:
        for pieces, status in ((1, 200), (20, 413)):
            connection = http.client.HTTPConnection("localhost", server.port)
            connection.request("POST", "/length", iter([b"x" * 500] * pieces), encode_chunked=True)
            answer = connection.getresponse()
            assert answer.status == status
            assert status == 413 or answer.read() == b"500"
            connection.close()


SMUGGLING = [
    b"Transfer-Encoding: gzip", b"Transfer-Encoding: xchunked", b"Content-Length: 0\r\nContent-Length: 5",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked\xa0",
    b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding : chunked", b" Transfer-Encoding: chunked",
    b"Transfer Encoding: chunked", b"Transfer-Encoding\0: chunked", b"Transfer-Encoding: chunked\0",
    b"X: a\rTransfer-Encoding: chunked", b"X: a\nTransfer-Encoding: chunked", b": chunked", b"Transfer-Encoding",
    b"Content-Length: +5", b"Content-Length: -5", b"Content-Length: 0x5", b"Content-Length: 5, 5",
    b"Content-Length: 5 5", b"Content-Length: 1_0", b"Content-Length: \xb2", b"Content-Length: " + b"9" * 30,
    b"Content-Length:", b"C\xf6ntent-Length: 5", b"(comment): 5",
]  # fmt: skip


CHUNKS = [
    b"-5\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"\r\n\r\n", b"5\nhello\r\n0\r\n\r\n",
    b"+5\r\nhello\r\n0\r\n\r\n", b"5_0\r\nhello\r\n", b"5\r\nhello0\r\n\r\n", b"f" * 17 + b"\r\n",
    b"5\r\nhello\r\n0\r\nBad Name: x\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n",
]  # fmt: skip
LINES = [
    b"GET  / HTTP/1.1", b"GET\t/ HTTP/1.1", b"GET\xa0/ HTTP/1.1", b"GET / HTTP/1.1 ", b" GET / HTTP/1.1",
    b"G(T / HTTP/1.1", b"GET / HTTP/1.10", b"GET / HTTP/2.0", b"GET / http/1.1", b"GET /\x01 HTTP/1.1",
]  # fmt: skip
POST = b"POST /length HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        *(POST + headers + b"\r\n\r\n" for headers in SMUGGLING),
        *(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks for chunks in CHUNKS),
        *(line + b"\r\nHost: localhost\r\n\r\n" for line in LINES),
    ],
)
def test_a_malformed_request_ends_the_connection_and_hides_no_other(server: SmallServer, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent + b"GET /headers HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = Answer.read(connection)
        assert answer.status == 400 and answer.headers["connection"] == "close"
        assert b"HTTP_HOST" not in answer.body
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_total_header_size_is_limited(server: SmallServer) -> None:
    for lines in (
        [f"X-{number}: a" for number in range(150)],
        ["X: " + "a" * 70_000],
        ["X: " + "a" * 30_000] * 3,
    ):
        assert server.get("/", *lines).status == 400


def test_errors_outside_the_application_have_the_security_headers() -> None:
    def broken(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise RuntimeError("a fault")

    answer = through(Gate(broken))
    assert answer.status_code == 500 and "a fault" not in answer.text
    assert (
        answer.headers["X-Content-Type-Options"] == "nosniff" and "Content-Security-Policy" in answer.headers
    )


@pytest.mark.parametrize(
    "cookie", ["digits-5000=\xff", "digits-5000=\xff\xfe.a.b", "digits-5000=\ud800", "\xff=\xff"]
)
def test_cookies_with_arbitrary_bytes_are_ignored(cookie: str) -> None:
    assert through(Gate(App(), auth=make_auth(token=TOKEN)), headers={"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize("host", ["localhost:5000", "[::1]:80"])
def test_pages_may_connect_only_to_their_own_server(host: str) -> None:
    policy = send(App(), headers={"Host": host}).headers["Content-Security-Policy"]
    assert f"connect-src 'self' ws://{host} wss://{host};" in policy
    evil = send(App(), headers={"Host": "x; script-src *"}).headers["Content-Security-Policy"]
    assert "connect-src 'self';" in evil and "script-src" not in evil


OTHER_SITE = [
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Referer": "http://evil.example/"},
    {"Referer": "http://["}, {"Referer": "http://localhost:1/"}, {"User-Agent": "Mozilla/5.0"},
]  # fmt: skip
OWN_SITE = [
    {}, {"Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}, {"Sec-Fetch-Site": "none"},
    {"Referer": "http://localhost/models/1", "User-Agent": "Mozilla/5.0"}, {"User-Agent": "curl/8"},
]  # fmt: skip


@pytest.mark.parametrize("headers", OTHER_SITE + OWN_SITE)
def test_requests_caused_by_other_sites_are_recognized(headers: dict[str, str]) -> None:
    app = App()
    send(app, headers={**headers})
    assert is_opened_by_another_site(app.reached[0]) == (headers in OTHER_SITE)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    auth = {"token": TOKEN, "admit_own_user": True}
    folder = tmp_path_factory.mktemp("own")
    with small_server(folder, auth=auth, logdir=str(folder / "none")) as running:
        yield running


@pytest.mark.parametrize("path", ["/", POLLING, "/pre/tensorboard/1/"])
def test_own_user_is_recognized_by_the_connection(own_server: SmallServer, path: str) -> None:
    """Requests by another user require root; without it, they come from the server's own user."""
    others = 401 if os.geteuid() != OTHER_UID else own_server.get(path).status
    assert own_server.get(path).status in (200, 404, 500)
    assert own_server.get(path, uid=OTHER_UID).status == others
    assert own_server.get(path, f"Authorization: Bearer {TOKEN}", uid=OTHER_UID).status in (200, 404, 500)
    assert own_server.get(path, "X-Forwarded-For: 127.0.0.1").status == 401


def test_own_user_is_recognized_by_the_websocket(own_server: SmallServer) -> None:
    with websocket(own_server) as live:
        join(live)
    with websocket(own_server, uid=OTHER_UID) as live:
        assert live.status == (401 if os.geteuid() != OTHER_UID else 101)
    with websocket(own_server, f"Authorization: Bearer {TOKEN}", uid=OTHER_UID) as live:
        join(live)
    with websocket(own_server, "Via: 1.1 proxy") as live:
        assert live.status == 401


def test_every_request_of_a_connection_is_checked(own_server: SmallServer) -> None:
    with own_server.connect() as connection:
        for header, status in (("Accept: */*", 200), ("Via: 1.1 proxy", 401), ("Accept: */*", 200)):
            connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode())
            assert Answer.read(connection).status == status


def test_locked_server_serves_login_and_static_files(locked_server: SmallServer) -> None:
    assert locked_server.get("/login").body == b"login"
    assert locked_server.get("/static/x.js").body == b"asset"


def test_logout_closes_open_websockets(locked_server: SmallServer) -> None:
    cookies = []
    for _ in range(2):
        answer = locked_server.get(f"/?token={TOKEN}")
        cookies.append(answer.headers["set-cookie"].partition(";")[0])
    first, second = (
        [f"Cookie: {cookie}", f"Origin: http://localhost:{locked_server.port}"] for cookie in cookies
    )
    with websocket(locked_server, *first) as leaving, websocket(locked_server, *second) as staying:
        join(leaving)
        join(staying)
        head = f"POST /logout HTTP/1.1\nHost: localhost\nContent-Length: 0\nCookie: {cookies[0]}\n\n"
        assert locked_server.send(head).status == 302
        assert leaving.receive() is None
        staying.send('420["echo",7]')
        assert staying.receive() == "430[7]"
    assert locked_server.get("/", first[0]).status == 401
    assert locked_server.get(POLLING, *first).status == 401


def test_refusal_is_short(server: SmallServer) -> None:
    answer = server.send(
        f"GET / HTTP/1.1\nHost: {'a' * 250}\nAccept: application/json\nConnection: close\n\n"
    )
    assert answer.status == 421 and len(answer.body) < 500
    assert json.loads(answer.body)["error"]["type"]
