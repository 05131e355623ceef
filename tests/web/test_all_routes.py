"""No request to any route causes a server error or a hang, and other sites cannot start processes.

Routes are taken from the application, and field names from its forms and source, so new routes are
covered automatically. ``DIGITS_FUZZ_EXAMPLES`` sets the number of examples, each of which is one request.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, run_wsgi_app

from digits.core.model_job import ModelJob
from digits.core.status import Status
from digits.kinds import all_kinds
from digits.kinds.jobs import DatasetJob
from tests.all_routes import NoProcesses, names_for
from tests.raw_http import Answer, SmallServer, small_server
from tests.site import Site, open_site, site_settings

pytestmark = pytest.mark.integration

EXAMPLES = int(os.environ.get("DIGITS_FUZZ_EXAMPLES", "40"))
HANG_SECONDS = 30
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@pytest.fixture(scope="module")
def processes() -> NoProcesses:
    return NoProcesses()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, processes: NoProcesses) -> Iterator[Site]:
    """A site whose dataset was created by real processes, and which starts no processes afterwards."""
    folder = tmp_path_factory.mktemp("all-routes")
    opened = open_site(site_settings(folder))
    assert opened.wait_for_end(opened.dataset()) == "Done"
    processes.replace_in(opened)
    yield opened
    opened.services.stop()


def test_field_names_are_found(site: Site) -> None:
    assert names_for(site.app, "/models/<job_id>/metrics.json") == ["after"]
    assert {"learning_rate", "crop_size"} <= {*names_for(site.app, "/models/<kind:kind>")}
    assert {"resize_width", "encoding"} <= {*names_for(site.app, "/datasets/images/resize-example")}
    assert "job_ids[]" in names_for(site.app, "/abort_jobs")


NUMBERS = [
    "0", "1", "-1", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400,
    "9" * 4000, "9" * 4400, "1e308", "1e999", "-1e999", "nan", "inf", "-Infinity", "0x10", "1_000", "٣", "1.5", "",
    " ", "0.1,nan", "1," * 300, "[1, 2]", "1e-400", "-0", "NaN,inf", "0.5,-3", "100",
]  # fmt: skip
TEXTS = [
    "\0", "a\0b", "\ud800", "é" * 300, "\u202e", "x" * 5000, "/" * 5000, "../../etc/passwd", "/proc/1/root/",
    "/proc/self/fd/0", "/dev/stdin", "/", "~", "~root/", "file:///etc", "http://localhost/x", "%", "%%%s{}", "<script>",
    "class UserModel(Tower):\n pass", f"class UserModel(a{'.b' * 900}): pass", "(" * 3000, "x=1\n" * 3000, "\x1b[31m",
    "true", "None", "[]", "{}", "train", "val", "png", "jpg", "none", "fill", "custom", "previous", "standard", "step",
    "multistep", "onecycle", "sigmoid", "inv", "poly", "exp", "next", "cpu", "next:999999999999", "1,2,999999", "[", "*",
]  # fmt: skip
BODIES = [
    b"", b"\xff\xfe", b"{", b"[" * 60_000, b'{"username": ' + b"[" * 5000, b"null", b'"x"', b"1" * 5000, b"=" * 5000,
    b"a=&" * 5000, b"%", b"--x\r\n\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\n--x--", b"\0" * 1000,
]  # fmt: skip
TYPES = [
    "application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x", "multipart/form-data",
    "text/plain; charset=nonsense", "application/x-www-form-urlencoded; charset=utf-16", "\xff", "",
]  # fmt: skip
HEADERS = {
    "Accept": ["text/html", "application/json", "*/*", "text/html;q=nan", "\xff", ",;=q"],
    "Cookie": ["username=\xff", "digits-0=\xff\xfe", "username=" + "x" * 3000, "digits-0=a.b.c", "=;=;", "a=\"\\777"],
    "Range": ["bytes=0-", "bytes=-1", "bytes=9999999999999999999999-", "bytes=5-1,0-0", "x"],
    "If-None-Match": ['"x"', "W/", "*"],
    "If-Modified-Since": ["never", "Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 06 Nov 99999 08:49:37 GMT"],
    "X-Fragment": ["jobs", "\xff"],
    "X-Requested-With": ["fetch"],
    "Authorization": ["Bearer \xff", "Basic !!!", "Bearer"],
    "Accept-Language": ["\xff", "en;q=x"],
    "Content-Type": TYPES,
    "Origin": ["http://localhost", "null"],
    "Sec-Fetch-Site": ["same-origin", "none", "cross-site"],
    "Referer": ["http://[", "http://localhost/", "\xff"],
}  # fmt: skip
ODD = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.text(max_size=20)


@contextmanager
def no_hang(what: str) -> Iterator[None]:
    """Interrupt a request that takes too long."""

    def interrupt(*arguments: Any) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def current_jobs(site: Site) -> list[str]:
    """Return a dataset and a model, which is recreated if a request has deleted it."""
    (dataset,) = [job for job in site.services.store.all(DatasetJob) if job.status is Status.DONE]
    models = [job.id for job in site.services.store.all(ModelJob) if job.snapshots()]
    return [dataset.id, models[0] if models else site.finished_model(dataset.id)]


def draw_request(data: st.DataObject, site: Site) -> dict[str, Any]:
    """Draw a request to one of the routes: a matching path, some fields, and sometimes headers."""
    ids = current_jobs(site)
    draw = data.draw
    rules = sorted({str(rule) for rule in site.app.url_map.iter_rules()} | {"/socket.io/"})
    rule = draw(st.sampled_from(rules), label="rule")
    methods = sorted(
        {method for item in site.app.url_map.iter_rules() if str(item) == rule for method in item.methods}
    )
    method = draw(st.sampled_from(methods or METHODS) | st.sampled_from(METHODS), label="method")

    def part(found: re.Match[str]) -> str:
        if found[1] == "kind:kind":
            return draw(st.sampled_from([kind.route for kind in all_kinds().values()]))
        choices = (
            found[1].removeprefix("any(").partition(")")[0].split(", ") if found[1].startswith("any(") else []
        )
        usual = [
            *choices,
            *(ids if "id" in found[0] or "path:" in found[0] else ["train", "zip", "mnist", "0"]),
        ]
        # Keep the dataset, which most routes need.
        odd = draw(st.sampled_from(usual) if draw(st.booleans()) else st.sampled_from(usual) | ODD)
        return quote(odd.encode("utf-8", "surrogatepass"), safe="")

    path = re.sub(r"<([^>]*)>", part, rule)
    if method == "DELETE" and ids[0] in path:
        path = path.replace(ids[0], ids[1])
    value = st.sampled_from(ids) | ODD
    names = names_for(site.app, rule)
    fields = draw(st.lists(st.tuples(st.sampled_from(names), value), max_size=8), label="fields")
    if "dataset" in rule or "model" in rule:
        fields += [("dataset", ids[0]), ("job_id", ids[1])][: draw(st.integers(0, 2))]
    encoded = urlencode(fields, errors="surrogatepass")
    headers = {
        name: draw(st.sampled_from(values), label=name)
        for name, values in HEADERS.items()
        if draw(st.integers(0, 7)) == 0
    }
    in_body = method not in ("GET", "HEAD", "OPTIONS") and draw(st.booleans())
    body = (
        draw(st.sampled_from(BODIES))
        if draw(st.integers(0, 5)) == 0
        else encoded.encode()
        if in_body
        else b""
    )
    if "DELETE" not in method and ids[0] in str(fields) and path == "/jobs":
        body = b""
    if in_body:
        headers.setdefault("Content-Type", TYPES[0])
    return {
        "method": method,
        "path": path,
        "query": "" if in_body else encoded[:6000],
        "headers": headers,
        "body": body,
    }


def send(site: Site, request: dict[str, Any]) -> int:
    builder = EnvironBuilder(path="/", method=request["method"], data=request["body"] or None)
    environ = builder.get_environ()
    # As in the server, the bytes of the request line are decoded as Latin-1.
    environ |= {
        "PATH_INFO": unquote_to_bytes(request["path"]).decode("latin-1"),
        "QUERY_STRING": request["query"],
    }
    environ |= {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "localhost"}
    for name, value in request["headers"].items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    _, status, _ = run_wsgi_app(site.app, environ, buffered=True)
    return int(status.split()[0])


def fuzz(examples: int) -> Callable[[Any], Any]:
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=quiet, database=None)


@fuzz(EXAMPLES)
@given(data=st.data())
def test_no_request_causes_a_server_error_or_hangs(site: Site, data: st.DataObject) -> None:
    request = draw_request(data, site)
    with no_hang(f"{request['method']} {request['path']}"):
        status = send(site, request)
    event(f"status {status // 100}xx")
    assert status < 500, request


@fuzz(max(15, EXAMPLES // 5))
@given(data=st.data())
def test_a_read_from_another_site_starts_no_process(
    site: Site, processes: NoProcesses, data: st.DataObject
) -> None:
    request = draw_request(data, site)
    request |= {"method": data.draw(st.sampled_from(["GET", "HEAD"])), "body": b""}
    request["headers"] |= {"Sec-Fetch-Site": data.draw(st.sampled_from(["cross-site", "same-site"]))}
    before = processes.started
    assert send(site, request) < 500
    assert processes.started == before


def test_a_page_opened_by_another_site_asks_before_starting_a_process(
    site: Site, processes: NoProcesses
) -> None:
    _, model = current_jobs(site)
    path = f"/models/{model}/savedmodel.zip?epoch=1"
    elsewhere = {"Sec-Fetch-Site": "cross-site", "Accept": "text/html"}
    page = site.get(path, headers=elsewhere)
    assert page.status_code == 403 and f'href="{path}"' in page.text
    before = processes.started
    assert site.client.head(path, headers=elsewhere).status_code == 403
    assert processes.started == before
    for own in ("same-origin", "none"):
        site.get(path, headers={"Sec-Fetch-Site": own})
    assert processes.started == before + 2


# Raw requests


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    limits = {"idle_seconds": 0.5, "header_seconds": 0.5, "body_seconds": 0.5}
    with small_server(tmp_path_factory.mktemp("line"), limits=limits) as running:
        yield running


PIECES = [
    b"GET", b"POST", b" ", b"/", b"/length", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9.9", b"\r\n", b"\n", b"\r", b"Host:",
    b"localhost", b"Host: localhost\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"5", b"-5", b"0x5",
    b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b";", b":", b"\0", b"\xff", b"\t", b"\x0b",
    b"Connection: keep-alive\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"\r\n\r\n",
    b"POST /length HTTP/1.1\r\nHost: localhost\r\n",
]  # fmt: skip


@fuzz(max(40, EXAMPLES // 5))
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=14))
def test_no_raw_request_causes_a_server_error(server: SmallServer, pieces: list[bytes]) -> None:
    with server.connect() as connection:
        connection.sendall(b"".join(pieces) + b"\r\n\r\n")
        connection.shutdown(1)
        answer = Answer.read(connection)
    assert answer.status < 500
    assert "Traceback" not in server.log
