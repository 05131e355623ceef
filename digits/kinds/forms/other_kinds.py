"""Recognize what the form of one kind of datasets cannot use as the source of another one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from werkzeug.datastructures import MultiDict

from digits.core.errors import DigitsError
from digits.data.sources.class_folders import find_datasets
from digits.data.sources.dataset_folder import find
from digits.kinds import kind_named
from digits.kinds.forms import previews
from digits.kinds.forms.summary import OtherKind

# The kinds and methods of sources. The first group in which some accept a source says the most about it.
GROUPS = (
    (("image-object-detection", "folder"), ("image-segmentation", "folder")),
    (("image-regression", "csv"), ("image-classification", "csv"), ("image-multilabel", "csv")),
    (("image-classification", "folder"),),
)


def recognize(form: Any, kind: str) -> list[OtherKind]:
    """Return the kinds and methods that accept the source in the ``form`` of another ``kind`` or method."""
    # As entered, because a form completes its fields.
    entered = (form[name].raw_data for name in form.source.scanned_paths)
    path = next((str(texts[0]).strip() for texts in entered if texts and str(texts[0]).strip()), "")
    if not path or find_datasets(Path(path)):
        return []
    own = kind, form.source.method
    for group in () if form.source_addresses() else GROUPS:
        accepted = [found for each in group if each != own if (found := _accepted(form, *each, path))]
        # Boxes can also be annotations for masks, unless these are read.
        if others := accepted if len(accepted) < 2 else [each for each in accepted if _is_read(each[1])]:
            return [other for other, _ in others]
    return []


def _table_in(folder: str) -> list[str]:
    """Return the training table in a folder, for sources that are not a folder."""
    with contextlib.suppress(DigitsError, OSError):
        contents = find(folder)
        contents.need_tables()
        return [str(path) for path in contents.tables["train"][:1] if str(path) != folder]
    return []


def _accepted(form: Any, kind: str, method: str, path: str) -> tuple[OtherKind, Any] | None:
    """Return the kind that accepts the source at ``path``, or the table in it, and its form."""
    named = kind_named(kind)
    form_type = named.load("form").DatasetForm
    source = next(source for source in form_type.SOURCES if source.method == method)
    meta = {name: getattr(form.meta, name) for name in ("data_roots", "remote", "job_folder")}
    title = named.title + ("" if source is form_type.SOURCES[0] else f" ({source.title})")
    for place in (path, *_table_in(path)):
        fields = {"method": method, source.scanned_paths[0]: place}
        other = form_type(MultiDict(fields), meta=meta)
        with contextlib.suppress(DigitsError, OSError):
            if not (
                other.are_of_source(other.complete_source()) or other.are_of_source(other.check_source())
            ):
                return OtherKind(kind, title, fields), other
    return None


def _is_read(form: Any) -> bool:
    with contextlib.suppress(DigitsError, OSError):
        previews.read_part(form.draft(), previews.PartialProgress())
        return True
    return False
