"""Fields, validators and messages that several forms share."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flask_wtf import FlaskForm
from msgspec import Struct
from wtforms import BooleanField, Field, FloatField, Form, IntegerField, SelectField, StringField
from wtforms.fields.choices import SelectChoice
from wtforms.fields.core import UnboundField
from wtforms.form import FormMeta
from wtforms.validators import (
    DataRequired,
    InputRequired,
    Length,
    NumberRange,
    Optional,
    StopValidation,
    ValidationError,
)
from wtforms.widgets import NumberInput, TextArea

from digits.core import schema
from digits.core.errors import BadRequest, DigitsError, NotAllowed
from digits.core.job import Job
from digits.core.remote import is_address
from digits.core.schema import LARGEST_NUMBER, Limits
from digits.data.archives.unpacking import ENDINGS
from digits.data.data_roots import FileType, Roots
from digits.data.databases.convert import format_of, is_job
from digits.data.images.lists import need_an_image
from digits.data.records.shards import is_pattern
from digits.data.sources.plan import UnusableSource, show
from digits.kinds.forms.request_fields import parse_flag

NAME_LENGTH = 200
# For all fields except those in ``LONG_FIELDS`` of a form.
MAX_FIELD_CHARACTERS = 4096
MAX_LIST_CHARACTERS = 2000
MAX_LIST_LENGTH = 50
_ARCHIVES = tuple(f".{ending}" for ending in ENDINGS)
# The text direction of names is independent of the page.
OWN_DIRECTION = {"dir": "auto"}

S = TypeVar("S", bound=Struct)


class Binding(NamedTuple):
    """The setting that a form field edits: the field ``name`` of the struct ``kind``, and words to describe its value.

    ``words`` is a format of the value, or a dictionary with words for some of its values.
    """

    kind: type[Struct]
    name: str
    words: str | dict[str, str] = ""

    @property
    def limits(self) -> Limits:
        return schema.limits(self.kind, self.name)

    def describe(self, value: Any) -> str:
        """Return the words for ``value``; empty if there are none, as for a setting that is off."""
        if isinstance(self.words, dict):
            return self.words.get(value, "")
        return self.words.format(value) if value else ""


class Bound(Field):
    """Base of form fields that edit a setting: `JobForm.struct` reads it, and `JobForm.fill_struct` fills it in.

    A field can edit settings of several structs.
    """

    def __init__(self, *arguments: Any, binding: Binding | tuple[Binding, ...] = (), **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.bindings = (binding,) if isinstance(binding, Binding) else binding

    @property
    def binding(self) -> Any:
        """The first binding; None without one."""
        return next(iter(self.bindings), None)

    @property
    def setting(self) -> Any:
        """Return the value of the setting."""
        return self.data

    def data_of(self, value: Any) -> Any:
        """Return the field's data for a ``value`` of the setting; the inverse of ``setting``."""
        return value


def fields_of(form_class: type) -> dict[str, UnboundField[Any]]:
    """Return the fields of a form by name: those of its base classes, as they are listed, and then its own."""
    names = {name: None for base in form_class.__bases__ for name in fields_of(base)}
    for name in (name for name in vars(form_class) if not name.startswith("_")):
        names.pop(name, None)
        names[name] = None
    fields = {name: getattr(form_class, name) for name in names}
    return {name: field for name, field in fields.items() if isinstance(field, UnboundField)}


class _FormMeta(FormMeta):
    """Orders the fields of forms as in `fields_of`, whatever module is imported first."""

    _unbound_fields: list[tuple[str, UnboundField[Any]]] | None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._unbound_fields is None:
            self._unbound_fields = list(fields_of(self).items())
        return super().__call__(*arguments, **keywords)


