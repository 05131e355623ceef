"""Secrets, sessions, user names, login pages and redirects."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import argon2
import flask
import jinja2
import pytest
from flask.testing import FlaskClient

from digits.core.errors import BadRequest
from digits.core.settings import Settings
from digits.web.security.auth import Auth, open_auth
from digits.web.security.gate import Gate
from digits.web.security.login import login_blueprint
from digits.web.security.origin import guard_views
from digits.web.security.redirects import safe_next
from digits.web.security.secrets import ExposureError, made_token
from digits.web.security.sessions import Sessions, current_username

PASSWORD = "correct horse"
TOKEN = "t" * 43
# Deliberately cheap hashing: no test protects real data.
PASSWORD_HASH = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


def make_auth(clock: Any = lambda: 1_000_000.0, ended: Path | None = None, **secrets: str) -> Auth:
    return Auth(Sessions("k" * 32, ended, clock), port=5000, **secrets)


def make_app(auth: Auth, **gate: Any) -> flask.Flask:
    app = flask.Flask(__name__, template_folder=None)
    app.secret_key = "s" * 32
    login = "{% for field in form %}{{ field }}{{ field.errors }}{% endfor %}[{{ next }}]{{ csrf_token() }}"
    app.jinja_env.loader = jinja2.DictLoader({"login.html": login})
    guard_views(app)
    app.register_blueprint(login_blueprint(auth))

    @app.route("/name", methods=["GET", "POST"])
    def name() -> str:
        return current_username(flask.request) or "nobody"

    @app.errorhandler(BadRequest)
    def bad(error: BadRequest) -> tuple[str, int]:
        return error.message, 400

    app.wsgi_app = Gate(app.wsgi_app, auth=auth, **gate)  # type: ignore[method-assign]
    return app


@pytest.fixture
def open_client() -> FlaskClient:
    return make_app(make_auth()).test_client()


@pytest.fixture
def locked_client() -> FlaskClient:
    return make_app(make_auth(password=PASSWORD_HASH, token=TOKEN)).test_client()


# Startup


def test_server_generates_a_token(settings: Settings) -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        auth = open_auth(replace(settings, login=True, host=host))
        assert auth.is_required({}) and auth.is_token(made_token(settings.state_dir))


def test_configured_secret_replaces_the_token(settings: Settings) -> None:
    auth = open_auth(replace(settings, login=True, password=PASSWORD_HASH))
    assert auth.is_required({}) and auth.is_secret(PASSWORD) and not auth.token
    assert not (settings.state_dir / "token").exists()


def test_login_can_be_disabled(settings: Settings) -> None:
    assert not open_auth(settings).is_required({})
    assert not (settings.state_dir / "token").exists()


def test_short_password_is_refused() -> None:
    with pytest.raises(ExposureError, match="8 characters"):
        make_auth(password="short")


@pytest.mark.parametrize("secret", ["token", "password"])
def test_new_secret_ends_all_sessions(settings: Settings, secret: str) -> None:
    def opened(**secrets: str) -> Sessions:
        return open_auth(replace(settings, login=True, **secrets)).sessions

    cookie = opened(**{secret: "first secret"}).start("fred")
    assert opened(**{secret: "first secret"}).read(cookie) is not None
    assert opened(**{secret: "second secret"}).read(cookie) is None
    other = "password" if secret == "token" else "token"
    assert opened(**{secret: "first secret", other: "another secret"}).read(cookie) is None
    assert opened(**{other: "first secret"}).read(cookie) is None


def test_new_generated_token_ends_all_sessions(settings: Settings) -> None:
    public = replace(settings, login=True, host="0.0.0.0")
    cookie = open_auth(public).sessions.start("fred")
    assert open_auth(public).sessions.read(cookie) is not None
    (settings.state_dir / "token").unlink()
    assert open_auth(public).sessions.read(cookie) is None


# Secrets


def test_token_and_password_are_compared() -> None:
    auth = make_auth(token=TOKEN, password=PASSWORD_HASH)
    assert auth.is_secret(TOKEN) and auth.is_secret(PASSWORD)
    for wrong in ("", TOKEN[:-1], TOKEN + "t", PASSWORD.upper(), "ß", "\ud800", PASSWORD_HASH, "x" * 100_000):
        assert not auth.is_secret(wrong)


def test_plain_password_is_stored_as_a_hash() -> None:
    auth = make_auth(password=PASSWORD)
    assert auth.is_secret(PASSWORD) and not auth.is_secret("correct horses")
    assert PASSWORD not in repr(vars(auth))


def test_damaged_password_hash_admits_nobody() -> None:
    assert not make_auth(password="$argon2id$nonsense").is_secret(PASSWORD)


# Names


def test_name_comes_from_argument_form_or_cookie(open_client: FlaskClient) -> None:
    assert open_client.get("/name").text == "nobody"
    assert open_client.get("/name?username=fred").text == "fred"
    assert open_client.post("/name", data={"username": "fred"}).text == "fred"
    open_client.set_cookie("username", "anna")
    assert open_client.get("/name").text == "anna"
    assert open_client.get("/name?username=fred").text == "fred"


@pytest.mark.parametrize("name", ["a b", "-a", "x" * 65, "<b>", "a\nb", "a/b", "\x00", "‮abc"])
def test_invalid_name_in_an_argument_is_refused(open_client: FlaskClient, name: str) -> None:
    assert open_client.get("/name", query_string={"username": name}).status_code == 400
    assert open_client.post("/login", data={"username": name}).status_code == 400


def test_invalid_name_in_a_cookie_is_ignored(open_client: FlaskClient) -> None:
    open_client.set_cookie("username", "<script>")
    assert open_client.get("/name").text == "nobody"


# Logging in without a secret


def test_name_is_stored_in_a_cookie(open_client: FlaskClient) -> None:
    answer = open_client.post("/login", data={"username": " fred "})
    assert answer.status_code == 302 and answer.location == "/"
    assert open_client.get("/name").text == "fred"
    assert open_client.post("/logout").status_code == 302
    assert open_client.get("/name").text == "nobody"


def test_loopback_login_only_asks_for_a_name(open_client: FlaskClient) -> None:
    page = open_client.get("/login").text
    assert 'name="username"' in page and 'type="password"' not in page
    empty = open_client.post("/login", data={})
    assert empty.status_code == 400 and "Enter a user name" in empty.text


# Logging in with a secret


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN])
def test_login_with_a_secret(locked_client: FlaskClient, secret: str) -> None:
    assert locked_client.get("/name").status_code == 401
    answer = locked_client.post("/login", data={"username": "fred", "password": secret, "next": "/name"})
    assert answer.status_code == 302 and answer.location == "/name"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("digits-5000=")
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert locked_client.get("/name").text == "fred"


def test_name_from_the_login_overrides_an_argument(locked_client: FlaskClient) -> None:
    locked_client.post("/login", data={"username": "fred", "password": PASSWORD})
    locked_client.set_cookie("username", "anna")
    assert locked_client.get("/name?username=anna").text == "fred"
    assert locked_client.post("/name", data={"username": "anna"}).text == "fred"


def test_login_over_https_sets_a_host_cookie(locked_client: FlaskClient) -> None:
    answer = locked_client.post("/login", data={"password": PASSWORD}, base_url="https://localhost")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-digits=") and "Secure" in cookie and "Path=/" in cookie
    assert "Domain" not in cookie


def test_login_below_a_prefix_limits_its_cookie_to_it() -> None:
    client = make_app(make_auth(password=PASSWORD_HASH), url_prefix="/digits").test_client()
    for scheme, name in (("http", "digits-5000"), ("https", "__Secure-digits-5000")):
        answer = client.post(
            "/digits/login", data={"password": PASSWORD, "username": "fred"}, base_url=f"{scheme}://localhost"
        )
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"{name}=") and "Path=/digits" in cookie.split("; ")
        assert client.get("/digits/name", base_url=f"{scheme}://localhost").text == "fred"
        client.post("/digits/logout", base_url=f"{scheme}://localhost")
        assert client.get("/digits/name", base_url=f"{scheme}://localhost").status_code == 401


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("prefix", ["", "/digits"])
def test_all_cookies_have_the_same_attributes(scheme: str, prefix: str) -> None:
    base_url = f"{scheme}://localhost"
    cookies = []
    for secrets in ({}, {"password": PASSWORD_HASH}):
        client = make_app(make_auth(**secrets), url_prefix=prefix).test_client()
        fields = {"username": "fred", "password": PASSWORD}
        for answer in (
            client.get(f"{prefix}/login", base_url=base_url),
            client.post(f"{prefix}/login", data=fields, base_url=base_url),
            client.post(f"{prefix}/logout", base_url=base_url),
        ):
            cookies += answer.headers.getlist("Set-Cookie")
    assert len(cookies) == 8
    for cookie in cookies:
        attributes = cookie.split("; ")
        assert ("Secure" in attributes) == (scheme == "https")
        assert f"Path={prefix or '/'}" in attributes
        assert "HttpOnly" in attributes and "SameSite=Lax" in attributes


@pytest.mark.parametrize("fields", [{}, {"password": ""}, {"password": "wrong"}, {"username": "fred"}])
def test_wrong_secret_is_refused(locked_client: FlaskClient, fields: dict[str, str]) -> None:
    page = locked_client.post("/login", data=fields)
    assert page.status_code == 401 and 'type="password"' in page.text
    assert "digits-5000" not in page.headers.get("Set-Cookie", "")
    answer = locked_client.post("/login", json=fields)
    assert answer.status_code == 401 and answer.json is not None and answer.json["error"]["message"]


@pytest.mark.parametrize("body", [[], "text", 7, None, {"username": {"a": 1}, "password": [1]}])
def test_invalid_json_is_refused(locked_client: FlaskClient, body: Any) -> None:
    answer = locked_client.post("/login", data=json.dumps(body), content_type="application/json")
    assert answer.status_code == 401


def test_scripts_get_json(locked_client: FlaskClient) -> None:
    answer = locked_client.post("/login", json={"username": "fred", "password": PASSWORD})
    assert answer.status_code == 200 and answer.json == {"username": "fred"}
    assert locked_client.post("/logout", headers={"Accept": "application/json"}).json == {"username": None}


def test_logout_invalidates_every_copy_of_the_cookie(locked_client: FlaskClient) -> None:
    locked_client.post("/login", data={"password": PASSWORD})
    cookie = locked_client.get_cookie("digits-5000")
    assert cookie is not None
    locked_client.post("/logout")
    assert locked_client.get_cookie("digits-5000") is None
    locked_client.set_cookie("digits-5000", cookie.value)
    assert locked_client.get("/name").status_code == 401


def test_new_login_ends_the_old_session(locked_client: FlaskClient) -> None:
    locked_client.post("/login", data={"password": PASSWORD})
    first = locked_client.get_cookie("digits-5000")
    locked_client.post("/login", data={"password": PASSWORD})
    second = locked_client.get_cookie("digits-5000")
    assert first is not None and second is not None and first.value != second.value
    locked_client.set_cookie("digits-5000", first.value)
    assert locked_client.get("/name").status_code == 401


def test_logout_requires_post(locked_client: FlaskClient) -> None:
    locked_client.post("/login", data={"password": PASSWORD})
    assert locked_client.get("/logout").status_code == 405
    assert locked_client.get("/name").status_code == 200


# Redirects after a login

BAD_TARGETS = [
    "http://evil.example", "https://evil.example/", "HTTP://evil.example", "//evil.example", "///evil.example",
    "////evil.example", "/\\evil.example", "\\\\evil.example", "\\/evil.example", "/\\/evil.example", "evil.example",
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "http:evil.example",
    "http:/evil.example", "http:///evil.example", "https:\\\\evil.example", "ftp://evil.example", "://evil.example",
    "/\t/evil.example", "/\n/evil.example", "/\r/evil.example", "\t//evil.example", "/ /evil.example",
    " //evil.example", " /", "/\x00/evil.example", "/\x0b/evil.example", "/\x7f", "//evil.example/%2f..", "/%09\\evil.example\\",
    "//localhost@evil.example", "//localhost:5000@evil.example", "@evil.example", "//[::1]", "//[", "?next=/", "#/",
    "..//evil.example", "./", "../", "/..//evil.example", "/.//evil.example", "/a//evil.example", "//evil%2eexample",
    "//3627734734", "//evil。example", "\u2028//evil.example", "//\u200bevil.example", "http://[::1",
    "", "/" + "a" * 3000,
    "/\r\nSet-Cookie: a=b", "//;@evil.example", "blob:http://evil.example/x",
]  # fmt: skip
GOOD_TARGETS = [
    "/",
    "/models/1",
    "/login?a=b",
    "/a?next=http://other.example",
    "/a#b",
    "/%2f%2fa",
    "/a:b",
    "/ä",
]


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_login_never_redirects_to_another_site(open_client: FlaskClient, target: str) -> None:
    assert safe_next(target) == ""
    for place in ("form", "query"):
        fields = {"username": "fred", **({"next": target} if place == "form" else {})}
        query = {"next": target} if place == "query" else {}
        answer = open_client.post("/login", data=fields, query_string=query)
        assert answer.status_code == 302 and answer.location == "/"
    assert "[]" in open_client.get("/login", query_string={"next": target}).text


@pytest.mark.parametrize("target", GOOD_TARGETS)
def test_login_redirects_back(open_client: FlaskClient, target: str) -> None:
    assert safe_next(target) == target
    answer = open_client.post("/login", data={"username": "fred", "next": target})
    assert answer.location.startswith("/") and not answer.location.startswith("//")


# Form tokens


def test_browsers_must_send_the_form_token(open_client: FlaskClient) -> None:
    browser = {"Origin": "http://localhost"}
    assert open_client.post("/name", headers=browser).status_code == 400
    assert open_client.post("/name", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 400
    token = open_client.get("/login").text.rpartition("]")[2]
    assert open_client.post("/name", headers=browser | {"X-CSRFToken": token}).status_code == 200
    assert open_client.post("/name", headers=browser, data={"csrf_token": token}).status_code == 200
    assert open_client.post("/name", headers=browser, data={"csrf_token": token[:-3]}).status_code == 400
