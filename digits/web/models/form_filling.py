"""Fill in the form of models, and make its recipe."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from wtforms.fields.choices import SelectChoice

from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.data.pretrained import WeightsPlaces
from digits.data.pretrained_catalog import PREFIX
from digits.kinds.form_fields import NAME_LENGTH, choices
from digits.kinds.jobs import DatasetJob
from digits.kinds.request_fields import parse_integer
from digits.web.models import fine_tune_settings, network_settings
from digits.web.models.form import ModelForm
from digits.web.models.form_choices import kinds_balanced_by, offer_datasets, offered_networks
from digits.web.models.form_fields import BALANCES
from digits.web.models.networks import trained_by
from digits.web.models.standard_networks import every_network, network
from digits.web.services import services

# The digits of a number at the end of a name, and the space before it.
_LONGEST_NUMBER = 6


def open_form(data: Any) -> ModelForm:
    form = ModelForm(formdata=data, meta={"data_roots": services().roots})
    offered = offer_datasets(form)
    if data is None and offered:
        form.dataset.data = offered[0].id
    form.standard_networks.choices = choices(*((item.id, item.title) for item in offered_networks().values()))
    form.balance.choices = [
        SelectChoice(value, words, {"data-kinds": " ".join(kinds_balanced_by(value))})
        for value, words, *_ in BALANCES
    ]
    return form


def recipe_of(
    form: ModelForm, dataset: DatasetJob, weights: str | None, size: int | None, rate: float
) -> Train:
    """Return the recipe of the form, which must be valid, with the places of pretrained weights."""
    recipe, places = form.recipe(str(dataset.folder), weights, size, rate), weights_places()
    recipe.weights_folder, recipe.weights_sources = str(places.folder), [*places.sources]
    return recipe


def weights_places() -> WeightsPlaces:
    settings = services().settings
    return WeightsPlaces(settings.weights_dir, settings.weights_sources)


def fit(form: ModelForm, sent: Collection[str] = ()) -> None:
    """Fill in the fields that were not ``sent``: the default network for the dataset, and the network's settings.

    For fine-tuning, its settings are the defaults.
    """
    if form.fine_tune.data:
        network_settings.apply(fine_tune_settings.SETTINGS, form, {*sent, "fine_tune"})
        return
    dataset = services().store.find(form.dataset.data or "")
    if form.method.data != "standard" or not isinstance(dataset, DatasetJob):
        return
    named = "standard_networks" in sent
    name = form.standard_networks.data or ""
    if chosen := every_network().get(name) if named else network_settings.network_for(dataset):
        form.standard_networks.data = chosen.id
        network_settings.apply(network_settings.settings_on(chosen, dataset), form, sent)


def next_name(name: str) -> str:
    """Return a name for a copy of the model ``name``: that name with the first free number from 2."""
    base, _, number = name.rpartition(" ")
    if parse_integer(number) is None:
        base = name
    names = {job.name for job in services().store.index.select(ModelJob, base)}
    base = (base if base in names else name)[: NAME_LENGTH - _LONGEST_NUMBER]
    return next(free for count in itertools.count(2) if (free := f"{base} {count}") not in names)


def fill_from(form: ModelForm, job_id: str) -> None:
    """Fill in the configuration and the network of another job."""
    job = services().store.get(job_id, ModelJob)
    form.fill(job)
    text = job.network_text()
    source = trained_by(job.recipe.weights)
    standard = next((item.id for item in every_network().values() if item.text == text), None)
    if source and source.network_text() == text:
        form.set(
            method="previous", previous_networks=source.id, custom_network_snapshot=job.recipe.weights or ""
        )
    elif standard and not job.recipe.weights:
        form.set(method="standard", standard_networks=standard)
    elif standard and (job.recipe.weights or "").startswith(PREFIX):
        form.set(method="standard", standard_networks=standard, initial_weights="imagenet")
    elif standard and network(standard).pretrained:
        form.set(
            method="standard",
            standard_networks=standard,
            initial_weights="file",
            custom_network_snapshot=job.recipe.weights,
        )
    else:
        form.set(method="custom", previous_networks=job.id, custom_network_snapshot=job.recipe.weights or "")
    form.set(custom_network=text)
    offer_datasets(form)