class JobForm(FlaskForm, metaclass=_FormMeta):
    """Base of the forms that create a job. The forgery token is checked for the whole app.

    Pass ``meta={"data_roots": ...}`` to forms with paths: the folders that `AllowedPath` accepts.
    """

    LONG_FIELDS: frozenset[str] = frozenset()

    class Meta(FlaskForm.Meta):
        csrf = False

        def render_field(self, field: Field, render_kw: dict[str, Any]) -> Any:
            """Render a field; for a number, phones show a keyboard of digits."""
            if isinstance(field.widget, NumberInput):
                render_kw.setdefault("inputmode", "decimal" if field.widget.step else "numeric")
            return super().render_field(field, render_kw)

    group_name = StringField(
        "Group", default="", validators=[Optional(), Length(max=NAME_LENGTH)], render_kw=OWN_DIRECTION
    )

    def process(self, *arguments: Any, **keywords: Any) -> None:
        super().process(*arguments, **keywords)
        # A program need not send every field: what it leaves out has its default and counts as given.
        for field in self:
            if field.raw_data == [] and field.data is not None:
                field.raw_data = [str(field.data)]
            if field.name not in self.LONG_FIELDS:
                _shorten(field)

    def set(self, **values: Any) -> None:
        """Set the data of fields by name; fields that a request left out then count as sent."""
        for name, value in values.items():
            field = self[name]
            field.data = value
            if value is None:  # not the default, which would be validated
                field.raw_data = []
            elif field.raw_data == []:
                field.raw_data = [str(value)]

    def settings_of(self, kind: type[Struct], names: Container[str] | None = None) -> dict[str, Any]:
        """Return the settings of ``kind`` that fields edit, or only those called ``names``, by name.

        An empty setting is missing: it has its default. Raises DigitsError for some invalid fields.
        """
        fields = [item for item in self._fields_of(kind) if names is None or item[0].name in names]
        values = {binding.name: field.setting for field, binding in fields}
        return {name: value for name, value in values.items() if value not in (None, "", [])}

    def struct(self, kind: type[S], **others: Any) -> S:
        """Return a ``kind`` with the settings that fields edit, except ``others``."""
        return kind(**(self.settings_of(kind) | others))

    def fill_struct(self, struct: Struct) -> None:
        """Fill in the fields that edit settings of ``struct``; the inverse of `struct`."""
        for field, binding in self._fields_of(type(struct)):
            self.set(**{field.name: field.data_of(getattr(struct, binding.name))})

    def names_of(self, kind: type[Struct]) -> list[str]:
        """Return the names of the fields that edit settings of ``kind``."""
        return list(dict.fromkeys(field.name for field, _ in self._fields_of(kind)))

    def _fields_of(self, kind: type[Struct]) -> list[tuple[Any, Binding]]:
        bound = [(field, binding) for field in self if isinstance(field, Bound) for binding in field.bindings]
        return [(field, binding) for field, binding in bound if issubclass(kind, binding.kind)]

    def text_of(self, name: str) -> str:
        """Return the text in the field ``name``."""
        return (self[name].data or "").strip()

    def resolve(self, path: str, file_type: FileType) -> str:
        """Return the real path of a readable file or folder that a field names; raises DigitsError."""
        return str(self.meta.data_roots.resolve(path, file_type))

    def fill_names(self, job: Job) -> None:
        """Fill in the current name and group of another job."""
        self.set(**{f"{job.type}_name": job.name, "group_name": job.group})


def bindings_of(form_class: type[JobForm]) -> dict[str, Binding]:
    """Return the bindings of the fields of a form, by the names of the fields, in the order of the form."""
    bound = {name: field.kwargs.get("binding") for name, field in fields_of(form_class).items()}
    firsts = {name: binding[0] if type(binding) is tuple else binding for name, binding in bound.items()}
    return {name: binding for name, binding in firsts.items() if binding}


def _shorten(field: Field) -> None:
    """Truncate a text that is too long before further processing, and record the error."""
    if isinstance(field.data, str) and len(field.data) > MAX_FIELD_CHARACTERS:
        field.data = field.data[:MAX_FIELD_CHARACTERS]
        field.raw_data = [field.data]
        field.process_errors = [*field.process_errors, _too_long(MAX_FIELD_CHARACTERS)]


def _too_long(limit: int) -> str:
    return f"Must be at most {limit:,} characters long."


def choices(*pairs: tuple[str, str]) -> list[SelectChoice]:
    """The choices of a select field, from values and their words."""
    return [SelectChoice(value, words) for value, words in pairs]


