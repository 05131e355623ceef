"""A source that the form of a dataset offers: its fields, its settings in the recipe, its check and its suggestion."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from wtforms import SelectField

from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.data.sources.declared_splits import roots_of_training
from digits.kinds.forms.fields import choices
from digits.kinds.forms.summary import Suggestion

# An ImageDatasetForm, whose module imports this one.
DatasetForm: TypeAlias = Any


class Beside(NamedTuple):
    """The source of a split at ``path``, and the ``fields`` of a form that use it."""

    path: Path
    fields: dict[str, str | bool]


class FormSource:
    """A source of `digits.kinds.forms.dataset.ImageDatasetForm.SOURCES`.

    The value ``method`` of the form's field of the same name selects it; ``title`` is the word for it. ``path`` is the
    field with the training source, which errors of the source are shown at. The recipe stores the settings in the
    ``attribute`` as a struct of the class ``settings``, or without one in the recipe itself. Its fields are those bound
    to the struct, and those whose names match one of ``names``. ``own`` are the fields with a source of a split, with
    ``{}`` for its name.
    """

    method = ""
    title = ""
    path = ""
    attribute = ""
    settings: type[Struct] = Struct
    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        """The fields with the training source that the page shows."""
        return (self.path,)

    def fields(self, form: DatasetForm) -> tuple[str, ...]:
        """Return all fields of the source."""
        bound = [] if self.settings is Struct else form.names_of(self.settings)
        return tuple(
            field.name
            for field in form
            if field.name in bound or any(fnmatchcase(field.name, name) for name in self.names)
        )

    def required_paths(self, form: DatasetForm) -> tuple[str, ...]:
        """Return the fields without which there is no summary."""
        return (self.path,)

    def addresses(self, form: DatasetForm) -> list[str]:
        """Return the remote addresses of the training source."""
        texts = [str(form[name].data or "") for name in self.scanned_paths]
        return [line.strip() for text in texts for line in text.splitlines() if is_address(line)]

    def own_fields(self, split: str) -> list[str]:
        """Return the fields with a source of ``split``."""
        return [name.format(split) for name in self.own]

    def own_splits(self, form: DatasetForm) -> set[str]:
        """Return the splits other than ``train`` that have a source of their own."""
        return {
            split
            for split in SPLITS[1:]
            if any(str(form[name].data or "").strip() for name in self.own_fields(split))
        }

    def read(self, form: DatasetForm) -> dict[str, Any]:
        """Return arguments of the recipe that no field is bound to; raises DigitsError."""
        return {self.attribute: form.struct(self.settings)} if self.attribute else {}

    def is_in(self, recipe: Any) -> bool:
        """Return whether ``recipe`` has this source."""
        return not self.attribute or isinstance(getattr(recipe, self.attribute), self.settings)

    def fill(self, form: DatasetForm, recipe: Any) -> None:
        """Fill in the fields from ``recipe`` that are not bound to its settings: the inverse of `read`."""
        if self.attribute:
            form.fill_struct(getattr(recipe, self.attribute))

    def complete(self, form: DatasetForm) -> None:
        """Fill in what valid fields leave open; may add errors to fields, and raise UnusableSource."""

    def find_beside(self, form: DatasetForm) -> dict[str, Beside]:
        """Return the sources of further splits beside the training source, with valid fields."""
        return {}

    def check(self, form: DatasetForm, recipe: Any) -> None:
        """Raise UnusableSource if the beginning of the source cannot be read with the settings of ``recipe``."""

    def suggest(self, form: DatasetForm, recipe: Any) -> Suggestion | None:
        """Return the question about the source to ask beside its summary, if there is one."""
        return None


def folders_beside(
    form: DatasetForm, folder: Path, find: Callable[[Path], Mapping[str, Beside]]
) -> dict[str, Beside]:
    """Return the sources of the other splits around the training ``folder``, if it is named for training.

    ``find`` returns those of all splits in a folder; that of the training split must be the one in the fields.
    """
    for root in roots_of_training(folder):
        found = dict(find(root)) if form.meta.data_roots.contain(root) else {}
        train = found.pop("train", None)
        if found and train and all(_is_same(form[name].data, value) for name, value in train.fields.items()):
            return found
    return {}


def _is_same(entered: Any, path: str | bool) -> bool:
    return os.path.realpath(str(entered or "")) == os.path.realpath(str(path))


def method_field(sources: Sequence[FormSource]) -> SelectField:
    """Return the field that selects one of the ``sources``, by default the first one."""
    options = choices(*((source.method, source.title) for source in sources))
    return SelectField("Source", choices=options, default=sources[0].method)
