"""The form fields that choose where a job runs."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins
from wtforms.validators import Length, Optional, ValidationError
from wtforms.widgets import TextArea

from digits.core import schema
from digits.core.compute import LOCAL, Compute
from digits.kinds.forms.fields import (
    MAX_LIST_CHARACTERS,
    Between,
    Binding,
    Bound,
    ChoiceField,
    JobForm,
    LinesField,
    OptionalInteger,
    TextField,
    choices,
)

# All that a server may have; it offers those that it has.
TARGETS = choices((LOCAL, "This machine"), ("slurm", "Slurm"), ("ray", "Ray"))
# In messages of `schema`, which are for programs.
_NAME_RULE = "Use letters, digits, “_”, “-” and “.” only, at most 64 of them."
_OPTION_RULE = "Enter options such as --constraint=a100, one per line, at most 20."


class OptionsField(Bound, LinesField):
    """Options of a program, one per line; the setting is their tuple."""

    widget = TextArea()

    @property
    def setting(self) -> tuple[str, ...]:
        return tuple(self.lines())

    def data_of(self, value: Any) -> str:
        return "\n".join(value)


def _words(name: str) -> dict[str, Any]:
    """Return the arguments of the field of the setting ``name``."""
    limits = schema.limits(Compute, name)
    return {"label": limits.title, "description": limits.description, "binding": Binding(Compute, name)}


def amount(name: str, default: int | None = None) -> OptionalInteger:
    """Return a field for the amount ``name`` of `Compute`."""
    validators = [Optional(), Between(schema.limits(Compute, name))]
    return OptionalInteger(validators=validators, default=default, **_words(name))


def _name(name: str) -> TextField:
    return TextField(validators=[Optional()], default="", **_words(name))


class ComputeFields(JobForm):
    """Where a job runs; forms offer the targets of their server."""

    compute_target = ChoiceField(choices=TARGETS, default=LOCAL, **{**_words("target"), "description": ""})
    compute_cpus = amount("cpus")
    compute_memory_mb = amount("memory_mb")
    compute_minutes = amount("minutes")
    compute_partition = _name("partition")
    compute_account = _name("account")
    compute_qos = _name("qos")
    compute_options = OptionsField(
        validators=[Optional(), Length(max=MAX_LIST_CHARACTERS)], default="", **_words("options")
    )

    @property
    def is_local(self) -> bool:
        """Whether the job runs on the machine of the server."""
        return bool(self.compute_target.data == LOCAL)

    def compute(self) -> Compute:
        """Return where the job runs. On this machine, only the number of workers is a choice."""
        return Compute(**self.settings_of(Compute, {"compute_workers"} if self.is_local else None))

    def fill_compute(self, compute: Compute) -> None:
        """The inverse of `compute`."""
        self.fill_struct(compute)

    def offer_targets(self, titles: dict[str, str]) -> None:
        """Offer the targets with these ``titles``, by name."""
        self.compute_target.choices = choices(*titles.items())

    def validate_compute_partition(self, field: TextField) -> None:
        _check(field, "partition", _NAME_RULE)

    def validate_compute_account(self, field: TextField) -> None:
        _check(field, "account", _NAME_RULE)

    def validate_compute_qos(self, field: TextField) -> None:
        _check(field, "qos", _NAME_RULE)

    def validate_compute_options(self, field: OptionsField) -> None:
        _check(field, "options", _OPTION_RULE)


def _check(field: Bound, name: str, rule: str) -> None:
    """Require a value that `Compute` accepts when it is read again."""
    try:
        schema.convert({name: to_builtins(field.setting)}, Compute)
    except schema.Malformed:
        raise ValidationError(rule) from None
