"""The settings that a standard network brings to the model form, adapted to a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from werkzeug.datastructures import MultiDict
from wtforms import Field

from digits.kinds.jobs import DatasetJob
from digits.web.model_form import ModelForm
from digits.web.standard_networks import Network, default_network, every_network


def network_for(dataset: DatasetJob) -> Network | None:
    """Return the standard network that fits ``dataset``, which may be unfinished; None if its kind has none."""
    recipe = dataset.recipe
    return default_network(dataset.data_kind.name, recipe.width, recipe.height, recipe.channels)


def settings_of(network: Network) -> dict[str, str]:
    """Return the value of each field that any standard network sets: that of ``network``, or the form's default."""
    return network.values | {
        name: text for name, text in default_settings().items() if name not in network.values
    }


def settings_on(network: Network, dataset: DatasetJob) -> dict[str, str]:
    """Return `settings_of` the ``network`` for the images of ``dataset``, which are cropped only if they are larger.

    ``static/js/network_settings.js`` does the same.
    """
    settings = settings_of(network)
    if settings["crop_size"] and int(settings["crop_size"]) >= smaller_side(dataset):
        settings["crop_size"] = ""
    return settings


def smaller_side(dataset: DatasetJob) -> int:
    """Return the smaller side of the images of ``dataset`` in pixels."""
    return min(dataset.recipe.width, dataset.recipe.height)


def apply(settings: Mapping[str, str], form: ModelForm, sent: Collection[str] = ()) -> None:
    """Set the fields of ``form`` to ``settings``, except those that were ``sent``."""
    for name, text in settings.items():
        if name not in sent:
            form[name].process(MultiDict({name: text}))


@cache
def default_settings() -> dict[str, str]:
    """Return the default of each field that any standard network sets, as text, in the order of the form."""
    named = {"crop_size"}.union(*(network.values for network in every_network().values()))
    return {field.name: _text(field) for field in ModelForm(formdata=None) if field.name in named}


def _text(field: Field) -> str:
    return str(field._value() if hasattr(field, "_value") else field.data)
