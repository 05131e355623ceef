"""A source that the form of a dataset offers: its fields, its settings in the recipe, its check and its suggestion."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from msgspec import Struct
from wtforms import SelectField

from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.kinds.forms.fields import choices
from digits.kinds.forms.summary import Suggestion

# An ImageDatasetForm, whose module imports this one.
DatasetForm: TypeAlias = Any


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
        return tuple(field.name for field in form if field.name in bound or self._is_named(field.name))

    def _is_named(self, field: str) -> bool:
        return any(fnmatchcase(field, name) for name in self.names)

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

    def check(self, form: DatasetForm, recipe: Any) -> None:
        """Raise UnusableSource if the beginning of the source cannot be read with the settings of ``recipe``."""

    def suggest(self, form: DatasetForm, recipe: Any) -> Suggestion | None:
        """Return the question about the source to ask beside its summary, if there is one."""
        return None


def method_field(sources: Sequence[FormSource]) -> SelectField:
    """Return the field that selects one of the ``sources``, by default the first one."""
    options = choices(*((source.method, source.title) for source in sources))
    return SelectField("Source", choices=options, default=sources[0].method)
