"""Logins as signed cookies, the attributes of cookies, and the user names that label jobs."""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flask import Request
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.http import dump_cookie

from digits.core.errors import BadRequest
from digits.core.files import MissingFile, UnreadableFile, read_json, write_json
from digits.web.security.environ import VISITOR

log = logging.getLogger(__name__)

IDLE_SECONDS = 7 * 24 * 3600
LONGEST_SECONDS = 30 * 24 * 3600
RENEW_SECONDS = 3600
# In the list of ended sessions: all that started before a moment.
_ALL = ""
# Sessions that ended early and are stored before those that have expired since are forgotten.
MAX_ENDED = 10_000
USERNAME_COOKIE = "username"
USERNAME = re.compile(r"\w[\w.@+-]{0,63}")


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
        self._ended: dict[str, float] = {}
        self._load()

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
            self._end(session.id, session.started)
            # A clock that is wrong for a moment must not make all of them valid again.
            if len(self._ended) > MAX_ENDED:
                self._ended = {name: until for name, until in self._ended.items() if until > now}
            self._save()

    def _end(self, name: str, started: int) -> None:
        self._ended[name] = started + LONGEST_SECONDS

    def _save(self) -> None:
        if self._ended_file is None:
            return
        try:
            write_json(self._ended_file, self._ended)
        except OSError as error:
            # The session has ended in memory; the next logout saves it as well.
            log.error("a logout could not be saved, so its session is valid again after a restart: %s", error)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        idle, age = now - session.renewed, now - session.started
        is_ended = session.id in self._ended or session.started + LONGEST_SECONDS < self._ended.get(_ALL, 0)
        return idle > IDLE_SECONDS or age > LONGEST_SECONDS or is_ended

    def _sign(self, session: Session) -> str:
        text = self._serializer.dumps(asdict(session))
        return text if isinstance(text, str) else text.decode()

    def _load(self) -> None:
        """Read the ended sessions. If they cannot be read, all sessions have ended: nobody knows which ones did."""
        if self._ended_file is None:
            return
        try:
            self._ended = read_json(self._ended_file, dict[str, float])
        except MissingFile:
            pass
        except UnreadableFile as error:
            log.error(
                "everybody has to log in again, because the list of ended sessions is damaged: %s", error
            )
            self._end(_ALL, int(self._clock()))
            self._save()


@dataclass(frozen=True)
class Visitor:
    """The sender of an admitted request: identified by a session cookie, by the token, or without a login."""

    session: Session | None = None


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


def login_name(request: Request, given: str | None = None) -> str | None:
    """The user name of this request: from its session, else the one ``given``, else from its cookie.

    Raises BadRequest if the one ``given`` is not a valid name.
    """
    argument, kept = checked_username(given) if given else "", request.cookies.get(USERNAME_COOKIE, "")
    visitor: Visitor = request.environ.get(VISITOR, Visitor())
    in_session = visitor.session.username if visitor.session else ""
    return in_session or argument or (kept if USERNAME.fullmatch(kept) else None)


def current_username(request: Request) -> str | None:
    """The `login_name` of this request, given by its argument ``username``; raises BadRequest."""
    return login_name(request, request.args.get("username") or request.form.get("username"))


def shown_username(request: Request) -> str | None:
    """The name to show on a page: like `current_username`, but ignoring form fields and invalid names."""
    try:
        return login_name(request, request.args.get("username"))
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