def common_first(pairs: Iterable[tuple[str, str]], *common: str) -> list[SelectChoice]:
    """The choices of a select field, from values and their words: the ``common`` values, then the others."""
    titles = dict(pairs)
    rare = [value for value in titles if value not in common]
    return [
        SelectChoice(value, titles[value], optgroup=group)
        for group, values in (("Common", common), ("More", rare))
        for value in values
    ]


class NumberList(Bound):
    """One number or several within ``limits``: ``0.01``, ``0.1, 0.01`` or ``[0.1, 0.01]``. ``data`` is their list.

    The value of the setting is the first one.
    """

    widget = StringField.widget

    def __init__(
        self, label: str, number: type[int] | type[float], limits: Limits | None = None, **arguments: Any
    ) -> None:
        self._number = number
        self._low = (limits and limits.low) or 0
        self._high = (limits and limits.high) or LARGEST_NUMBER
        super().__init__(label, **arguments)

    def process_formdata(self, valuelist: list[Any]) -> None:
        if not valuelist:
            return
        self.data = []
        # Several values with the same name always form a list.
        numbers = [
            number
            for value in valuelist[: MAX_LIST_LENGTH + 1]
            for number in numbers_in(str(value), self._number, largest=self._high)
        ]
        _check_length(numbers, MAX_LIST_LENGTH)
        self.data = numbers

    def pre_validate(self, form: Form) -> None:
        if any(number < self._low for number in self.data or []):
            raise ValidationError(f"Must be at least {in_full(self._low)}.")

    def process_data(self, value: Any) -> None:
        self.data = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]

    def _value(self) -> str:
        if self.raw_data and (self.errors or self.process_errors):
            return ",".join(str(value) for value in self.raw_data)
        return ", ".join(f"{number:g}" for number in self.data or [])

    @property
    def setting(self) -> float | None:
        return self.data[0] if self.data else None

    def data_of(self, value: float | None) -> list[float]:
        return [] if value is None else [plain(value)]


# Likely one number with a decimal comma or thousands separator: lists do not contain values such as 01.
_ONE_NUMBER = {
    float: re.compile(r"(?<![\d.,])(0,\d+|\d+,0\d+)(e[+-]?\d+)?(?![\d.])", re.IGNORECASE),
    int: re.compile(r"(?<![\d,])\d{1,3},0\d\d(?!\d)"),
}


def numbers_in(
    text: str,
    number: type[int] | type[float] = float,
    most: int = MAX_LIST_LENGTH,
    largest: float = LARGEST_NUMBER,
) -> list[Any]:
    """Parse a list of at most ``most`` numbers up to ±``largest``, such as ``0.1, 0.01`` or ``[8, 10]``.

    Raises ValueError, with a message for the user, for invalid or ambiguous text:
    ``0,01`` is a list of two numbers only in brackets or with a space.
    """
    text = text.strip()
    if len(text) > MAX_LIST_CHARACTERS:
        raise ValueError(_too_long(MAX_LIST_CHARACTERS))
    unclear = None if text.startswith("[") else _ONE_NUMBER[number].search(text)
    if unclear:
        first, _, second = unclear[0].partition(",")
        one = f"{first}{'.' if number is float else ''}{second}"
        raise ValueError(
            f"“{unclear[0]}” is ambiguous: write {one} for one number, or [{first}, {second}] for two."
        )
    try:
        numbers = [number(part) for part in text.strip("[]").split(",") if part.strip()]
    except ValueError:
        kind = "integers" if number is int else "numbers"
        raise ValueError(f"Enter {kind}, separated by commas.") from None
    _check_length(numbers, most)
    if not all(abs(item) <= largest for item in numbers):
        raise ValueError(f"Must be at most {in_full(largest)}.")
    return numbers


def _check_length(numbers: list[Any], most: int) -> None:
    if len(numbers) > most:
        raise ValueError(f"Enter at most {most} numbers.")


