"""Fields and validators that several forms share. Messages are named here, once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flask_wtf import FlaskForm
from wtforms import Field, FloatField, Form, IntegerField, StringField
from wtforms.fields.choices import SelectChoice
from wtforms.validators import Length, Optional, StopValidation, ValidationError

from digits.errors import DigitsError
from digits.roots import Kind
from digits.services import services

NAME_LENGTH = 200


class JobForm(FlaskForm):
    """Base of the forms that create a job. The forgery token is checked for the whole app."""

    class Meta:
        csrf = False

    group_name = StringField("Group", default="", validators=[Optional(), Length(max=NAME_LENGTH)])

    def process(self, *arguments: Any, **keywords: Any) -> None:
        super().process(*arguments, **keywords)
        # A program need not send every field: what it leaves out has its default and counts as given.
        for field in self:
            if field.raw_data == [] and field.data is not None:
                field.raw_data = [str(field.data)]

    def values(self) -> dict[str, Any]:
        """What the user filled in, as it is kept for cloning."""
        return {field.name: field.data for field in self if _is_plain(field.data)}

    def fill(self, values: dict[str, Any]) -> None:
        """Put in what `values` kept of another job."""
        for field in self:
            if field.name in values:
                field.data = values[field.name]


def choices(*pairs: tuple[str, str]) -> list[SelectChoice]:
    """The choices of a select field, from values and their words."""
    return [SelectChoice(value, words) for value, words in pairs]


class NumberList(Field):
    """One number or several: ``0.01``, ``0.1, 0.01`` or ``[0.1, 0.01]``. ``data`` is a list."""

    widget = StringField.widget

    def __init__(self, label: str, number: type[int] | type[float], **arguments: Any) -> None:
        self._number = number
        super().__init__(label, **arguments)

    def process_formdata(self, valuelist: list[Any]) -> None:
        if not valuelist:
            return
        self.data = []
        # Several values of one name are a list, whatever each of them looks like.
        self.data = [number for value in valuelist for number in numbers_in(str(value), self._number)]

    def process_data(self, value: Any) -> None:
        self.data = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]

    def _value(self) -> str:
        if self.raw_data and self.errors:
            return ",".join(str(value) for value in self.raw_data)
        return ", ".join(f"{number:g}" for number in self.data or [])


# One number with a decimal comma, or a thousands separator, rather than a list: no list has a value such as 01.
_ONE_NUMBER = {
    float: re.compile(r"(?<![\d.,])(0,\d+|\d+,0\d+)(e[+-]?\d+)?(?![\d.])", re.IGNORECASE),
    int: re.compile(r"(?<![\d,])\d{1,3},0\d\d(?!\d)"),
}


def numbers_in(text: str, number: type[int] | type[float] = float) -> list[Any]:
    """The numbers of a list such as ``0.1, 0.01`` or ``[8, 10]``.

    Raises ValueError, for the user, for what is no such list and for what may be one number:
    ``0,01`` is a list of two only in brackets or with a space.
    """
    text = text.strip()
    unclear = None if text.startswith("[") else _ONE_NUMBER[number].search(text)
    if unclear:
        first, _, second = unclear[0].partition(",")
        one = f"{first}{'.' if number is float else ''}{second}"
        raise ValueError(
            f"Is “{unclear[0]}” {one}, or the two values {first} and {second}? "
            f"Write {one} or [{first}, {second}]."
        )
    try:
        return [number(part) for part in text.strip("[]").split(",") if part.strip()]
    except ValueError:
        kind = "whole numbers" if number is int else "numbers"
        raise ValueError(f"Give {kind}, separated by commas.") from None


class DecimalField(FloatField):
    """A number; with a decimal comma, the message says how to write it."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        try:
            super().process_formdata(valuelist)
        except ValueError:
            text = str(valuelist[0]).strip()
            if re.fullmatch(r"[+-]?\d*,\d+", text):
                raise ValueError(f"Write {text.replace(',', '.')}, with a decimal point.") from None
            raise ValueError("Give a number.") from None


class OptionalInteger(IntegerField):
    """A whole number that may be left out; then ``data`` is None."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        if not valuelist or not str(valuelist[0]).strip():
            self.data = None
            return
        super().process_formdata(valuelist)


class JoinedField(StringField):
    """Several values of one name, as boxes send them, joined by commas."""

    def process_formdata(self, valuelist: list[Any]) -> None:
        if valuelist:
            self.data = ",".join(valuelist)


class Each:
    """Every number of a list is at least ``least``."""

    def __init__(self, least: float) -> None:
        self._least = least

    def __call__(self, form: Form, field: Field) -> None:
        if any(number < self._least for number in field.data or []):
            raise ValidationError(f"Must be at least {self._least:g}.")


class RequiredIf:
    """The field is required when the other fields have these values, and not looked at otherwise."""

    field_flags: dict[str, Any] = {}

    def __init__(self, **others: Any) -> None:
        self._others = others

    def __call__(self, form: Form, field: Field) -> None:
        if any(form[name].data != value for name, value in self._others.items()):
            field.errors = []
            raise StopValidation
        if field.data is None or (isinstance(field.data, str) and not field.data.strip()):
            field.errors = []
            raise StopValidation("This field is required.")


class NotYet:
    """A field of DIGITS that this version keeps the name of but cannot do: only its default passes."""

    field_flags: dict[str, Any] = {}

    def __init__(self, *accepted: Any) -> None:
        self._accepted = accepted

    def __call__(self, form: Form, field: Field) -> None:
        if field.data not in self._accepted:
            raise ValidationError("This is not supported yet; leave it out.")


class NotLessThan:
    """The number is not less than that of another field."""

    def __init__(self, other: str) -> None:
        self._other = other

    def __call__(self, form: Form, field: Field) -> None:
        other = form[self._other].data
        if field.data is not None and other is not None and field.data < other:
            raise ValidationError(f"Must not be less than “{form[self._other].label.text}” ({other}).")


class AllowedPath:
    """The text names a readable ``file`` or ``folder`` below an allowed root; ``data`` becomes its real path."""

    field_flags: dict[str, Any] = {}

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def __call__(self, form: Form, field: Field) -> None:
        try:
            field.data = str(services().roots.resolve(field.data.strip(), kind=self._kind))
        except DigitsError as error:
            raise ValidationError(" ".join(filter(None, (error.message, error.hint)))) from None


def errors_of(form: Form) -> dict[str, list[str]]:
    """Every field's messages, flat."""
    return {name: [str(message) for message in _flat(messages)] for name, messages in form.errors.items()}


def _flat(messages: Iterable[Any]) -> Iterable[Any]:
    for message in messages:
        if isinstance(message, (list, tuple)):
            yield from _flat(message)
        else:
            yield message


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (str, int, float, bool))
