"""Forms submitted by programs: omitted fields have the defaults of the page."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import MultiDict
from wtforms import BooleanField, FloatField, IntegerField, SelectField
from wtforms.validators import InputRequired

from digits.kinds.forms.fields import DecimalField, JobForm, NumberList

pytestmark = pytest.mark.usefixtures("request_in_progress")


class Example(JobForm):
    width = IntegerField(default=256, validators=[InputRequired()])
    share = FloatField(default=0.0, validators=[InputRequired()])
    rates = NumberList("Rates", float, default=[0.01])
    sizes = NumberList("Sizes", int, default=[])
    zoom = DecimalField(default=0.1)
    kind = SelectField(choices=["a", "b"], default="b", validators=[InputRequired()])
    wanted = BooleanField(default=True)
    folder = IntegerField(validators=[InputRequired("Which?")])


def test_omitted_fields_have_their_defaults_unless_they_are_checkboxes():
    """Browsers do not submit unchecked boxes."""
    form = Example(MultiDict({"folder": "1"}))
    assert form.validate(), form.errors
    assert (form.width.data, form.share.data, form.rates.data, form.kind.data) == (256, 0.0, [0.01], "b")
    assert form.wanted.data is False


def test_the_fields_of_base_classes_come_first_as_they_are_listed():
    class Last(JobForm):
        last = FloatField()

    class First(JobForm):
        first = FloatField()
        overridden = FloatField()

    class Form(First, Last):
        own = FloatField()
        overridden = FloatField()

    assert [field.name for field in Form()] == ["group_name", "first", "last", "own", "overridden"]


def test_a_field_without_a_default_is_required_and_an_empty_one_does_not_get_it():
    form = Example(MultiDict({"width": "2"}))
    assert not form.validate() and form.errors == {"folder": ["Which?"]}
    form = Example(MultiDict({"folder": "1", "width": "", "rates": ""}))
    assert not form.validate() and list(form.errors) == ["width"]
    assert form.rates.data == []


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("rates", "0,01", "write 0.01 for one number, or [0, 01] for two"),
        ("rates", " 0,5 ", "write 0.5 for one number, or [0, 5] for two"),
        ("rates", "1,05", "write 1.05 for one number, or [1, 05] for two"),
        ("rates", "0,01,0,02", "write 0.01"),
        ("rates", "0,5e-3", "write 0.5e-3"),
        ("sizes", "1,024", "write 1024 for one number, or [1, 024] for two"),
    ],
)
def test_a_decimal_comma_is_an_error(field: str, text: str, words: str) -> None:
    form = Example(MultiDict({"folder": "1", field: text}))
    assert not form.validate()
    assert words in form.errors[field][0]
    assert f'value="{text}"' in form[field]()


@pytest.mark.parametrize(
    ("field", "text", "numbers"),
    [
        ("rates", "0.01,0.02", [0.01, 0.02]),
        ("rates", "8,10", [8, 10]),
        ("rates", "0,0.1", [0, 0.1]),
        ("rates", "0, 5", [0, 5]),
        ("rates", "[0,01]", [0, 1]),
        ("rates", "1e-3,1e-4", [1e-3, 1e-4]),
        ("rates", "10.5,05.25", [10.5, 5.25]),
        ("sizes", "8,10", [8, 10]),
        ("sizes", "[8, 10]", [8, 10]),
        ("sizes", "100,200", [100, 200]),
    ],
)
def test_a_list_stays_a_list(field: str, text: str, numbers: list[float]) -> None:
    form = Example(MultiDict({"folder": "1", field: text}))
    assert form.validate(), form.errors
    assert form[field].data == numbers
    shown = str(form[field]()).partition('value="')[2].partition('"')[0]
    assert Example(MultiDict({"folder": "1", field: shown}))[field].data == numbers


def test_several_values_of_one_name_are_a_list() -> None:
    form = Example(MultiDict([("folder", "1"), ("rates", "0"), ("rates", "01")]))
    assert form.validate(), form.errors
    assert form.rates.data == [0, 1]


def test_a_single_number_with_a_comma_is_corrected() -> None:
    form = Example(MultiDict({"folder": "1", "zoom": "0,25"}))
    assert not form.validate()
    assert form.errors == {"zoom": ["Use a decimal point: 0.25"]}
