"""The command ``digits``: the only module that prints, exits, and patches the standard library for gevent.

Everything is imported where it is needed: ``digits --version`` answers at once,
and when serving, gevent patches the standard library before anything else is loaded.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from digits import __version__

if TYPE_CHECKING:
    from socket import socket

    from digits.core.settings import Described, Settings
    from digits.core.task import TaskState
    from digits.runtime.tensorflow_support import TensorFlowSupport

BAD_USAGE = 2
COMMANDS = ("serve", "train", "check", "export", "download-data")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; without a command, serve."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in (*COMMANDS, "-h", "--help", "--version"):
        words.insert(0, "serve")
    if words[0] == "serve":
        _patch_standard_library()
    options = _parser().parse_args(words)
    options.run(options)


def _patch_standard_library() -> None:
    from gevent import monkey

    monkey.patch_all()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="digits",
        description="Train deep networks on your own images, in a browser.",
        epilog="Without a command, digits serves: 'digits -p 8080' is 'digits serve -p 8080'.",
    )
    parser.add_argument("--version", action="version", version=f"digits {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="start the server; 'digits serve --help' lists its options"))
    _add_train(commands.add_parser("train", help="train a model job without the server"))
    _add_check(commands.add_parser("check", help="run the first training step of a model job"))
    _add_export(commands.add_parser("export", help="write a trained model as a SavedModel"))
    _add_download(commands.add_parser("download-data", help="download a sample dataset as folders of images"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    from digits.core.settings import described_settings

    parser.description = "Start the server."
    for row in described_settings():
        if row.option is not None:
            parser.add_argument(
                *_SHORT.get(row.name, ()), row.option, dest=row.name, help=_help(row), **_form(row)
            )
    parser.set_defaults(run=_serve)


_SHORT = {"port": ("-p",), "debug": ("-d",)}


def _help(row: Described) -> str:
    shown = row.shown.replace("`", "")
    return f"{row.help} Default: {shown}. Environment variable: {row.variable}.".replace("%", "%%")


def _form(row: Described) -> dict[str, Any]:
    """How an option takes its value: as a flag, once, or several times."""
    if row.is_flag:
        return {"action": argparse.BooleanOptionalAction}
    return {
        "action": "append" if row.separator else "store",
        "metavar": row.name.split("_")[-1].upper().rstrip("S"),
    }


def _add_download(parser: argparse.ArgumentParser) -> None:
    parser.description = "Fetch a sample dataset and lay it out as one folder of images for each class."
    parser.add_argument("name", metavar="NAME", help="sample dataset, such as mnist")
    parser.add_argument("folder", metavar="DIR", help="target folder")
    parser.add_argument("-c", "--clean", action="store_true", help="empty DIR first")
    parser.set_defaults(run=_download)


def _add_train(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.description = (
        "Do the training that the folder of a model job describes, without the server. One that was stopped "
        "or killed goes on where it was; one that is finished is made again, in a folder beside it."
    )
    _add_job(parser)
    parser.add_argument("--output", metavar="DIR", type=Path, help="train from scratch in this folder")
    parser.set_defaults(run=_train)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Try the first step of the training that the folder of a model job describes, and tell what all of it "
        "would take. The folder stays as it is."
    )
    _add_job(parser)
    parser.add_argument(
        "--eager",
        action="store_true",
        help="run a few steps eagerly: print(tensor) shows values, breakpoint() starts the debugger",
    )
    parser.set_defaults(run=_check)


def _add_export(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.description = (
        "Write the network of a model job with the weights of a snapshot as a SavedModel, load it again, "
        "and compare what both compute."
    )
    _add_job(parser)
    parser.add_argument("target", metavar="DIR", type=Path, help="output folder")
    parser.add_argument("--epoch", type=float, help="epoch of the snapshot (default: latest)")
    parser.set_defaults(run=_export)


def _add_job(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.add_argument("job", metavar="JOB", type=Path, help="the job's folder")
    parser.add_argument(
        "--dataset", metavar="DIR", type=Path, help="the dataset job's folder, if it was moved"
    )


def _serve(options: argparse.Namespace) -> None:
    import os
    from dataclasses import replace

    from digits.core.settings import SettingsError
    from digits.runtime.supervisor import PRIVATE_UMASK
    from digits.web.logs import start_logging

    os.umask(PRIVATE_UMASK)
    try:
        settings = _read_settings(options)
        start_logging(settings)
    except SettingsError as error:
        _stop(str(error))
    listener = _listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])

    import gevent

    from digits.core.errors import DigitsError
    from digits.core.settings import LoginPolicy
    from digits.web.app import create_app, load_templates
    from digits.web.auth import ExposureError
    from digits.web.peers import lookup_problem
    from digits.web.server import serve

    try:
        app = create_app(settings)
    except ExposureError as error:
        _stop(str(error))
    except DigitsError as error:
        _stop(" ".join(filter(None, [error.message, error.hint])))
    except OSError as error:
        _stop(f"cannot start: {error}")
    services = app.extensions["digits"]
    text = announcement(
        settings,
        services.tensorflow,
        _made_token(settings),
        is_root=os.geteuid() == 0,
        problem=lookup_problem(settings.port) if settings.login_policy is LoginPolicy.OTHER_USERS else "",
    )

    def announce(port: int) -> None:
        print(text, flush=True)
        gevent.spawn(load_templates, app)

    try:
        serve(
            app,
            listener,
            socketio=services.live.socketio,
            on_start=announce,
            # All connections come from the proxy's address.
            **({"max_connections_per_address": None} if settings.behind_proxy else {}),
        )
    finally:
        services.stop()


def _read_settings(options: argparse.Namespace) -> Settings:
    from digits.core.settings import described_settings, read_process_settings

    given: dict[str, Any] = {row.name: getattr(options, row.name, None) for row in described_settings()}
    for row in described_settings():
        if row.separator and given[row.name] is not None:
            given[row.name] = row.separator.join(given[row.name])
    return read_process_settings(given)


def _listen(host: str, port: int) -> socket:
    """A listening socket, opened before the slow part of the start: a port in use is told at once."""
    import errno
    import socket

    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"port {port} is in use; stop the other program or choose another: --port {port + 1}",
            errno.EACCES: f"port {port} may not be opened by this user; choose one above 1023: --port 5000",
        }
        _stop(
            reasons.get(
                error.errno or 0,
                f"cannot listen on {host}: {error.strerror}; is --host an address of this machine?",
            )
        )


def _made_token(settings: Settings) -> str:
    """The generated token, if a login is required and no secret is configured; else an empty string."""
    from digits.core.settings import LoginPolicy

    if settings.login_policy is LoginPolicy.NOBODY or settings.token or settings.password:
        return ""
    from digits.web.auth import made_token

    return made_token(settings.state_dir)


def announcement(
    settings: Settings,
    tensorflow: TensorFlowSupport,
    token: str = "",
    *,
    is_root: bool = False,
    problem: str = "",
) -> str:
    """The text to print at startup: the server's address, who can reach it, and missing features.

    ``token`` is the generated token, if there is one; ``problem`` is the reason
    if the owners of connections cannot be determined.
    """
    name = "localhost" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    shown_name = f"[{name}]" if ":" in name else name
    address = f"http://{shown_name}:{settings.port}{settings.url_prefix}/"
    lines = [
        f"DIGITS {__version__}",
        f"  address     {address}",
        f"  open to     {_reach(settings)}",
        f"  login       {_login(settings, problem)}",
        f"  jobs        {settings.jobs_dir}",
    ]
    if token:
        lines.insert(4, f"  login link  {address}?token={token}")
    if is_root:
        lines += [
            "Warning: DIGITS runs as root, and so do all networks it trains. Start it as a regular user instead."
        ]
    if not tensorflow.available:
        lines += [
            "TensorFlow support is disabled",
            f"  why         {tensorflow.reason}",
            f"  remedy      {tensorflow.remedy}",
        ]
    return "\n".join([*lines, "Stop it with Ctrl-C."])


def _reach(settings: Settings) -> str:
    """Who can connect to the server."""
    if not settings.is_local:
        return f"every computer that can reach {settings.host}"
    if settings.behind_proxy:
        return "everyone who can reach the proxy, and this computer"
    return "this computer only"


def _login(settings: Settings, problem: str) -> str:
    """Who has to log in."""
    from digits.core.settings import LoginPolicy

    if settings.login_policy is LoginPolicy.NOBODY:
        return "not required (--no-login): anyone who can connect can run programs as you"
    if settings.login_policy is LoginPolicy.EVERYBODY:
        return "required"
    if problem:
        return f"required, also for you: {problem}"
    return "required for other users of this computer, not for you"


def _download(options: argparse.Namespace) -> None:
    from digits.core.errors import DigitsError
    from digits.data.samples import download_data

    try:
        download_data(options.name, options.folder, clean=options.clean, say=print)
    except DigitsError as error:
        _fail(error.message, error.hint)


def _train(options: argparse.Namespace) -> None:
    from digits.core.errors import DigitsError
    from digits.runtime import standalone

    try:
        training = standalone.prepare(options.job, options.dataset, options.output)
    except (DigitsError, OSError) as error:
        _fail(str(error), getattr(error, "hint", ""))
    begin = f", from step {training.step} on" if training.step else ""
    print(f"Training in {training.job_folder}{begin}", flush=True)
    if not standalone.train(training, say=functools.partial(print, flush=True)):
        _fail(standalone.failure(training) or "the training was stopped; the same command goes on with it")


def _check(options: argparse.Namespace) -> None:
    from digits.core import preflight_result
    from digits.runtime import standalone

    result = _done(lambda: standalone.check(options.job, options.dataset, options.eager))
    print(*preflight_result.lines(result), sep="\n")


def _export(options: argparse.Namespace) -> None:
    from digits.runtime import standalone

    result = _done(lambda: standalone.export(options.job, options.target, options.epoch, options.dataset))
    print(f"{options.target} holds {result['snapshot']}, {result['bytes'] / 1e6:.1f} MB")
    print(f"takes images {_shape(result['input']['shape'])}, {result['input']['type']}, 0 to 255")
    for name, output in result["outputs"].items():
        print(f"gives {name} {_shape(output['shape'])}, {output['type']}")


def _shape(sizes: list[int | None] | None) -> str:
    if sizes is None:
        return "of any shape"
    return f"[{', '.join('any' if size is None else str(size) for size in sizes)}]"


def _done(work: Callable[[], TaskState]) -> dict[str, Any]:
    """The result of a short task; its warnings are told, and what keeps it from being done ends this program."""
    from digits.core.errors import DigitsError

    try:
        state = work()
    except (DigitsError, OSError) as error:
        _fail(str(error), getattr(error, "hint", ""))
    if state.failure:
        line, hint = state.failure.line, state.failure.hint
        advice = f"Line {line}. {hint}" if line and f"line {line}" not in hint else hint
        _fail(state.failure.message, state.failure.detail, advice)
    if state.result is None:
        _fail("the program ended before it was done")
    for warning in state.warnings:
        print(warning)
    return state.result


def _fail(message: str, *more: str) -> NoReturn:
    print(f"digits: {message}", *filter(None, more), sep="\n", file=sys.stderr)
    raise SystemExit(1)


def _stop(message: str) -> NoReturn:
    print(f"digits: {message}", file=sys.stderr)
    raise SystemExit(BAD_USAGE)
