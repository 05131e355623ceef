"""Read the source in the form of a dataset, in a process of its own: ``python -m digits.kinds.forms.scanning``.

It summarizes the source while the form is filled in, and validates the submitted form. Files of users are decoded in
this process. Neither their size nor their contents affect the server, which only relays the result and kills the
process when nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from digits.core.errors import DigitsError, NotFound
from digits.core.machine.programs import MEMORY_BYTES, Program, limit_resources, reply
from digits.core.remote import AddressType, RemotePolicy
from digits.data.data_roots import Outside
from digits.data.parallel import available_cores
from digits.data.sources.plan import show
from digits.kinds.advice.recommendation import Resources
from digits.kinds.forms.dataset_recommendation import Advice, SourceFacts, recommend_dataset
from digits.kinds.forms.other_kinds import recognize
from digits.kinds.forms.summary import SourceSummary, Suggestion

# A summary ends earlier, unless one piece of a source takes longer than all others may.
SECONDS = 60

_LATER = "It is examined when the dataset is created."
_TOO_LARGE = f"The source is too large to be summarized here. {_LATER}"
_TOO_SLOW = f"The source takes too long to be summarized here. {_LATER}"
_FAILED = f"The source could not be summarized; the log of the server has the reason. {_LATER}"
_TOO_LARGE_TO_CHECK = "The source is too large to be checked. Split its files into smaller ones."
_TOO_SLOW_TO_CHECK = "The source takes too long to be checked. Use a faster disk, or smaller files."
_NOT_CHECKED = "The source could not be checked; the log of the server has the reason."


class Upload(Struct):
    """A file of a request: its name, and the path of its content."""

    name: str
    path: str


class Request(Struct):
    """The ``fields`` of the form of a ``kind``, whose source is summarized, or checked for a ``new`` job.

    ``roots`` are the folders and ``remote`` the addresses that may be read; ``uploads_folder`` is the folder of the job
    in the field ``uploads_of``. Recommendations are for models that are trained on the ``device``. Records are for a
    new dataset, or are added to that in the folder ``adds_to``.
    """

    kind: str
    fields: list[tuple[str, Any]]
    roots: list[str]
    remote: list[str] = field(default_factory=list)
    uploads: dict[str, Upload] = field(default_factory=dict)
    uploads_folder: str = ""
    adds_to: str = ""
    device: Literal["cpu", "gpu"] = "cpu"
    memory_bytes: int = MEMORY_BYTES
    new: NewJob | None = None


class NewJob(Struct):
    """The ``folder`` of a job to create; ``cloned`` is that of the job whose values replace those of the form.

    With ``keeps_size``, the images keep their size if the form supports that.
    """

    folder: str
    cloned: str = ""
    keeps_size: bool = False


class Draft(Struct):
    """The ``recipe`` of a valid form as JSON, its ``warnings`` and remote ``addresses``, or the ``errors`` of fields.

    ``problem`` is an error of the source as a whole.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    addresses: dict[str, AddressType] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    problem: str = ""


def check(request: Request) -> Draft:
    """Run the program for a `NewJob`; raises DigitsError. The uploads of a valid form are saved in the job's folder."""
    with Program(__name__, request) as program:
        draft = program.answer()
        if draft is None:
            return Draft(problem=_TOO_SLOW_TO_CHECK if program.was_too_slow else _NOT_CHECKED)
        return msgspec.convert(draft, Draft)


