"""The settings of the server: one table with names, defaults and help. Nothing else reads the environment.

The value of a setting is that of its option on the command line, else that of its
environment variable, else its default. ``python -m digits.core.settings`` prints this
table as the page ``docs/settings.md``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from digits.core.addresses import is_loopback
from digits.core.machine.environment import DEFAULT_MAX_IMAGE_PIXELS, TASK_VARIABLES
from digits.core.remote import MODULES, is_valid_pattern
from digits.core.resources import checkout_folder

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


class SettingsError(Exception):
    """A setting has an invalid value. The message names the setting and its valid values."""


class LoginPolicy(Enum):
    """The users who have to log in."""

    NOBODY = "nobody"
    OTHER_USERS = "everyone except the user that runs the server"
    EVERYBODY = "everybody"


def _text(value: str) -> str:
    return value.strip()


def _flag(value: str) -> bool:
    word = value.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("takes 1 or 0")


def _port(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", value.strip()) or int(value) > 65535:
        raise ValueError("takes a number from 0 to 65535; 0 means any free port")
    return int(value)


def _path(value: str) -> Path:
    if not value.strip():
        raise ValueError("takes the path of a folder or file")
    if "://" in value:
        raise ValueError("takes the path of a folder or file in a file system, no address")
    return Path(os.path.abspath(Path(value).expanduser()))


def _paths(value: str) -> tuple[Path, ...]:
    separator = "\0" if "://" in value else os.pathsep  # an address is refused as a whole
    return tuple(_path(item) for item in value.split(separator) if item.strip())


def _items(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _names(value: str) -> tuple[str, ...]:
    return _items(value.lower())


def _bytes(value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(MB|GB|TB)", value.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError("takes a size such as 500MB, 20GB or 2TB")
    return int(float(match[1]) * {"MB": 10**6, "GB": 10**9, "TB": 10**12}[match[2].upper()])


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value.strip()) or int(value) < 1:
        raise ValueError("takes a number from 1 to 999999999")
    return int(value)


def _variables(value: str) -> tuple[str, ...]:
    names = _items(value)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith("DIGITS_"):
            raise ValueError("takes exact names of environment variables, not starting with DIGITS_")
    return names


def _addresses(value: str) -> tuple[str, ...]:
    addresses = tuple(item.rstrip("/") for item in _items(value))
    for address in addresses:
        if not re.match(r"https?://[^/]", address):
            raise ValueError("takes addresses such as https://mirror.example/datasets")
    return addresses


def _ray_address(value: str) -> str:
    address = value.strip().rstrip("/")
    if address and not re.fullmatch(r"http://[^/\s@?#]+(/[^\s?#]*)?", address):
        raise ValueError(
            "takes an address such as http://127.0.0.1:8265; use an SSH tunnel if it needs https"
        )
    return address


def _folders_or_addresses(value: str) -> tuple[str, ...]:
    return tuple(_addresses(item)[0] if "://" in item else str(_path(item)) for item in _items(value))


def _remote_addresses(value: str) -> tuple[str, ...]:
    addresses = tuple(item.rstrip("/") for item in _items(value))
    for address in addresses:
        if not is_valid_pattern(address):
            raise ValueError(
                f"takes addresses such as https://data.example or s3://bucket ({', '.join(MODULES)})"
            )
    return addresses


# Lists: the option can be repeated; the variable contains all items.
_SEPARATORS: dict[Any, str] = {
    _paths: os.pathsep,
    **dict.fromkeys((_names, _variables, _addresses, _folders_or_addresses, _remote_addresses), ","),
}


def _prefix(value: str) -> str:
    prefix = value.strip().strip("/")
    if not re.fullmatch(r"[\w.~/-]*", prefix, re.ASCII) or "//" in prefix or ".." in prefix.split("/"):
        raise ValueError("takes a path such as /digits")
    return f"/{prefix}" if prefix else ""


def _level(value: str) -> str:
    level = value.strip().lower()
    if level not in LOG_LEVELS:
        raise ValueError(f"takes one of {', '.join(LOG_LEVELS)}")
    return level


def _data_folder() -> Path:
    """Return the folder for data: the checkout, or the user's data folder when DIGITS is installed."""
    return checkout_folder() or _path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "digits"


