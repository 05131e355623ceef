"""The classes of labels: new ones, changes, and the classes of labels to begin with."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from digits.core.errors import BadRequest, NotFound
from digits.data.sources.plan import show
from digits.data.targets.palette import css_color, distinct_color
from digits.kinds.labeling.answers import MAX_NAME, Color, LabelClass
from digits.kinds.labeling.forms import Form, folded


class ClassChange(Struct):
    """A new class, or what changes in that with the ``id``."""

    id: int | None = None
    name: str | UnsetType = UNSET
    color: Color | UnsetType = UNSET
    is_deleted: bool | UnsetType = UNSET


def changed(classes: Sequence[LabelClass], form: Form, change: ClassChange) -> list[LabelClass]:
    """Return the classes after one is added, changed or deleted; raises BadRequest or NotFound."""
    number = change.id
    if number is None:
        return with_new(classes, form, [change.name or ""])
    if not 0 <= number < len(classes):
        raise NotFound(f"There is no class {number}.")
    before = classes[number]
    given = {name: value for name, value in structs.asdict(change).items() if value is not UNSET}
    after = structs.replace(before, **given)
    if after.is_deleted and form.has_background and number == 0:
        raise BadRequest("The background cannot be deleted.")
    others = [item for item in classes if item.id != number]
    if "name" in given or (before.is_deleted and not after.is_deleted):
        after.name = _checked(after.name, others)
    return [after if item.id == number else item for item in classes]


def with_new(classes: Sequence[LabelClass], form: Form, names: Iterable[str]) -> list[LabelClass]:
    """Return the classes followed by new ones called ``names``, with the next ids; raises BadRequest."""
    every = [*classes]
    for name in names:
        number = len(every)
        if number >= form.most_classes:
            raise BadRequest(f"At most {form.most_classes:,} classes are possible, deleted ones included.")
        is_background = form.has_background and not number
        color = "#000000" if is_background else css_color(distinct_color(number))
        every.append(LabelClass(id=number, name=_checked(name, every), color=color))
    return every


def with_found(
    classes: Sequence[LabelClass], form: Form, found: Sequence[str]
) -> tuple[list[LabelClass], dict[str, int]]:
    """Return the classes followed by those ``found`` that are not among them, and the id of each name found.

    Raises BadRequest if upper and lower case make the difference between two of those found.
    """
    names: dict[str, str] = {}
    for name in found:
        if (first := names.setdefault(folded(name), name)) != name:
            raise BadRequest(f"“{show(first)}” and “{show(name)}” are the same class.", "Rename one of them.")
    known = {folded(item.name) for item in classes}
    every = with_new(classes, form, [name for key, name in names.items() if key not in known])
    ids = {folded(item.name): item.id for item in every}
    return every, {name: ids[folded(name)] for name in found}


def _checked(name: str, others: Sequence[LabelClass]) -> str:
    """Return the name of a class; raises BadRequest if it is not one line of text, or that of one of ``others``."""
    plain = unicodedata.normalize("NFC", name.strip())
    if not plain or len(plain) > MAX_NAME or not plain.isprintable():
        raise BadRequest(f"The name of a class is one line of 1 to {MAX_NAME} characters.")
    if any(folded(item.name) == folded(plain) for item in others if not item.is_deleted):
        raise BadRequest(
            f"There are two classes called “{plain}”.", "Upper and lower case make no difference."
        )
    return plain
