"""``digits serve``: start the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from digits.cli.announcement import announcement
from digits.cli.exits import refuse
from digits.core.settings import Described, described_settings

if TYPE_CHECKING:
    from socket import socket

    from digits.core.settings import Settings

# A client whose connection does not fit waits a second before it tries again.
BACKLOG = 1024
# The first page is not delayed by loading the others.
LOAD_SECONDS = 1.0
_SHORT_OPTIONS = {"port": "-p", "debug": "-d"}


def _options() -> list[click.Parameter]:
    return [_option(row, row.option) for row in described_settings() if row.option is not None]


def _option(row: Described, name: str) -> click.Option:
    """Return the option of a setting. Its value stays None unless given, so that the environment applies."""
    words = [row.name, f"{name}/--no-{name[2:]}" if row.is_flag else name]
    if row.name in _SHORT_OPTIONS:
        words.insert(1, _SHORT_OPTIONS[row.name])
    default = row.default_text.replace("`", "")
    return click.Option(
        words,
        default=None,
        multiple=bool(row.separator),
        metavar=None if row.is_flag else row.name.split("_")[-1].upper().rstrip("S"),
        help=f"{row.help} Default: {default}. Environment variable: {row.variable}.",
    )


def _serve(**options: Any) -> None:
    """Start the server."""
    import os
    from dataclasses import replace

    from digits.core.machine.environment import MAX_IMAGE_PIXELS
    from digits.core.settings import SettingsError
    from digits.runtime.supervisor import PRIVATE_UMASK
    from digits.web.server.logs import start_logging

    os.umask(PRIVATE_UMASK)
    try:
        settings = _read_settings(options)
        start_logging(settings)
    except SettingsError as error:
        refuse(str(error))
    # For the programs that decode images.
    os.environ[MAX_IMAGE_PIXELS] = str(settings.max_image_pixels)
    listener = _listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])

    import gevent

    from digits.core.errors import DigitsError
    from digits.core.machine import garbage_collection
    from digits.core.settings import LoginPolicy

    with garbage_collection.paused():
        from digits.web.app import create_app, load_pages
    from digits.web.security.peers import lookup_problem
    from digits.web.security.secrets import ExposureError
    from digits.web.server.http import serve

    try:
        with garbage_collection.paused():
            app = create_app(settings)
    except ExposureError as error:
        refuse(str(error))
    except DigitsError as error:
        refuse(error.sentences)
    except OSError as error:
        refuse(f"cannot start: {error}")
    services = app.extensions["digits"]
    text = announcement(
        settings,
        services.tensorflow,
        _made_token(settings),
        is_root=os.geteuid() == 0,
        problem=lookup_problem() if settings.login_policy is LoginPolicy.OTHER_USERS else "",
    )

    def announce(port: int) -> None:
        click.echo(text)
        gevent.spawn_later(LOAD_SECONDS, load_pages, app)

    try:
        serve(
            app,
            listener,
            socketio=services.live.socketio,
            on_start=announce,
            # All connections through a proxy come from the proxy's address.
            **({"max_connections_per_address": None} if settings.behind_proxy else {}),
        )
    finally:
        services.stop()


def _read_settings(options: dict[str, Any]) -> Settings:
    from digits.core.settings import read_process_settings

    given = dict(options)
    for row in described_settings():
        if row.separator:
            given[row.name] = row.separator.join(given[row.name]) if given[row.name] else None
    return read_process_settings(given)


def _listen(host: str, port: int) -> socket:
    """Return a listening socket. Call it before the slow part of startup, to report a port in use immediately."""
    import errno
    import socket

    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"port {port} is in use; stop the other program or choose another: --port {port + 1}",
            errno.EACCES: f"port {port} may not be opened by this user; choose one above 1023: --port 5000",
        }
        refuse(
            reasons.get(
                error.errno or 0,
                f"cannot listen on {host}: {error.strerror}; is --host an address of this machine?",
            )
        )


def _made_token(settings: Settings) -> str:
    """Return the generated token if a login is required and no secret is configured, else an empty string."""
    from digits.core.settings import LoginPolicy

    if settings.login_policy is LoginPolicy.NOBODY or settings.token or settings.password:
        return ""
    from digits.web.security.secrets import made_token

    return made_token(settings.state_dir)


command = click.Command("serve", params=_options(), callback=_serve, help="Start the server.")
