"""The form of datasets on its page: what follows from its source, and what stops its button."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from flask import render_template, request, url_for
from werkzeug.datastructures import MultiDict
from wtforms import BooleanField, Field
from wtforms.fields.choices import Choice

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.sources.causes import LIMIT_FIELD
from digits.kinds import kind_named
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.dataset_recommendation import Advice
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.forms.summary import SourceSummary, Suggestion
from digits.web.security.sessions import login_name
from digits.web.services import services
from digits.web.services.upload_store import Upload

# In ``own``: the fields have the settings of another dataset.
EVERYTHING = "*"
SIZE = ("resize_width", "resize_height", "resize_mode")
# Fields of all kinds that determine the first records, but not the contents of the source.
COLORS = "resize_channels"
STORAGE = (*SIZE, COLORS, "encoding", LIMIT_FIELD)
# Folders and files called like this are named after the folder around them.
COMMON_NAMES = ("train", "training", "images", "labels")


class Split(NamedTuple):
    """How the images are divided: the share of each split in percent with its words, and all in ``words``."""

    parts: dict[str, tuple[float, str]]
    words: str
    note: str
    problem: str


class Submission:
    """The ``form`` of datasets with what its page has ``sent`` beside the fields.

    ``own`` lists the fields that were changed by hand, ``found`` is the summary of the source that the page has read
    last, for the value ``found_scan`` of `scan`. `follow` fills in what is left open.
    """

    def __init__(self, form: ImageDatasetForm[Any], sent: MultiDict[str, str]) -> None:
        self.form, self.sent = form, sent
        form.submission = self
        self.own = [name for name in sent.get("own", "").split(",") if name]
        self.found: SourceSummary | None = None
        if text := sent.get("found"):
            with contextlib.suppress(msgspec.MsgspecError):
                self.found = msgspec.json.decode(text, type=SourceSummary)

    @cached_property
    def open(self) -> list[str]:
        """The fields that are left to the recommendation, such as that for the size and those for the shares."""
        groups = [SIZE, (COLORS,), *((name,) for name in self.form.SHARES)]
        own = {*self.own, *([] if EVERYTHING not in self.own else self.form._fields)}
        return [name for group in groups if not own & {*group} for name in group if name in self.form]

    @property
    def scan(self) -> str:
        """A hash of the fields that the summary depends on; the page reads the source again when it changes."""
        form = self.form
        names = {*form.scanned_fields(), *(form.REMOTE if form.meta.remote else ()), *STORAGE, *form.SHARES}
        values = [(name, form[name].raw_data or "") for name in sorted(names - {*self.open}) if name in form]
        return hashlib.sha256(repr(values).encode()).hexdigest()[:16]

    @property
    def is_read(self) -> bool:
        """Whether the source was read with the present fields."""
        found = self.found
        return bool(found and found.finished and self.sent.get("found_scan") == self.scan)

    @property
    def is_reading(self) -> bool:
        """Whether the page reads the source for the present fields."""
        found = self.found
        return self.has_path and (
            self.sent.get("found_scan") != self.scan or bool(found and not found.finished)
        )

    @property
    def has_path(self) -> bool:
        sources = self.form.SOURCES  # none of a kind that makes its images
        return bool(sources) and any(self.form[name].data for name in self.form.source.scanned_paths)

    def follow(self) -> None:
        """Fill in what is recommended for the source, and suggest a name for the dataset."""
        form, found = self.form, self.found
        values = {name: text for piece in self.advice for name, text in piece.fields.items()}
        for name in self.open:
            field = form[name]
            text = values.get(name, str(field.default))
            field.process(MultiDict({name: text}))
            _suggest(field, is_suggested=text != str(field.default))
        for name, choices in (found.options if found else {}).items():
            _offer(form[name], choices)
        if found and found.refused:
            for name in form.source.scanned_paths:
                _render_with(form[name], **{"aria-invalid": "true"})
        for split, share in zip(SPLITS[1:], form.SHARES, strict=False):
            if split in self._own_splits:
                _render_with(form[share], disabled=True)
        title = form.dataset_name
        if not (title.data or "").strip():
            self.own = [name for name in self.own if name != title.name]
        if not {title.name, EVERYTHING} & {*self.own}:
            title.process(MultiDict({title.name: self._suggested_name()[:NAME_LENGTH]}))
            _suggest(title, is_suggested=True)
        refused = json.loads(self.sent.get("refused") or "{}")
        for name, messages in refused.items():
            if name in form:
                form[name].errors = messages

    def without_open(self) -> MultiDict[str, str]:
        """Return what was sent without the `open` fields."""
        return MultiDict(item for item in MultiDict(self.sent).items(multi=True) if item[0] not in self.open)

    def _suggested_name(self) -> str:
        """Return a name from the path of the source."""
        form = self.form
        if not form.SOURCES:
            return ""
        path = next((str(form[name].data) for name in form.source.scanned_paths if form[name].data), "")
        parts = [part for part in re.sub(r"\.(\w{1,4}|tfrecords?)$", "", path).split("/") if part]
        while parts and (parts[-1] in COMMON_NAMES or re.search(r"[*?\[]", parts[-1])):
            parts.pop()
        return parts[-1] if parts else ""

    # What was found

    @property
    def advice(self) -> list[Advice]:
        known = {*SIZE, COLORS, *self.form.SHARES}
        found = self.found.advice if self.found and not self.form.meta.adds_to else []
        return [piece for piece in found if all(name in known and name in self.form for name in piece.fields)]

    @property
    def suggestions(self) -> list[Suggestion]:
        """What can be changed with a button."""
        offered = [self.found.suggestion, *self.found.remedies] if self.found else []
        return [item for item in offered if item and not self.has(item.fields)]

    def has(self, values: Mapping[str, str | bool]) -> bool:
        """Return whether the fields have these values."""
        return all(_value(self.form[name]) == value for name, value in values.items())

    @property
    def problems(self) -> list[str]:
        """What is wrong with the source, without what the errors of fields say."""
        said = " ".join(text for texts in self.found.errors.values() for text in texts) if self.found else ""
        return [text for text in self.found.problems if text not in said] if self.found else []

    @property
    def stops(self) -> str:
        """Why the dataset cannot be created; while the source is read, the reason from before remains."""
        found, reason = self.found, ""
        if found and (found.refused or found.errors or any(item.stops for item in self.suggestions)):
            reason = "Fix the problem above first."
        return reason or ("" if self.is_read or not self.has_source else self.sent.get("stopped", ""))

    @property
    def has_source(self) -> bool:
        return bool(self.form.SOURCES) and (self.has_path or bool(self.found))

    @property
    def others(self) -> list[tuple[str, str]]:
        """The titles and the URLs of the forms of other kinds that accept the source."""
        found = []
        for other in self.found.others if self.found else ():
            values: dict[str, Any] = {**other.fields}
            for path, upload in self._uploads.items():
                if path in other.fields.values():
                    values["upload"] = upload.id
            found.append((other.title, url_for("datasets.new", kind=kind_named(other.kind), **values)))
        return found

    @cached_property
    def _uploads(self) -> dict[str, Upload]:
        """The uploads by the paths in the fields."""
        uploads = services().uploads.list(login_name(request))
        paths = [str(self.form[name].data or "").rstrip("/") for name in self.form.scanned_paths()]
        return {
            path: upload
            for path in paths
            for upload in uploads
            if upload.content and f"{path}/".startswith(f"{upload.content}/")
        }

    def named(self, text: str) -> str:
        """Return ``text`` with the names of uploads instead of their paths."""
        for path, upload in self._uploads.items():
            text = text.replace(path, upload.record.name)
        return text

    # What the settings amount to

    @cached_property
    def _own_splits(self) -> set[str]:
        """The splits with records of their own."""
        own = self.form.own_splits() if self.form.SHARES else set()
        return {*own, *(self.found.splits if self.found else ())} - {"train"}

    def split(self) -> Split:
        """Return how the images are divided, in numbers if they are known."""
        form, found = self.form, self.found
        declared, total = (found.splits, found.total) if found else ({}, 0)
        shares: dict[str, int] = {
            split: 0 if split in self._own_splits else min(100, max(0, form[name].data or 0))
            for split, name in zip(SPLITS[1:], form.SHARES, strict=True)
        }
        taken = sum(shares.values())
        is_counted = bool(total) and self._own_splits <= declared.keys()
        divided = declared.get("train", total) if is_counted else 100
        taken_counts = {split: round(divided * share / 100) for split, share in shares.items()}
        counts: dict[str, int] = {"train": max(0, divided - sum(taken_counts.values())), **taken_counts}
        if is_counted:
            counts |= {split: declared[split] for split in self._own_splits}
        whole, unit = max(1, sum(counts.values())), "" if is_counted else "%"
        titles = {split: title.lower() for split, title in SPLIT_TITLES.items()}
        parts = {
            split: (100 * count / whole, f"{count:,}{unit} {titles[split]}")
            for split, count in counts.items()
            if count
        }
        separate = [
            f"separate {titles[split]}" for split in SPLITS if split in self._own_splits - {*declared}
        ]
        is_whole = bool(declared) and taken == 0
        words = ", ".join([*(said for _, said in parts.values()), *separate])
        note = (
            "The source divides its images; a percentage is taken from its training images."
            if declared
            else ""
        )
        return Split(
            parts,
            f"{'About ' if is_counted and not is_whole else ''}{words}{', as in the source' if is_whole else ''}",
            "The source divides its images into these splits." if is_whole else note,
            f"Validation and test take {taken}%: nothing is left to train on." if taken >= 100 else "",
        )


def drawn(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Replace what summaries in lines of JSON draw by ``html``."""
    for line in lines:
        summary = msgspec.json.decode(line, type=SourceSummary)
        html = render_template("_source_contents.html", summary=summary)
        rest = replace(summary, previews=[], table=[], pictures=[], bars=[], sizes=[])
        yield json.dumps({**asdict(rest), "html": html}).encode() + b"\n"


def _value(field: Field) -> str | bool:
    return (
        bool(field.data)
        if isinstance(field, BooleanField)
        else str(field._value() if hasattr(field, "_value") else field.data)
    )


def _offer(field: Field, choices: list[tuple[str, str]]) -> None:
    """Let a list show other choices, with the present value among them."""
    field.iter_choices = lambda: [
        Choice(value, words, value == (field.data or ""), {}) for value, words in choices
    ]


def _suggest(field: Field, *, is_suggested: bool) -> None:
    """Mark a value that was not entered, which form_memory.js does not keep."""
    if is_suggested:
        _render_with(field, **{"data-suggested": True})


def _render_with(field: Field, **attributes: Any) -> None:
    field.render_kw = {**(field.render_kw or {}), **attributes}
