"""Authentication, and the user names that label jobs.

Anyone with access can run programs as the server's user. So a connection that
belongs to that user needs no login on a loopback address; everyone else needs the
token or the password. User names label jobs and are never verified.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import argon2
from flask import (
    Blueprint,
    Flask,
    Request,
    Response,
    g,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
)
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask_wtf import FlaskForm
from flask_wtf.csrf import CSRFProtect
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.http import dump_cookie, parse_cookie
from wtforms import PasswordField, StringField

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.settings import LoginPolicy, Settings
from digits.web.offload import in_thread
from digits.web.security.peers import CONNECTION, Peer

log = logging.getLogger(__name__)

VISITOR = "digits.visitor"
# Whether the request had proxy headers, which the gate removes.
FORWARDED = "digits.forwarded"
USERNAME_COOKIE = "username"
USERNAME = re.compile(r"\w[\w.@+-]{0,63}")

# TensorBoard's page sends queries as POST without our CSRF token.
_WITHOUT_TOKEN = ("digits.web.models.tensorboard.proxy",)

IDLE_SECONDS = 7 * 24 * 3600
LONGEST_SECONDS = 30 * 24 * 3600
RENEW_SECONDS = 3600
SHORTEST_PASSWORD = 8
LONGEST_PASSWORD = 1000


class ExposureError(Exception):
    """A secret of the server is too weak or readable by others. The message names the remedy."""


def read_or_make_secret(path: Path) -> str:
    """Read the secret in ``path``; create one of 256 bits, with mode 0600, if there is none.

    Raises ExposureError if the file, or a link in its place, is accessible to others.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_secret(path)
    secret = secrets.token_urlsafe(32)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secret + "\n")
    except OSError:
        path.unlink(missing_ok=True)  # An empty file would keep the server from starting.
        raise
    return secret