class DecimalField(Bound, FloatField):
    """A number. For a decimal comma, the error message shows the correct form."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        try:
            super().process_formdata(valuelist)
        except ValueError:
            text = str(valuelist[0]).strip()
            if re.fullmatch(r"[+-]?\d*,\d+", text):
                raise ValueError(f"Use a decimal point: {text.replace(',', '.')}") from None
            raise ValueError("Enter a number.") from None

    def data_of(self, value: float) -> float:
        return plain(value)


class FlagField(Bound, BooleanField):
    """A flag, with the texts of `parse_flag`. A request without the field does not set it."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        self.data = bool(valuelist) and parse_flag(str(valuelist[0]))

    def _value(self) -> str:
        """Return the value of a ticked box, which does not depend on the submitted value."""
        return "y"

    @property
    def setting(self) -> bool:
        return bool(self.data)


class OptionalInteger(Bound, IntegerField):
    """A whole number that may be empty; then ``data`` is None, and the setting has its default.

    A request without the field gets the default of the field.
    """

    def process_formdata(self, valuelist: list[Any]) -> None:
        if valuelist and not str(valuelist[0]).strip():
            self.data = None
            return
        super().process_formdata(valuelist)

    @property
    def setting(self) -> Any:
        return self.binding.limits.default if self.data is None and self.binding else self.data

    def data_of(self, value: int | None) -> int | None:
        if value is None:  # which may not be the default of the field
            return None
        return self.default if self.binding and value == self.binding.limits.default else value


class WholeNumber(Bound, IntegerField):
    """A whole number; a setting that is a fraction is rounded up."""

    def data_of(self, value: float) -> int:
        return math.ceil(value)


class ChoiceField(Bound, SelectField):
    """A choice among the values of a setting, or their texts."""

    @property
    def setting(self) -> Any:
        return next((value for value in self.binding.limits.choices if str(value) == self.data), self.data)

    def data_of(self, value: Any) -> str:
        return str(value)


class TextField(Bound, StringField):
    """A text without surrounding space; if empty, the setting is None."""

    @property
    def setting(self) -> Any:
        return (self.data or "").strip() or None

    def data_of(self, value: Any) -> str:
        return value or ""


class JoinedField(StringField):
    """Several values of one name, as boxes send them, joined by commas."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        if valuelist:
            self.data = ",".join(valuelist)


class LinesField(StringField):
    """One string per line; repeated fields are joined."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        if valuelist:
            self.data = "\n".join(map(str, valuelist))

    def lines(self) -> list[str]:
        """Return the lines that are not blank."""
        return [line.strip() for line in (self.data or "").splitlines() if line.strip()]


class NamesField(Bound, StringField):
    """Names separated by commas. ``setting`` is their list, without duplicates."""

    @property
    def setting(self) -> list[str]:
        names = (name.strip() for name in (self.data or "").split(","))
        return list(dict.fromkeys(name for name in names if name))

    def data_of(self, names: list[str]) -> str:
        return ", ".join(names)


class SwitchField(Bound, SelectField):
    """A choice of two, whose values are ``1`` and ``0``. ``setting`` is whether it is the first one."""

    def __init__(self, label: str, yes: str, no: str, default: bool, **arguments: Any) -> None:
        options = choices(("1", yes), ("0", no))
        super().__init__(label, choices=options, default="1" if default else "0", **arguments)

    @property
    def setting(self) -> bool:
        return bool(self.data == "1")

    def data_of(self, value: bool) -> str:
        return "1" if value else "0"


class Between(NumberRange):
    """Require a finite number within ``limits``. Unlike its base class, accepts integers of any length."""

    def __init__(self, limits: Limits, message: str = "Must be between {low} and {high}.") -> None:
        words = {"low": in_full(limits.low or 0), "high": in_full(limits.high or 0)}
        super().__init__(limits.low, limits.high, message.format(**words))

    def __call__(self, form: Form, field: Field) -> None:
        if field.data is None or not self.min <= field.data <= self.max:
            raise ValidationError(self.message)


def number(
    label: str, kind: type[Struct], name: str, default: float | None = None, words: str = ""
) -> DecimalField:
    """A required number, with the limits and by default the default of the field ``name`` of ``kind``."""
    binding = Binding(kind, name, words)
    return DecimalField(
        label,
        default=plain(binding.limits.default if default is None else default),
        validators=[InputRequired("Enter a number."), Between(binding.limits)],
        binding=binding,
    )


