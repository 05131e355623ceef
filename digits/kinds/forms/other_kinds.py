"""Recognize what the form of one kind of datasets cannot use as the source of another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from werkzeug.datastructures import MultiDict

from digits.core.errors import DigitsError
from digits.data.sources.class_folders import find_datasets
from digits.kinds import kind_named

# The kinds and methods of sources. The first group in which some accept a source says the most about it.
GROUPS = (
    (("image-object-detection", "folder"), ("image-segmentation", "folder")),
    (("image-regression", "csv"), ("image-classification", "csv"), ("image-multilabel", "csv")),
    (("image-classification", "folder"),),
)


@dataclass
class OtherKind:
    """A ``kind`` of datasets by name that accepts a source with values of the ``fields`` of its form."""

    kind: str
    title: str
    fields: dict[str, str]


def recognize(form: Any, kind: str) -> list[OtherKind]:
    """Return the kinds and methods that accept the source in the ``form`` of another ``kind`` or method."""
    # As entered, because a form completes its fields.
    entered = (form[name].raw_data for name in form.source.scanned_paths)
    path = next((str(texts[0]).strip() for texts in entered if texts and str(texts[0]).strip()), "")
    if not path or find_datasets(Path(path)):
        return []
    own = kind, form.source.method
    for group in () if form.source_addresses() else GROUPS:
        found = [_accepted(form, *each, path) for each in group if each != own]
        if others := [each for each in found if each]:
            return others
    return []


def _accepted(form: Any, kind: str, method: str, path: str) -> OtherKind | None:
    named = kind_named(kind)
    form_type = named.load("form").DatasetForm
    source = next(source for source in form_type.SOURCES if source.method == method)
    fields = {"method": method, source.scanned_paths[0]: path}
    meta = {name: getattr(form.meta, name) for name in ("data_roots", "remote", "job_folder")}
    other = form_type(MultiDict(fields), meta=meta)
    try:
        if other.are_of_source(other.complete_source()) or other.are_of_source(other.check_source()):
            return None
    except (DigitsError, OSError):
        return None
    is_first = source is form_type.SOURCES[0]
    return OtherKind(kind, named.title + ("" if is_first else f" ({source.title})"), fields)
