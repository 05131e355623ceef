"""The recommended settings of a standard network for the model form, adapted to a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from werkzeug.datastructures import MultiDict
from wtforms import Field

from digits.core.recipe import Transformation
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.models.form import TRANSFORMATION_FIELDS, ModelForm
from digits.web.models.standard_networks import Network, default_network, every_network, networks

# Random crops shift images by at most one of this many parts of their shorter side.
PADDED_PARTS = 8


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
    """Return the settings of ``network`` that suit the kind of ``dataset`` and the size of its images.

    Transformations that the kind does not offer are turned off. The crop size is dropped unless the images are larger,
    and the padding for random crops if it exceeds an eighth of their shorter side.
    """
    settings, side = settings_of(network), min(dataset.recipe.width, dataset.recipe.height)
    settings |= without_transformations(settings, views_of(dataset.data_kind).transformations)
    if settings["crop_size"] and int(settings["crop_size"]) >= side:
        settings["crop_size"] = ""
    if int(settings["aug_pad_crop"]) * PADDED_PARTS > side:
        settings["aug_pad_crop"] = "0"
    return settings


def without_transformations(
    settings: Mapping[str, str], offered: Collection[Transformation]
) -> dict[str, str]:
    """Return the value that turns each transformation in ``settings`` off that is not ``offered``, by field."""
    return {
        field: "none" if name == "mean" else default_settings()[field]
        for name, field in TRANSFORMATION_FIELDS.items()
        if field in settings and name not in offered
    }


def adaptations(dataset: DatasetJob) -> dict[str, dict[str, str]]:
    """Return, for each network for the kind of ``dataset``, the settings of `settings_on` that are not its own."""
    offered = networks([dataset.data_kind.name])
    return {
        name: dict(settings_on(item, dataset).items() - settings_of(item).items())
        for name, item in offered.items()
    }


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