def whole(
    label: str, kind: type[Struct], name: str, default: int | None = None, words: str = ""
) -> OptionalInteger:
    """An optional integer, with the limits of the field ``name`` of ``kind``."""
    binding = Binding(kind, name, words)
    validators = [Optional(), Between(binding.limits)]
    return OptionalInteger(label, default=default, validators=validators, binding=binding)


def select(
    label: str,
    options: list[SelectChoice],
    kind: type[Struct],
    name: str,
    default: str | None = None,
    words: dict[str, str] | None = None,
    also: type[Struct] | None = None,
) -> ChoiceField:
    """A choice among ``options``, by default with the default of the field ``name`` of ``kind``.

    It edits the setting of the same name of the struct ``also``, too.
    """
    binding = Binding(kind, name, words or {})
    bindings = (binding, *([Binding(also, name)] if also else []))
    return ChoiceField(
        label, choices=options, default=default or str(binding.limits.default), binding=bindings
    )


def number_list(
    label: str, number_type: type[int] | type[float], kind: type[Struct], name: str
) -> NumberList:
    """A list of numbers, with the limits and the default of the field ``name`` of ``kind``."""
    binding = Binding(kind, name)
    default = [] if binding.limits.default is None else [binding.limits.default]
    return NumberList(label, number_type, binding.limits, default=default, binding=binding)


def name_field(label: str, words: str) -> StringField:
    """A required name of a job; ``words`` ask for it."""
    checks = [DataRequired(words), Length(max=NAME_LENGTH)]
    return StringField(label, validators=checks, render_kw=OWN_DIRECTION)


def text_field(label: str, kind: type[Struct], name: str, *validators: Any) -> TextField:
    """A text for the field ``name`` of ``kind``."""
    return TextField(label, default="", validators=validators, binding=Binding(kind, name))


def optional_path(label: str, kind: type[Struct], name: str, file_type: FileType) -> TextField:
    """The path of a file or folder for the field ``name`` of ``kind``; may be empty."""
    return text_field(label, kind, name, AllowedPath(file_type, may_be_empty=True))


def paths_field(label: str, kind: type[Struct], name: str) -> TextField:
    """Files or folders, one per line, for the field ``name`` of ``kind``."""
    checks = [AllowedPath("any", may_be_empty=True)]
    return TextField(label, default="", validators=checks, binding=Binding(kind, name), widget=TextArea())


def flag(label: str, kind: type[Struct], name: str, words: str = "") -> FlagField:
    """A flag, with the default of the field ``name`` of ``kind``."""
    binding = Binding(kind, name, words)
    return FlagField(label, default=binding.limits.default, binding=binding)


def in_full(number: float) -> str:
    """Write a limit without an exponent: ``0.5``, ``4,294,967,295``."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,}"


def plain(number: float) -> float:
    """Return ``number`` in the form's notation: an int if it is integral."""
    return int(number) if number == int(number) else number


@contextlib.contextmanager
def as_field_error() -> Iterator[None]:
    """Raise ValidationError with the message and the hint of a DigitsError that is raised inside."""
    try:
        yield
    except DigitsError as error:
        raise ValidationError(error.sentences) from None


class RequiredIf:
    """Require the field if all other fields have these values, or without any always; ignore it otherwise.

    Unlike `DataRequired`, browsers do not require it: the page may hide the field with its source.
    """

    field_flags: dict[str, Any] = {}

    def __init__(self, message: str = "This field is required.", /, **others: Any) -> None:
        self._message, self._others = message, others

    def __call__(self, form: Form, field: Field) -> None:
        if any(form[name].data != value for name, value in self._others.items()):
            field.errors = []
            raise StopValidation
        if field.data is None or (isinstance(field.data, str) and not field.data.strip()):
            field.errors = []
            raise StopValidation(self._message)


class NeededWith:
    """Refuse a value without one of the field ``other``; ``message`` says so."""

    def __init__(self, other: str, message: str) -> None:
        self._other, self._message = other, message

    def __call__(self, form: Form, field: Field) -> None:
        other = form[self._other]
        if field.data not in (None, "") and other.data in (None, "") and not other.process_errors:
            raise ValidationError(self._message)


