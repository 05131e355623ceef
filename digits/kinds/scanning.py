"""Summarize the source of a dataset for its form, in a process of its own: ``python -m digits.kinds.scanning``.

Files of users are decoded in this process. Neither their size nor their contents affect the server, which only relays
the summaries and kills the process when nobody waits for them.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from digits.core.errors import DigitsError
from digits.core.programs import Program, limit_resources
from digits.core.remote import RemotePolicy
from digits.kinds.source_summary import MAX_SECONDS, SourceSummary

MEMORY_BYTES = 6 << 30
# A summary ends earlier, unless one piece of a source takes longer than all others may.
SECONDS = int(3 * MAX_SECONDS)

_LATER = "It is examined when the dataset is created."
_TOO_LARGE = f"The source is too large to be summarized here. {_LATER}"
_TOO_SLOW = f"The source takes too long to be summarized here. {_LATER}"
_FAILED = f"The source could not be summarized; the log of the server has the reason. {_LATER}"


class Upload(Struct):
    """A file of a request: its name, and the path of its content."""

    name: str
    path: str


class Request(Struct):
    """The source to summarize: the ``fields`` of the form of a ``kind``.

    ``roots`` are the folders and ``remote`` the addresses that may be read; ``uploads_folder`` is the folder of the job
    in the field ``uploads_of``.
    """

    kind: str
    fields: list[tuple[str, str]]
    roots: list[str]
    remote: list[str] = field(default_factory=list)
    uploads: dict[str, Upload] = field(default_factory=dict)
    uploads_folder: str = ""
    memory_bytes: int = MEMORY_BYTES


def scan(request: Request) -> Generator[bytes, None, None]:
    """Run the program; yield lines of JSON: increasingly complete summaries, of which the last one is finished.

    The program ends with this generator.
    """
    with Program(__name__, request) as program:
        is_finished = False
        for line in program.lines():
            is_finished = msgspec.json.decode(line, type=_State).finished
            yield line
        if not is_finished:
            yield _line(SourceSummary(refused=_TOO_SLOW if program.was_too_slow else _FAILED))


class _State(Struct):
    finished: bool


def main() -> None:
    """Print summaries of the source in the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    limit_resources(request.memory_bytes)
    signal.alarm(SECONDS)
    try:
        for line in _summaries(request):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except DigitsError as error:
        sys.stdout.buffer.write(_line(SourceSummary(refused=error.sentences)))
    except MemoryError:
        sys.stdout.buffer.write(_line(SourceSummary(refused=_TOO_LARGE)))


def _summaries(request: Request) -> Iterator[bytes]:
    # Imported late, because the server imports this module only to run it.
    from flask import Flask
    from werkzeug.datastructures import CombinedMultiDict, FileStorage, MultiDict

    from digits.data.data_roots import Roots
    from digits.kinds import kind_named

    with Flask(__name__).app_context(), contextlib.ExitStack() as files:
        uploads: MultiDict[str, Any] = MultiDict(
            (name, FileStorage(files.enter_context(open(upload.path, "rb")), upload.name, name))
            for name, upload in request.uploads.items()
        )
        meta = {
            "data_roots": Roots(request.roots),
            "remote": RemotePolicy(request.remote),
            "job_folder": lambda _: Path(request.uploads_folder),
        }
        sent = CombinedMultiDict[str, Any]((uploads, MultiDict(request.fields)))
        form = kind_named(request.kind).load("form").DatasetForm(sent, meta=meta)
        yield from map(_line, form.scan_source())


def _line(summary: SourceSummary) -> bytes:
    return json.dumps(asdict(summary)).encode() + b"\n"


if __name__ == "__main__":
    main()