@dataclass(frozen=True)
class Described:
    """A setting as the command line and the documentation show it."""

    name: str
    variable: str
    option: str | None
    help: str
    default_text: str
    parse: Callable[[str], Any]

    @property
    def is_flag(self) -> bool:
        return self.parse is _flag

    @property
    def separator(self) -> str | None:
        """What separates the items of a list; None for other settings."""
        return _SEPARATORS.get(self.parse)


def _setting(
    parse: Callable[[str], Any],
    default: str | Callable[[], Any],
    help: str,
    *,
    default_text: str = "",
    option: str | None = "",
) -> Any:
    """Declare a setting. ``default`` is a text as in the environment, or a function; ``option=None`` means no option.

    ``default_text`` describes a function in words.
    """
    if isinstance(default, str):
        default_text = "none" if not default else default if parse is _flag else f"`{default}`"
    described = Described("", "", option, help, default_text, parse)
    factory = partial(parse, default) if isinstance(default, str) else default
    return dataclasses.field(default_factory=factory, metadata={"described": described})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of the server."""

    host: str = _setting(
        _text,
        "127.0.0.1",
        "Address to listen on. 0.0.0.0 means every address of this machine, so other computers can reach it.",
    )
    port: int = _setting(_port, "5000", "Port to listen on; 0 chooses any free port.")
    jobs_dir: Path = _setting(
        _path,
        lambda: _data_folder() / "jobs",
        "Folder with one folder for each job, the only database. Created if it does not exist.",
        default_text="`jobs` in the checkout, else `~/.local/share/digits/jobs`",
    )
    data_roots: tuple[Path, ...] = _setting(
        _paths,
        "~/data",
        "Folders that images may be read from, separated by colons. "
        "The jobs folder and the samples folder are always included.",
        option="--data-root",
    )
    samples_dir: Path = _setting(
        _path,
        lambda: _data_folder() / "samples",
        "Folder for downloaded sample datasets.",
        default_text="`samples` in the checkout, else in `~/.local/share/digits`",
    )
    sample_mirrors: tuple[str, ...] = _setting(
        _addresses,
        "",
        "Addresses to download sample datasets from if their own addresses cannot be reached, separated by commas. "
        "The files of the sample mnist are below ADDRESS/mnist/.",
        option="--sample-mirror",
    )
    weights_dir: Path = _setting(
        _path,
        lambda: _data_folder() / "weights",
        "Folder for downloaded pretrained weights. See [fine-tuning](fine-tuning.md).",
        default_text="`weights` in the checkout, else in `~/.local/share/digits`",
    )
    weights_sources: tuple[str, ...] = _setting(
        _folders_or_addresses,
        "",
        "Folders with pretrained weights, and addresses to download them from before those of Keras, separated by "
        "commas.",
        option="--weights-source",
    )
    remote_addresses: tuple[str, ...] = _setting(
        _remote_addresses,
        "",
        "Comma-separated addresses that datasets may be read from, including everything below them, such as "
        "https://data.example/images, s3://bucket, or s3://* for all buckets. Private addresses are refused, except "
        "for hosts listed by name. See [remote addresses](remote.md).",
        option="--remote-address",
    )
    max_remote: int = _setting(
        _bytes,
        "100GB",
        "Maximum total size of the files that a dataset downloads from remote addresses, in MB, GB or TB.",
    )
    max_remote_files: int = _setting(
        _count, "1000000", "Maximum number of files and folders that a dataset lists at remote addresses."
    )
    max_image_pixels: int = _setting(
        _count,
        str(DEFAULT_MAX_IMAGE_PIXELS),
        "Maximum number of pixels of an image that is decoded; larger JPEG files are decoded at a reduced size. Each "
        "pixel takes about 7 bytes of memory.",
    )
    max_upload: int = _setting(_bytes, "20GB", "Maximum size of an uploaded archive, in MB, GB or TB.")
    max_upload_unpacked: int = _setting(
        _bytes, "50GB", "Maximum size of the files in an uploaded archive, in MB, GB or TB."
    )
    max_upload_files: int = _setting(
        _count, "200000", "Maximum number of files and folders in an uploaded archive."
    )
    max_upload_ratio: int = _setting(
        _count,
        "200",
        "Maximum size of the files in an uploaded archive, as a multiple of the size of the archive. "
        "Protects the disk against decompression bombs.",
    )
    max_uploads: int = _setting(_count, "20", "Maximum number of uploads that a user keeps on the server.")
    upload_days: int = _setting(
        _count,
        "7",
        "Days that the server runs after which an upload is deleted, unless a dataset or labels refer to it. An "
        "incomplete upload is deleted after a day without data.",
    )
    state_dir: Path = _setting(
        _path,
        lambda: _path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "digits",
        "Folder for the server's secrets: its cookie keys and the generated token.",
        default_text="`~/.local/state/digits`",
    )
    url_prefix: str = _setting(
        _prefix,
        "",
        "Path prefix of the pages, such as /digits, for a proxy that also serves other applications.",
    )
    server_name: str = _setting(
        _text,
        socket.gethostname,
        "Name of this server, shown on every page.",
        default_text="the machine's name",
    )
    allowed_hosts: tuple[str, ...] = _setting(
        _names,
        "",
        "Additional host names that browsers may use for this server, separated by commas. "
        "The address listened on and, on loopback, localhost are always allowed.",
        option="--allowed-host",
    )
    behind_proxy: bool = _setting(
        _flag,
        "off",
        "Trust the X-Forwarded headers of one reverse proxy. Do not use without a proxy: anyone could forge them. "
        "Requires a login from everyone, also on a loopback address.",
    )
    login: bool = _setting(
        _flag,
        "on",
        "Require a login. On a loopback address, the user that runs the server needs none, unless a token or a "
        "password is set or a proxy is used. `--no-login` gives access to everyone who can connect, including through "
        "a proxy; it requires a loopback address.",
    )
    token: str = _setting(
        _text,
        "",
        "Secret for access to the server. If neither a token nor a password is set, the server generates a token on "
        "first start and prints a login link.",
        option=None,
    )
    password: str = _setting(
        _text, "", "Password that the login page asks for, in plain text or as an argon2 hash.", option=None
    )
    standby: bool = _setting(
        _flag,
        "on",
        "Keep a process with TensorFlow loaded, so that tasks start without delay (about 550 MB of memory).",
    )
    slurm: bool = _setting(
        _flag,
        "off",
        "Offer Slurm as a compute target, through its commands (sbatch, squeue, …) on PATH. The jobs folder must be on "
        "a file system that the nodes share. See [compute targets](compute.md).",
    )
    ray: str = _setting(
        _ray_address,
        "",
        "Offer the Ray cluster whose dashboard has this address, such as http://127.0.0.1:8265, as a compute target. "
        "The jobs folder must be on a file system that the nodes share. See [compute targets](compute.md#ray).",
    )
    ray_token: str = _setting(_text, "", "Token of a Ray cluster with `RAY_AUTH_MODE=token`.", option=None)
    cluster_jobs: int = _setting(
        _count,
        "1000",
        "Maximum number of jobs of a user that wait or run on each cluster. Further ones wait in the server.",
    )
    health_checks: bool = _setting(
        _flag,
        "on",
        "Check each dataset for duplicates and unusual images in the background once it is done. The check can always "
        "be started on the page of a dataset.",
    )
    evaluations: bool = _setting(
        _flag,
        "on",
        "Evaluate each model on its test and validation images in the background once its training is done. An "
        "evaluation can always be started on the page of a model.",
    )
    pass_env: tuple[str, ...] = _setting(
        _variables,
        "",
        "Additional environment variables that tasks inherit: exact names, separated by commas. "
        "Variables that are always inherited are listed below.",
    )
    logfile_filename: Path = _setting(
        _path,
        lambda: _data_folder() / "digits.log",
        "The server's log, kept in ten files of up to 10 MB.",
        default_text="`digits.log` in the checkout, else in `~/.local/share/digits`",
        option="--log-file",
    )
    logfile_level: str = _setting(
        _level, "info", f"Least important messages to log: {', '.join(LOG_LEVELS)}.", option="--log-level"
    )
    debug: bool = _setting(
        _flag,
        "off",
        "Show tracebacks in the browser, reload changed templates and scripts, and log everything. For developers, "
        "on loopback only.",
    )

    def __post_init__(self) -> None:
        if self.debug and (not self.is_local or self.behind_proxy):
            raise SettingsError(
                "debug: exposes internals of the server, so it requires a loopback address and no proxy"
            )
        if not self.login and not self.is_local:
            raise SettingsError(
                f"login: cannot be disabled if others can reach {self.host or 'every address of this machine'}: "
                "anyone who can use the server can run programs as you; listen on 127.0.0.1, or remove --no-login"
            )
        if not self.login and (self.token or self.password):
            raise SettingsError(
                "login: cannot be disabled if a token or a password is set; remove --no-login, "
                "or unset DIGITS_TOKEN and DIGITS_PASSWORD"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this computer can connect to the server."""
        return is_loopback(self.host)

    @property
    def login_policy(self) -> LoginPolicy:
        """The users who have to log in."""
        if not self.login:
            return LoginPolicy.NOBODY
        if self.is_local and not self.behind_proxy and not (self.token or self.password):
            return LoginPolicy.OTHER_USERS
        return LoginPolicy.EVERYBODY

    @property
    def readable_roots(self) -> tuple[Path, ...]:
        """All folders that images may be read from."""
        return tuple(dict.fromkeys((*self.data_roots, self.jobs_dir, self.samples_dir)))