class NotLessThan:
    """Require a number that is not less than that of another field."""

    def __init__(self, other: str) -> None:
        self._other = other

    def __call__(self, form: Form, field: Field) -> None:
        other = form[self._other].data
        if field.data is not None and other is not None and field.data < other:
            raise ValidationError(f"Must not be less than “{form[self._other].label.text}” ({other}).")


class AllowedPath:
    """Validate readable files or folders below an allowed root, one per line; ``data`` becomes their real paths.

    In the form of a dataset, remote addresses are valid too, if an administrator allows them. Validators that follow
    and open the file are then skipped. An empty field is valid if it ``may_be_empty``, and an archive if it
    ``may_be_archive``.
    """

    field_flags: dict[str, Any] = {}

    def __init__(
        self, file_type: FileType, *, may_be_empty: bool = False, may_be_archive: bool = False
    ) -> None:
        self._file_type, self._may_be_empty, self._may_be_archive = file_type, may_be_empty, may_be_archive

    def __call__(self, form: Form, field: Field) -> None:
        with as_field_error():
            field.data = self.resolve(form, field.data or "")
        if any(map(is_address, field.data.splitlines())):
            raise StopValidation

    def resolve(self, form: Any, text: str) -> str:
        """Return the real paths and the remote addresses in the ``text`` of a field; raises DigitsError."""
        paths = [path for path in text.strip().splitlines() if path.strip()]
        if not paths and self._may_be_empty:
            return ""
        if not self._may_be_archive:
            for path in paths:
                refuse_archive(form.meta.data_roots, path)
        return "\n".join(form.resolve(path, self._file_type) for path in paths or [""])


def refuse_archive(roots: Roots, path: str) -> None:
    """Raise BadRequest if ``path`` is that of an archive, which only uploads may be; may raise another DigitsError."""
    is_named = path.strip().lower().endswith(_ARCHIVES) and not is_address(path)
    if is_named and os.path.isfile(roots.resolve(path, "any")):
        raise BadRequest(
            f"{show(path.strip())} is an archive.",
            "Unpack it and enter the folder, or upload it with “Files…”: uploads are unpacked.",
        )


def need_images(field: Field) -> None:
    """Raise ValidationError if the folder in a field contains no images.

    Only the first entries are examined. Remote addresses and files are valid.
    """
    folder = Path(field.data or "")
    if not field.data or not folder.is_dir():
        return
    with as_field_error():
        if is_job(folder) or format_of(folder):
            raise UnusableSource(
                f"{show(field.data)} contains databases.", "Choose the source “LMDB, HDF5” (method=database)."
            )
        need_an_image(folder)


def check_images(form: Form, names: Iterable[str]) -> bool:
    """Add an error to each field whose folder contains no images, as in `need_images`; return whether all do."""
    is_valid = True
    for field in (form[name] for name in names):
        try:
            if not field.errors:
                need_images(field)
        except ValidationError as error:
            field.errors = [*field.errors, str(error)]
            is_valid = False
    return is_valid


class AllowedFiles(AllowedPath):
    """Validate a path of `resolve_files`, or a remote address as in `AllowedPath`; an empty field is valid."""

    def __init__(self) -> None:
        super().__init__("any", may_be_empty=True)

    def resolve(self, form: Any, text: str) -> str:
        path = text.strip()
        if is_address(path):
            return str(form.resolve(path, "any"))
        refuse_archive(form.meta.data_roots, path)
        return resolve_files(form.meta.data_roots, path) if path else ""


def resolve_files(roots: Roots, text: str) -> str:
    """Return the real path of a file, a folder, or a pattern for files of a folder; raises DigitsError."""
    text = text.strip()
    try:
        return str(roots.resolve(text, "file"))
    except NotAllowed:
        raise
    except DigitsError:
        if not is_pattern(text):
            return str(roots.resolve(text, "folder"))
    folder, _, pattern = text.rpartition("/")
    return str(roots.resolve(folder, "folder") / pattern)


def errors_of(form: Form) -> dict[str, list[str]]:
    """The error messages of each field, flattened."""
    return {name: [str(message) for message in _flat(messages)] for name, messages in form.errors.items()}


def _flat(messages: Iterable[Any]) -> Iterable[Any]:
    for message in messages:
        if isinstance(message, (list, tuple)):
            yield from _flat(message)
        else:
            yield message
