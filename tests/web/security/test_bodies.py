"""Request bodies that would take long to parse are refused before parsing."""

from __future__ import annotations

import io
import tracemalloc
from urllib.parse import urlencode

import flask
import pytest
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge

from digits.web.security.bodies import MAX_BODY_BYTES, MAX_JSON_BYTES, QUICK_FORM_BYTES, BoundedRequest
from tests.site import Site

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
CHUNKED = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


@pytest.fixture
def app() -> flask.Flask:
    made = flask.Flask(__name__)
    made.request_class = BoundedRequest
    made.config.update(MAX_FORM_PARTS=1000, MAX_FORM_MEMORY_SIZE=1_000_000)
    return made


@pytest.mark.parametrize("size", [10, QUICK_FORM_BYTES * 2])
def test_long_forms_are_parsed(app: flask.Flask, size: int) -> None:
    fields = {"a": "ä\n&=" * (size // 4), "b": ""}
    with app.test_request_context(method="POST", data=urlencode(fields), headers=FORM):
        assert flask.request.form.to_dict() == fields


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(4))
def test_escape_sequences_are_decoded_in_little_memory(app: flask.Flask, shift: int) -> None:
    text = "a" * shift + "\n" * 250_000 + "é+" * 20_000
    with app.test_request_context(method="POST", data=urlencode({"a": text}), headers=FORM):
        tracemalloc.start()
        try:
            assert flask.request.form["a"] == text
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


def test_odd_forms_are_decoded(app: flask.Flask) -> None:
    data = "a=1&&=2&b&c=%&d=%zz%2&e=x=y&f=%ff+%C3%A9&é=é"
    expected = {"a": "1", "": "2", "b": "", "c": "%", "d": "%zz%2", "e": "x=y", "f": "%FF é", "é": "é"}
    with app.test_request_context(method="POST", data=data, headers=FORM):
        assert flask.request.form.to_dict() == expected


@pytest.mark.parametrize("body", ["a=&" * 1000, "a=" + "b" * 1_000_001])
def test_forms_over_the_limits_are_refused(app: flask.Flask, body: str) -> None:
    with (
        app.test_request_context(method="POST", data=body, headers=FORM),
        pytest.raises(RequestEntityTooLarge),
    ):
        _ = flask.request.form


MULTIPART = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="a"'


def test_multipart_forms_are_parsed(app: flask.Flask) -> None:
    file = b"\r\n--xy\r\n--x-\r\r\n\n" * 40_000
    body = (
        PART + b"\r\n\r\n\xc3\xa9\r\n" + PART + b'; filename="\xc3\xa9.png"\r\n\r\n' + file + b"\r\n--x--\r\n"
    )
    with app.test_request_context(method="POST", data=body, content_type=MULTIPART) as context:
        assert context.request.form.to_dict() == {"a": "é"}
        (upload,) = context.request.files.getlist("a")
        assert (upload.filename, upload.name, upload.read()) == ("é.png", "a", file)
        context.request.close()


@pytest.mark.parametrize(
    "body",
    [
        (PART + b"\r\n\r\n" + b"x" * 400_000 + b"\r\n") * 3,
        PART + b"\r\nX: y" * 20_000 + b"\r\n\r\n",
        b"--x\r\n" * 100_000,
        (PART + b"\r\n\r\n\r\n") * 1001,
        (PART + b'; filename="a"\r\n\r\n' + b"x" * 600_000 + b"\r\n") + b"--x\r\n" + b"x" * 200_000,
    ],
    ids=["text", "headers", "boundaries", "parts", "headers after a file"],
)
def test_large_parts_in_memory_are_refused(app: flask.Flask, body: bytes) -> None:
    with (
        app.test_request_context(method="POST", data=body + b"--x--", content_type=MULTIPART),
        pytest.raises(RequestEntityTooLarge),
    ):
        _ = flask.request.form


@pytest.mark.parametrize("end", [b"", b"\r\n--x", b"\r\n--x\r\n\r\n"])
def test_an_incomplete_form_is_empty(app: flask.Flask, end: bytes) -> None:
    file = PART + b'; filename="a"\r\n\r\n' + b"x" * 600_000
    for data, content_type in ((file + b"\r\n" + file + end, MULTIPART), (file + end, "multipart/form-data")):
        with app.test_request_context(method="POST", data=data, content_type=content_type) as context:
            assert not context.request.files and not context.request.form


@pytest.mark.parametrize("body", ["[" * 50_000, "{", "\xff", "1" * 5000])
def test_unreadable_json_is_none(app: flask.Flask, body: str) -> None:
    with app.test_request_context(method="POST", data=body, content_type="application/json"):
        assert flask.request.get_json(silent=True) is None
        assert flask.request.form.to_dict() == {}
        with pytest.raises(BadRequest, match="is not valid JSON"):
            flask.request.get_json()


def test_halves_of_characters_in_json_are_replaced(app: flask.Flask) -> None:
    body = r'{"job_name": "a\ud800"}'
    with app.test_request_context(method="POST", data=body, content_type="application/json"):
        assert flask.request.get_json() == {"job_name": "a�"}


def test_json_is_limited(app: flask.Flask) -> None:
    body = "[" + "0," * MAX_JSON_BYTES + "0]"
    with (
        app.test_request_context(method="POST", data=body, content_type="application/json"),
        pytest.raises(RequestEntityTooLarge),
    ):
        flask.request.get_json()


@pytest.mark.parametrize("path", ["/pretrained_models/upload_archive", "/pretrained_models/new"])
def test_a_body_that_is_not_uploaded_in_files_is_not_read(site: Site, path: str) -> None:
    pulled = io.BytesIO(b"a=" + b"b" * 40_000_000)
    for content_type in (FORM["Content-Type"], "application/json", "image/png"):
        pulled.seek(0)
        for size in ({"content_length": 40_000_002}, {"environ_overrides": CHUNKED}):
            answer = site.client.post(path, input_stream=pulled, content_type=content_type, **size)
            assert answer.status_code in (400, 413)  # 400 for a body that the view does not read
        assert pulled.tell() < 2 * MAX_BODY_BYTES


@pytest.mark.parametrize("path", ["/login", "/static/x.js", "/nothing", "/models/lint", "/jobs/x"])
def test_many_fields_are_refused_and_the_error_page_does_not_parse_them(site: Site, path: str) -> None:
    for body, kind in (("a=&" * 20_000, FORM["Content-Type"]), ("[" * 60_000, "application/json")):
        answer = site.client.post(path, data=body, headers={**FORM, "Content-Type": kind})
        assert answer.status_code in (200, 400, 404, 405, 413), (path, kind)
    body = "".join(
        f'--x\r\nContent-Disposition: form-data; name="a{number}"\r\n\r\n\r\n' for number in range(1100)
    )
    answer = site.client.post(path, data=body + "--x--", content_type="multipart/form-data; boundary=x")
    assert answer.status_code in (404, 405, 413)