def _read_secret(path: Path) -> str:
    advice = f"Delete {path} to generate a new one."
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ExposureError(f"The secret in {path} cannot be read: {error.strerror}. {advice}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ExposureError(f"{path} is not a regular file that you own. {advice}")
        if status.st_mode & 0o077:
            raise ExposureError(f"Other users of this machine can read the secret in {path}. {advice}")
        secret = os.read(descriptor, 1000).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(secret) < 16:
        raise ExposureError(f"{path} does not contain a secret. {advice}")
    return secret


@dataclass(frozen=True)
class Session:
    """The contents of the login cookie. ``started`` and ``renewed`` are Unix times."""

    id: str
    username: str
    started: int
    renewed: int


class Sessions:
    """Logins as signed cookies. Only sessions that ended early are stored, in ``ended_file``."""

    def __init__(
        self, secret_key: str, ended_file: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._serializer = URLSafeSerializer(secret_key, salt="digits-session")
        self._ended_file = ended_file
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = self._load()

    def start(self, username: str) -> str:
        """Return the cookie of a new session."""
        now = int(self._clock())
        return self._sign(Session(secrets.token_urlsafe(16), username, now, now))

    def read(self, cookie: str) -> Session | None:
        """Return the session of ``cookie``; None if it is forged, expired, or logged out."""
        try:
            session = Session(**self._serializer.loads(cookie))
            over = self._is_over(session)
        except (BadData, TypeError, ValueError):  # includes text that is not ASCII
            return None
        return None if over else session

    def renewed(self, session: Session) -> str | None:
        """Return a new cookie for a session in use; None if the old one need not be renewed."""
        now = int(self._clock())
        if now - session.renewed < RENEW_SECONDS:
            return None
        return self._sign(replace(session, renewed=now))

    def end(self, session: Session) -> None:
        """Invalidate all cookies of this session, also after a restart."""
        now = self._clock()
        with self._lock:
            self._ended[session.id] = session.started + LONGEST_SECONDS
            self._ended = {name: until for name, until in self._ended.items() if until > now}
            if self._ended_file is not None:
                try:
                    write_json(self._ended_file, self._ended)
                except OSError as error:
                    # The session has ended in memory; the next logout saves it as well.
                    log.error(
                        "a logout could not be saved, so its session is valid again after a restart: %s",
                        error,
                    )

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        idle, age = now - session.renewed, now - session.started
        return idle > IDLE_SECONDS or age > LONGEST_SECONDS or session.id in self._ended

    def _sign(self, session: Session) -> str:
        text = self._serializer.dumps(asdict(session))
        return text if isinstance(text, str) else text.decode()

    def _load(self) -> dict[str, float]:
        if self._ended_file is None:
            return {}
        try:
            return read_json(self._ended_file, dict[str, float])
        except UnreadableFile:
            return {}


@dataclass(frozen=True)
class Visitor:
    """The sender of an admitted request: identified by a session cookie, by the token, or without a login."""

    session: Session | None = None


class Auth:
    """Checks requests against the secrets of this server.

    With ``admit_own_user``, connections from the user of this process need no secret.
    ``port`` becomes part of the cookie's name, because browsers share cookies
    between the ports of a host. The functions in ``on_logout`` are called with
    the id of a session that has ended.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        token: str = "",
        password: str = "",
        port: int | str = "",
        admit_own_user: bool = False,
    ) -> None:
        self.sessions = sessions
        self.token = token
        self.on_logout: list[Callable[[str], None]] = []
        self._hasher = argon2.PasswordHasher()
        self._password_hash = self._hashed(password)
        self._port = port
        self._admit_own_user = admit_own_user

    def is_required(self, environ: Mapping[str, Any]) -> bool:
        """Whether this request requires a login."""
        if not (self.token or self._password_hash):
            return False
        return not self._admit_own_user or self._why_foreign(environ) != ""

    def why_required(self, environ: Mapping[str, Any]) -> str:
        """Why this request requires a login although the server's own user needs none, as a sentence; or empty."""
        return self._why_foreign(environ) if self._admit_own_user else ""

    def visitor(self, environ: Mapping[str, Any]) -> Visitor | None:
        """The sender of this request; None if a login is required first."""
        is_required = self.is_required(environ)
        if is_required and self.has_bearer(environ):
            return Visitor() if self.is_token(_bearer(environ)) else None
        session = self.sessions.read(parse_cookie(dict(environ)).get(self.cookie_name(environ), ""))
        if is_required and session is None:
            return None
        return Visitor(session)

    def _why_foreign(self, environ: Mapping[str, Any]) -> str:
        """Why this request is not known to come from the user of this process; empty if it does."""
        connection: Peer | None = environ.get(CONNECTION)
        if environ.get(FORWARDED):
            return "This request came through a proxy, so the server cannot determine who sent it."
        if connection is None or connection.uid is None:
            return "The server cannot determine which user of this computer opened the connection."
        return (
            "" if connection.is_own else "The connection belongs to another user, not to the server's user."
        )

    def has_bearer(self, environ: Mapping[str, Any]) -> bool:
        return str(environ.get("HTTP_AUTHORIZATION", ""))[:7].lower() == "bearer "

    def is_token(self, text: str) -> bool:
        return bool(self.token) and hmac.compare_digest(
            text.encode("utf-8", "replace"), self.token.encode("utf-8", "replace")
        )

    def is_secret(self, text: str) -> bool:
        """Return whether ``text`` is the password, or the token entered instead."""
        if self.is_token(text):
            return True
        if not self._password_hash or not 0 < len(text) <= LONGEST_PASSWORD:
            return False
        try:
            # Takes about 50 ms by design.
            return bool(in_thread(self._hasher.verify, self._password_hash, text.encode("utf-8", "replace")))
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    def cookie_name(self, environ: Mapping[str, Any]) -> str:
        if not is_https(environ):
            return f"digits-{self._port}"
        # Browsers accept the prefix __Host- for the root path only.
        return "__Host-digits" if cookie_path(environ) == "/" else f"__Secure-digits-{self._port}"

    def cookie_header(self, environ: Mapping[str, Any], value: str) -> str:
        """The ``Set-Cookie`` header that stores ``value``, or deletes the cookie if it is empty."""
        return cookie_header(environ, self.cookie_name(environ), value)

    def end(self, session: Session) -> None:
        """Log a session out everywhere."""
        self.sessions.end(session)
        for listener in self.on_logout:
            listener(session.id)

    def _hashed(self, password: str) -> str:
        if password.startswith("$argon2"):
            return password
        if 0 < len(password) < SHORTEST_PASSWORD:
            raise ExposureError(f"The password must have at least {SHORTEST_PASSWORD} characters.")
        return self._hasher.hash(password) if password else ""


def open_auth(settings: Settings) -> Auth:
    """The Auth of a server, whose keys and ended sessions are stored in ``settings.state_dir``.

    If a login is required and no secret is set, a token is generated and stored there: see
    `made_token`. The server must not serve files of that folder. Changing the
    token or password ends all sessions. Raises ExposureError for an unsafe secret.
    """
    folder, policy = settings.state_dir, settings.login_policy
    token, password = settings.token, settings.password
    key = read_or_make_secret(folder / "cookie-key")
    if policy is not LoginPolicy.NOBODY and not (token or password):
        token = made_token(folder)
    cookie_key = hmac.digest(key.encode(), f"{token}\0{password}".encode("utf-8", "replace"), "sha256")
    return Auth(
        Sessions(cookie_key.hex(), folder / "ended-sessions.json"),
        token=token,
        password=password,
        port=settings.port,
        admit_own_user=policy is LoginPolicy.OTHER_USERS,
    )


def made_token(folder: Path) -> str:
    """Read or generate, in ``folder``, the token of a server without configured secrets."""
    return read_or_make_secret(folder / "token")


def safe_next(text: str | None) -> str:
    """Return ``text`` if it is a path of this site, else an empty string.

    Browsers drop control characters and treat a backslash as a slash, so both are rejected.
    """
    if not text or len(text) > 2000 or not text.startswith("/") or text.startswith("//"):
        return ""
    if "\\" in text or any(ord(character) <= 32 or ord(character) == 127 for character in text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return "" if parts.scheme or parts.netloc or "//" in parts.path else text


def site_path(environ: Mapping[str, Any], query: str) -> str:
    """The path of this request as the browser wrote it, with another query; safe to redirect to."""
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1", "replace")
    encoded = "/" + re.sub("/+", "/", quote(path, safe="/:@!$&'()*+,;=~-._")).lstrip("/")
    return f"{encoded}?{query}" if query else encoded


def login_name(request: Request) -> str | None:
    """The user name of this request's login: from its session, else from its cookie."""
    return _session_name(request) or _cookie_name(request)


def own_address(request: Request) -> str:
    """The path and query of this request, as a link back to it."""
    return site_path(request.environ, request.query_string.decode("latin-1"))


def current_username(request: Request) -> str | None:
    """The user name of this request: from its session, its ``username`` argument, or its cookie.

    Raises BadRequest if the argument is not a valid name.
    """
    return _username_given(request.args.get("username") or request.form.get("username"), request)


def _username_given(given: str | None, request: Request) -> str | None:
    argument = checked_username(given) if given else None
    return _session_name(request) or argument or _cookie_name(request)


def _session_name(request: Request) -> str | None:
    visitor = request.environ.get(VISITOR)
    return (visitor.session.username or None) if visitor is not None and visitor.session is not None else None


def _cookie_name(request: Request) -> str | None:
    kept = request.cookies.get(USERNAME_COOKIE, "")
    return kept if USERNAME.fullmatch(kept) else None


def shown_username(request: Request) -> str | None:
    """The name to show on a page: like `current_username`, but ignoring form fields and invalid names."""
    try:
        return _username_given(request.args.get("username"), request)
    except BadRequest:
        return None


def checked_username(text: str) -> str:
    """Strip ``text``; raises BadRequest if it is not a valid user name."""
    name = text.strip()
    if not USERNAME.fullmatch(name):
        raise BadRequest(
            "A user name has 1 to 64 letters, digits, dots, dashes, underscores, plus or at signs, "
            "and starts with a letter, digit or underscore."
        )
    return name


class LoginForm(FlaskForm):  # type: ignore[misc]
    """A user name, and the secret if one is required."""

    username = StringField("User name")
    password = PasswordField("Password or token")


def login_blueprint(auth: Auth) -> Blueprint:
    """Add the pages ``/login`` and ``/logout``, for browsers and for scripts that request JSON."""
    blueprint = Blueprint("auth", __name__)

    @blueprint.get("/login")
    def login() -> Any:
        return _login_page(auth)

    @blueprint.post("/login")
    def login_post() -> Any:
        return _log_in(auth)

    @blueprint.post("/logout")
    def logout() -> Any:
        return _log_out(auth)

    return blueprint


class _FormSessions(SecureCookieSessionInterface):
    """Flask's sessions, which hold the CSRF token, with the same cookie options as all others of this server."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()  # without Flask's search for a signature, which is slow
        return super().open_session(app, request)

    def get_cookie_path(self, app: Flask) -> str:
        return cookie_path(request.environ)

    def get_cookie_secure(self, app: Flask) -> bool:
        return is_https(request.environ)


def protect_forms(app: Flask, port: int | str = "") -> CSRFProtect:
    """Require a CSRF token from browsers on writes. Requires ``app.secret_key``.

    The gate already refuses writes from other sites by their headers; this is a
    second line of defense. Programs send neither ``Origin`` nor ``Sec-Fetch-Site`` and need no
    token. Templates can call ``csrf_token()``. ``port`` separates the cookies of servers on one host.
    """
    app.config.update(
        WTF_CSRF_CHECK_DEFAULT=False,  # decided below
        WTF_CSRF_TIME_LIMIT=None,  # a page may stay open for days
        WTF_CSRF_SSL_STRICT=False,  # the gate compares the origin
        SESSION_COOKIE_NAME=f"digits-form-{port}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
    )
    app.session_interface = _FormSessions()
    protection = CSRFProtect(app)
    for view in _WITHOUT_TOKEN:
        protection.exempt(view)

    @app.before_request
    def check_form_token() -> None:
        if "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
            protection.protect(apply_exemptions=True)
        else:
            g.csrf_valid = True  # otherwise the forms would require the token

    return protection


def _log_in(auth: Auth) -> Any:
    body = request.get_json(silent=True) if request.is_json else request.form
    fields = body if isinstance(body, Mapping) else {}
    username, secret = (
        str(fields.get(name) or "")[: LONGEST_PASSWORD + 1] for name in ("username", "password")
    )
    problem = _login_problem(auth, username, secret)
    if problem is not None:
        status = 401 if problem[0] == "password" else 400
        if _wants_json():
            return jsonify(error={"message": problem[1], "type": "LoginError"}), status
        return _login_page(auth, problem, status)
    name = username.strip()
    response: Response
    if _wants_json():
        response = make_response(jsonify(username=name or None))
    else:
        response = make_response(redirect(_next()))
    if auth.is_required(request.environ):
        _end_session(auth)
        cookie = auth.cookie_header(request.environ, auth.sessions.start(name))
    else:
        cookie = cookie_header(request.environ, USERNAME_COOKIE, name)
    response.headers.add("Set-Cookie", cookie)
    return response


def _log_out(auth: Auth) -> Any:
    _end_session(auth)
    answer = jsonify(username=None) if _wants_json() else redirect(_next())
    response: Response = make_response(answer)
    response.headers.add("Set-Cookie", auth.cookie_header(request.environ, ""))
    response.headers.add("Set-Cookie", cookie_header(request.environ, USERNAME_COOKIE, ""))
    return response


def _end_session(auth: Auth) -> None:
    visitor = request.environ.get(VISITOR)
    if visitor is not None and visitor.session is not None:
        auth.end(visitor.session)


def _login_problem(auth: Auth, username: str, secret: str) -> tuple[str, str] | None:
    """The field that makes this login fail and why. A name is required only if no secret is."""
    is_required = auth.is_required(request.environ)
    if is_required and not auth.is_secret(secret):
        return "password", "Wrong password or token." if secret else "Enter a password or token."
    if not username.strip():
        return None if is_required else ("username", "Enter a user name.")
    try:
        checked_username(username)
    except BadRequest as error:
        return "username", error.message
    return None


def _login_page(auth: Auth, problem: tuple[str, str] | None = None, status: int = 200) -> Any:
    form = LoginForm(formdata=None, username=request.form.get("username", "")[:64])
    if not auth.is_required(request.environ):
        del form.password
    if problem is not None:
        field, message = problem
        form[field].errors = [message]
    target = safe_next(request.values.get("next"))
    why = auth.why_required(request.environ)
    return render_template("login.html", form=form, next=target, why=why), status


def _next() -> str:
    return safe_next(request.values.get("next")) or f"{request.script_root}/"


def _wants_json() -> bool:
    """Return whether JSON is preferred to a page; programs that accept anything get redirects, as from DIGITS."""
    accepted = request.accept_mimetypes
    return request.is_json or accepted["application/json"] > accepted["text/html"]


def _bearer(environ: Mapping[str, Any]) -> str:
    return str(environ.get("HTTP_AUTHORIZATION", ""))[7:].strip()


def cookie_header(environ: Mapping[str, Any], name: str, value: str) -> str:
    """The ``Set-Cookie`` header that stores ``value`` as ``name``, or deletes that cookie if ``value`` is empty."""
    return dump_cookie(
        name,
        value,
        max_age=LONGEST_SECONDS if value else 0,
        path=cookie_path(environ),
        secure=is_https(environ),
        httponly=True,
        samesite="Lax",
    )


def cookie_path(environ: Mapping[str, Any]) -> str:
    """The path of the site, to which its cookies are limited so that other programs on the host do not receive them."""
    return str(environ.get("SCRIPT_NAME") or "/")


def is_https(environ: Mapping[str, Any]) -> bool:
    return environ.get("wsgi.url_scheme") == "https"