def draft_of(form: Any, new: NewJob) -> Draft:
    """Validate the ``form`` of a dataset, and save its uploads if it is valid; raises DigitsError and OSError."""
    # Imported late, because the program that summarizes sources does not need it.
    from digits.kinds.forms.fields import errors_of

    if not form.validate():
        return Draft(errors=errors_of(form))
    if new.keeps_size:
        form.keep_size()
    form.save_uploads(Path(new.folder))
    recipe = form.recipe()
    return Draft(recipe=msgspec.to_builtins(recipe), warnings=form.warnings(), addresses=form.addresses)


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
    """Print the draft, or summaries of the source, for the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    limit_resources(request.memory_bytes)
    signal.alarm(SECONDS)
    new = request.new
    if new is None:
        _summarize(request, lambda summary: _write(_line(summary)))
    else:
        reply(lambda: _draft(request, new))


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _summarize(request: Request, send: Callable[[SourceSummary], None]) -> SourceSummary:
    """Return the last summary of the source; ``send`` receives all."""
    # Imported late, because the server imports this module only to run it.
    from digits.kinds.forms import previews

    sent: list[SourceSummary] = []

    def add(summary: SourceSummary) -> None:
        sent[:] = [summary]
        send(summary)

    try:
        with _form(request) as form:
            try:
                last = previews.summarize(form, add, partial(_advise, request, form))
            except DigitsError as error:
                last = _refusal(error)
            if last.refused or form.are_of_source(last.errors):
                last.others = recognize(form, request.kind)
            add(last)
    except MemoryError:
        if not (sent and sent[0].finished):
            add(SourceSummary(refused=_TOO_LARGE))
    return sent[0]


def _refusal(error: DigitsError) -> SourceSummary:
    """Return the summary of a source that cannot be read; the remedy of the error is a path for a field."""
    if isinstance(error, Outside):
        return SourceSummary(refused=f"{error.message} {error.remedy_words}", allowed=error.allowed)
    if not error.remedy:
        return SourceSummary(refused=error.sentences)
    (path,) = error.remedy.values()
    suggestion = Suggestion(error.hint, f"Use {show(os.path.basename(path))}", {**error.remedy})
    return SourceSummary(refused=error.message, suggestion=suggestion)


def _advise(request: Request, form: Any, summary: SourceSummary, images: int) -> dict[str, Any]:
    """Add advice to ``summary``, and return the settings of images that the request leaves open."""
    facts = SourceFacts(
        request.kind,
        sizes=summary.sizes,
        are_gray=summary.are_gray,
        images=images,
        splits=summary.splits,
        test_field=form.SHARES[1] if form.SHARES else "",
        is_partial=not summary.total,
    )
    summary.advice = recommend_dataset(facts, Resources(device=request.device, cores=available_cores()))
    return settings_of(summary.advice, {name for name, _ in request.fields})


def _open(advice: Sequence[Advice], chosen: set[str]) -> list[Advice]:
    """Return the pieces of ``advice`` without fields that the user has ``chosen``."""
    return [piece for piece in advice if not piece.fields.keys() & chosen]


def _fill_recommended(request: Request, form: Any) -> list[str]:
    """Fill in the recommended values of fields that the request lacks; return the reasons."""
    chosen = {name for name, _ in request.fields}
    advice = _open(_summarize(request, lambda summary: None).advice, chosen)
    for piece in advice:
        for name, text in piece.fields.items():
            form[name].process_formdata([text])
    return [piece.reason for piece in advice]


def settings_of(advice: Sequence[Advice], chosen: set[str]) -> dict[str, Any]:
    """Return the settings of images in pieces of ``advice`` without fields that the user has ``chosen``."""
    fields = {name: text for piece in _open(advice, chosen) for name, text in piece.fields.items()}
    settings: dict[str, Any] = {}
    if "resize_width" in fields:
        settings["width"], settings["height"] = int(fields["resize_width"]), int(fields["resize_height"])
        settings["resize_mode"] = fields["resize_mode"]
    return settings | ({"channels": int(fields["resize_channels"])} if "resize_channels" in fields else {})


def _draft(request: Request, new: NewJob) -> Draft:
    from digits.core import job
    from digits.kinds.jobs import DatasetJob

    try:
        with _form(request) as form:
            if new.cloned:
                form.fill(job.load(Path(new.cloned), {DatasetJob.type: DatasetJob}))
            reasons = _fill_recommended(request, form) if form.recommended.data and form.SOURCES else []
            draft = draft_of(form, new)
            draft.warnings += reasons
            return draft
    except MemoryError:
        return Draft(problem=_TOO_LARGE_TO_CHECK)


@contextlib.contextmanager
def _form(request: Request) -> Iterator[Any]:
    # Imported late, because the server imports this module only to run it.
    from flask import Flask
    from werkzeug.datastructures import CombinedMultiDict, FileStorage, MultiDict

    from digits.data import manifest as manifests
    from digits.data.data_roots import Roots
    from digits.kinds import kind_named

    def job_folder(_: str) -> Path:
        if not request.uploads_folder:
            raise NotFound("There is no such job.", "It may have been deleted.")
        return Path(request.uploads_folder)

    with Flask(__name__).app_context(), contextlib.ExitStack() as files:
        uploads: MultiDict[str, Any] = MultiDict(
            (name, FileStorage(files.enter_context(open(upload.path, "rb")), upload.name, name))
            for name, upload in request.uploads.items()
        )
        meta = {
            "data_roots": Roots(request.roots),
            "remote": RemotePolicy(request.remote),
            "job_folder": job_folder,
            "adds_to": manifests.load(Path(request.adds_to)).target if request.adds_to else None,
        }
        sent = CombinedMultiDict[str, Any]((uploads, MultiDict(request.fields)))
        yield kind_named(request.kind).load("form").DatasetForm(sent, meta=meta)


def _line(summary: SourceSummary) -> bytes:
    return json.dumps(asdict(summary)).encode() + b"\n"


if __name__ == "__main__":
    main()