def described_settings() -> list[Described]:
    """Return all settings, in the order of the table."""
    return [_described(field.name, field.metadata["described"]) for field in dataclasses.fields(Settings)]


def _described(name: str, setting: Described) -> Described:
    option = f"--{name.replace('_', '-')}" if setting.option == "" else setting.option
    return dataclasses.replace(setting, name=name, variable=f"DIGITS_{name.upper()}", option=option)


def read_settings(environment: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Settings:
    """Read settings from environment variables; ``options`` take precedence.

    ``options`` maps names to texts or values; None means that the option is not given.
    Raises SettingsError.
    """
    given: dict[str, Any] = {}
    for row in described_settings():
        value, source = (options or {}).get(row.name), row.option or row.name
        if value is None:
            value, source = environment.get(row.variable), row.variable
        if value is not None:
            given[row.name] = _parsed(row, value, source)
    return Settings(**given)


def read_process_settings(options: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings from the environment of this process; ``options`` take precedence."""
    return read_settings(os.environ, options)


def _parsed(row: Described, value: Any, source: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return row.parse(value)
    except ValueError as error:
        raise SettingsError(
            f"{source}: {error}, not {'what was given' if row.option is None else repr(value)}"
        ) from None


def settings_page() -> str:
    """Return the documentation page that lists all settings, in Markdown."""
    lines = [
        "# Settings",
        "",
        "Each setting is an option of `digits serve` (and of `./digits-devserver`) and an environment variable;",
        "the option takes precedence. Secrets have no option, because all users of a machine can read the options of",
        "a program.",
        "",
        "Generated from the table in `digits/core/settings.py`: `python -m digits.core.settings > docs/settings.md`.",
        "",
        "| Option | Variable | Default | Meaning |",
        "|---|---|---|---|",
    ]
    for row in described_settings():
        option = f"`{row.option}`" if row.option else "–"
        if row.is_flag and row.option:
            option += f", `--no-{row.option[2:]}`"
        lines.append(f"| {option} | `{row.variable}` | {row.default_text} | {row.help} |")
    lines += [
        "",
        "## Environment of tasks",
        "",
        "A task inherits only the following variables of the server's environment, so that it cannot read access",
        "tokens and keys. `--pass-env NAME` adds a variable.",
        "",
        *textwrap.wrap(", ".join(f"`{name}`" for name in sorted(TASK_VARIABLES)) + ".", 118),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(settings_page())
