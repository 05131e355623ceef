"""Fill in the form of models, and make its recipe."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from wtforms.fields.choices import SelectChoice

from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.data.models.pretrained_catalog import PREFIX
from digits.kinds.advice.recommendation import facts_of, fine_tuning_any
from digits.kinds.forms.fields import NAME_LENGTH, choices
from digits.kinds.forms.request_fields import parse_integer
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import every_network, network
from digits.web.jobs.compute_choice import offer_targets
from digits.web.models import network_settings
from digits.web.models.form import ModelForm
from digits.web.models.form_choices import kinds_balanced_by, offer_datasets, offered_networks
from digits.web.models.form_fields import BALANCES
from digits.web.models.networks import trained_by
from digits.web.services import services

# The digits of a number at the end of a name, and the space before it.
_LONGEST_NUMBER = 6


def open_form(data: Any) -> ModelForm:
    form = ModelForm(formdata=data, meta={"data_roots": services().roots})
    offer_targets(form)
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
    places = network_settings.weights_places()
    return network_settings.recipe_of(form, str(dataset.folder), weights, size, rate, places)


def fit(form: ModelForm, sent: Collection[str] = (), *, is_recommended: bool = False) -> None:
    """Fill in the fields that were not ``sent``: the best network for the dataset, and the settings for it.

    ImageNet weights must be requested with ``fine_tune``, unless the form ``is_recommended`` as a whole: then the facts
    decide.
    """
    dataset = services().store.find(form.dataset.data or "")
    if not isinstance(dataset, DatasetJob):
        return
    if form.method.data != "standard":
        if form.fine_tune.data:
            network_settings.apply(fine_tuning_any(facts_of(dataset)), form, {*sent, "fine_tune"})
        return
    named = form.standard_networks.data or "" if "standard_networks" in sent else ""
    may_decide = is_recommended and "fine_tune" not in sent
    best = network_settings.recommended(dataset, named, None if may_decide else bool(form.fine_tune.data))
    if best and named in ("", best.network):
        form.standard_networks.data = best.network
        network_settings.apply(best.settings, form, sent)


def suggested_name(form: ModelForm) -> str:
    """Return a name for the model, from the names of its standard network and its dataset; "" without either."""
    item, dataset = (
        every_network().get(form.standard_networks.data or ""),
        services().store.find(form.dataset.data or ""),
    )
    return f"{item.title} on {dataset.name}"[:NAME_LENGTH] if item and dataset else ""


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
