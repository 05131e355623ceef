"""Forms that programs fill in: what is left out has the default of the page."""

from __future__ import annotations

from collections.abc import Iterator

import flask
import pytest
from werkzeug.datastructures import MultiDict
from wtforms import BooleanField, FloatField, IntegerField, SelectField
from wtforms.validators import InputRequired

from digits.forms import JobForm, NumberList


class Example(JobForm):
    width = IntegerField(default=256, validators=[InputRequired()])
    share = FloatField(default=0.0, validators=[InputRequired()])
    rates = NumberList("Rates", float, default=[0.01])
    kind = SelectField(choices=["a", "b"], default="b", validators=[InputRequired()])
    wanted = BooleanField(default=True)
    folder = IntegerField(validators=[InputRequired("Which?")])


@pytest.fixture(autouse=True)
def request_in_progress() -> Iterator[None]:
    app = flask.Flask(__name__)
    app.secret_key = "for tests"
    with app.test_request_context(method="POST"):
        yield


def test_what_is_left_out_has_its_default():
    form = Example(MultiDict({"folder": "1"}))
    assert form.validate(), form.errors
    assert (form.width.data, form.share.data, form.rates.data, form.kind.data) == (256, 0.0, [0.01], "b")


def test_a_box_that_is_not_sent_is_not_ticked():
    """Browsers send no unticked boxes."""
    assert Example(MultiDict({"folder": "1"})).wanted.data is False


def test_what_has_no_default_is_asked_for():
    form = Example(MultiDict({"width": "2"}))
    assert not form.validate()
    assert form.errors == {"folder": ["Which?"]}


def test_what_is_sent_empty_is_not_the_default():
    form = Example(MultiDict({"folder": "1", "width": "", "rates": ""}))
    assert not form.validate()
    assert list(form.errors) == ["width"]
    assert form.rates.data == []
