"""The tokens of forms, which browsers send with writes."""

from __future__ import annotations

from flask import Flask, Request, g, request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask_wtf.csrf import CSRFProtect

from digits.web.security.origin import is_from_browser
from digits.web.security.sessions import cookie_path, is_https

# TensorBoard's page sends queries as POST without our CSRF token.
_WITHOUT_TOKEN = ("digits.web.models.tensorboard.proxy",)


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
        if is_from_browser(request.environ):
            protection.protect(apply_exemptions=True)
        else:
            g.csrf_valid = True  # otherwise the forms would require the token

    return protection
