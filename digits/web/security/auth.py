"""Who needs a login, and which secrets admit them.

Anyone with access can run programs as the server's user. So a connection that
belongs to that user needs no login on a loopback address; everyone else needs the
token or the password. User names label jobs and are never verified.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import argon2
from werkzeug.http import parse_cookie

from digits.core.settings import LoginPolicy, Settings
from digits.runtime.offload import in_thread
from digits.web.security.environ import FORWARDED, Environ, query_of, wants_page
from digits.web.security.peers import CONNECTION, Peer
from digits.web.security.redirects import site_path
from digits.web.security.refusals import RefusalError
from digits.web.security.secrets import ExposureError, made_token, read_or_make_secret
from digits.web.security.sessions import Session, Sessions, Visitor, cookie_header, cookie_path, is_https

SHORTEST_PASSWORD = 8
LONGEST_PASSWORD = 1000


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
        self.admits_own_user = admit_own_user

    def is_required(self, environ: Mapping[str, Any]) -> bool:
        """Whether this request requires a login."""
        if not (self.token or self._password_hash):
            return False
        return not self.admits_own_user or self._why_not_own(environ) != ""

    def why_required(self, environ: Mapping[str, Any]) -> str:
        """Why this request requires a login although the server's own user needs none, as a sentence; or empty."""
        return self._why_not_own(environ) if self.admits_own_user else ""

    def refusal(self, environ: Environ) -> RefusalError:
        """Return a redirect to the login page, or 401 for programs, for a request that requires a login."""
        if environ["REQUEST_METHOD"] in ("GET", "HEAD") and wants_page(environ):
            query = urlencode([item for item in query_of(environ) if item[0] != "token"])
            target = quote(site_path(environ, query), safe="/")
            login = quote(environ.get("SCRIPT_NAME", "").encode("latin-1", "replace")) + "/login"
            return RefusalError(302, "Log in first.", [("Location", f"{login}?next={target}")])
        how = "Log in at /login, or send the token as Authorization: Bearer TOKEN."
        reason = f"{self.why_required(environ)} {how}".lstrip()
        return RefusalError(401, reason, [("WWW-Authenticate", 'Bearer realm="DIGITS"')])

    def visitor(self, environ: Mapping[str, Any]) -> Visitor | None:
        """The sender of this request; None if a login is required first."""
        is_required = self.is_required(environ)
        if is_required and self.has_bearer(environ):
            return Visitor() if self.is_token(_bearer(environ)) else None
        session = self.sessions.read(parse_cookie(dict(environ)).get(self.cookie_name(environ), ""))
        if is_required and session is None:
            return None
        return Visitor(session)

    def _why_not_own(self, environ: Mapping[str, Any]) -> str:
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


def _bearer(environ: Mapping[str, Any]) -> str:
    return str(environ.get("HTTP_AUTHORIZATION", ""))[7:].strip()
