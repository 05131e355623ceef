"""The recommended settings of a standard network for the model form, adapted to a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from werkzeug.datastructures import MultiDict
from wtforms import Field

from digits.kinds.jobs import DatasetJob
from digits.web.model_form import ModelForm
from digits.web.standard_networks import Network, default_network, every_network


def network_for(dataset: DatasetJob) -> Network | None:
    """Return the default network for ``dataset``, which may be unfinished; None if its kind has no networks."""
    recipe = dataset.recipe
    return default_network(dataset.data_kind.name, recipe.width, recipe.height, recipe.channels)


def settings_of(network: Network) -> dict[str, str]:
    """Return the settings of ``network``, with the form's defaults for fields that only other networks set."""
    return network.values | {
        name: text for name, text in default_settings().items() if name not in network.values
    }


def settings_on(network: Network, dataset: DatasetJob) -> dict[str, str]:
    """Return the settings of ``network``, without a crop size unless the images of ``dataset`` are larger.

    ``static/js/network_list.js`` implements the same rule.
    """
    settings = settings_of(network)
    if settings["crop_size"] and int(settings["crop_size"]) >= smaller_side(dataset):
        settings["crop_size"] = ""
    return settings


def smaller_side(dataset: DatasetJob) -> int:
    """Return the length of the shorter side of the images of ``dataset`` in pixels."""
    return min(dataset.recipe.width, dataset.recipe.height)


def apply(settings: Mapping[str, str], form: ModelForm, sent: Collection[str] = ()) -> None:
    """Set the fields of ``form`` to ``settings``, except those that the request ``sent``."""
    for name, text in settings.items():
        if name not in sent:
            form[name].process(MultiDict({name: text}))


@cache
def default_settings() -> dict[str, str]:
    """Return the form's defaults, as text, for all fields that any standard network sets, in the form's order."""
    named = {"crop_size"}.union(*(network.values for network in every_network().values()))
    return {field.name: _text(field) for field in ModelForm(formdata=None) if field.name in named}


def _text(field: Field) -> str:
    return str(field._value() if hasattr(field, "_value") else field.data)
