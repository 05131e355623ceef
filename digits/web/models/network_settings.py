"""The recommendation for a new model in the model form: its facts and resources, and the fields that it fills in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import humanize
from werkzeug.datastructures import MultiDict
from wtforms import BooleanField, Field

from digits.core.recipe import Train
from digits.data.models.pretrained import WeightsPlaces
from digits.data.models.pretrained_catalog import CATALOG, PREFIX, Pretrained
from digits.data.numbers import parse_number
from digits.data.parallel import available_cores
from digits.kinds.advice.recommendation import (
    Facts,
    Recommendation,
    Resources,
    WeightsState,
    facts_of,
    fields_of_rules,
    fine_tuning_any,
    recommend,
)
from digits.kinds.advice.training_time import core_speed
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import Network, every_network, networks
from digits.runtime.devices import Device
from digits.web.models.form import ModelForm
from digits.web.resources.datasets import NetworkSettings, RecommendedModel
from digits.web.services import services


def server_resources(*, from_scratch: bool = False) -> Resources:
    """Return what a training on this server can use; ``from_scratch``, it does without ImageNet weights."""
    available = resources_of(services().devices.list(), services().weights_places)
    return replace(available, weights={}) if from_scratch else available


def resources_of(devices: Sequence[Device], places: WeightsPlaces) -> Resources:
    """Return what a training on ``devices`` can use: on the CPU, which is the first one, or on a GPU."""
    return Resources(
        device="gpu" if any(device.is_gpu for device in devices) else "cpu",
        cores=available_cores(),
        speed=core_speed(),
        weights={entry.id: _state(entry, places) for entry in CATALOG.values()},
        unusable={item.id: item.missing for item in every_network().values() if item.missing},
    )


def _state(entry: Pretrained, places: WeightsPlaces) -> WeightsState:
    if places.find(entry):
        return "at hand"
    return "missing" if entry.how_to_get else "unknown"


def recommended(dataset: DatasetJob) -> Recommendation | None:
    """Return the recommendation of `recommend` for ``dataset``, which may be unfinished."""
    return recommend(facts_of(dataset), server_resources())


def recommendation_of(facts: Facts, available: Resources) -> RecommendedModel | None:
    """Return what the form shows of the recommendation for a dataset, with the settings of all networks."""
    best = recommend(facts, available)
    if best is None:
        return None
    weights = best.settings.get("initial_weights", "random")
    return RecommendedModel(
        network=best.network,
        headline=headline(every_network()[best.network], weights, is_tuned=weights == "imagenet"),
        reason=best.reason,
        good=[*best.good],
        seconds=best.seconds,
        time=_time(best, "GPU" if available.device == "gpu" else "CPU"),
        download=best.download,
        networks={
            name: _network_settings(
                recommend(facts, available, name), _weights(item, available), best.refusals.get(name, "")
            )
            for name, item in networks([facts.kind]).items()
        },
        fine_tune=fine_tuning_any(facts),
    )


def headline(network: Network | None, weights: str, *, is_tuned: bool) -> str:
    """Return what a training of a standard network does, such as *Train ResNet-50 from scratch*."""
    origin = {"random": "scratch", "imagenet": "ImageNet weights", "file": "your weights"}[weights]
    return (
        f"{'Fine-tune' if is_tuned else 'Train'} {network.in_words if network else 'a network'} from {origin}"
    )


def _weights(network: Network, available: Resources) -> str:
    """Return whether the ImageNet weights of ``network`` are on this server; "" if there are none, or none are used."""
    if not network.pretrained or not available.weights:
        return ""
    download = f"{CATALOG[network.pretrained].full.megabytes} MB of weights to download"
    return {
        "at hand": "weights on this server",
        "unknown": download,
        "missing": "weights not on this server",
    }[available.weights_of(network)]


def _network_settings(best: Recommendation | None, weights: str, refusal: str) -> NetworkSettings:
    """Return the recommended settings, with the form's defaults for all other fields that some network sets."""
    return NetworkSettings(
        default_settings() | (best.settings if best else {}), _time(best) if best else "", weights, refusal
    )


def _time(best: Recommendation, device: str = "") -> str:
    seconds = best.seconds
    if seconds is None:
        return ""
    # Early stopping is not foreseeable.
    about = "Up to about" if best.settings.get("early_stopping_metric") else "About"
    return f"{about} {humanize.naturaldelta(seconds)}{f' on the {device}' if device else ''}"


def apply(settings: Mapping[str, str], form: ModelForm, sent: Collection[str] = ()) -> None:
    """Set the fields of ``form`` to ``settings``, except those that the request ``sent``."""
    for name, text in settings.items():
        if name not in sent:
            form[name].process(MultiDict({name: text}))


@cache
def default_settings() -> dict[str, str]:
    """Return the form's defaults, as text, for all fields that a recommendation can set, in the form's order."""
    named = fields_of_rules().union({"crop_size"}, *(network.values for network in every_network().values()))
    return {name: text for name, text in default_texts().items() if name in named}


@cache
def default_texts() -> dict[str, str]:
    """Return the form's defaults, as text."""
    return {field.name: text_of(field) for field in ModelForm(formdata=None)}


def text_of(field: Field) -> str:
    """Return the value of a field as text, as in recommended settings."""
    if isinstance(field, BooleanField):
        return str(bool(field.data)).lower()
    return str(field._value() if hasattr(field, "_value") else field.data)


def same(one: str, other: str) -> bool:
    """Return whether two texts mean the same value, such as the numbers 0.10 and 0.1."""
    if re.sub(r",\s*", ", ", one.strip()) == re.sub(r",\s*", ", ", other.strip()):
        return True
    try:
        return parse_number(one) == parse_number(other)
    except ValueError:
        return False


def recommended_recipe(best: Recommendation, dataset: str, places: WeightsPlaces) -> Train:
    """Return the recipe that trains the recommended network on the dataset in the folder ``dataset``."""
    form, network = ModelForm(formdata=None), every_network()[best.network]
    apply(default_settings() | best.settings, form)
    (size,), (rate,) = form.batch_size.data, form.learning_rate.data
    weights = f"{PREFIX}{network.pretrained}" if form.initial_weights.data == "imagenet" else None
    return form.recipe(dataset, weights, size, rate, places)


def save_recommended(
    folder: Path, best: Recommendation, dataset: Path, places: WeightsPlaces, resources: Resources
) -> None:
    """Write the recommended network and the recipe of its training into ``folder``, to be trained without the server.

    Raises OSError.
    """
    recipe = recommended_recipe(best, str(dataset), places)
    recipe.devices = ["0"] if resources.device == "gpu" else ["cpu"]
    (folder / recipe.task).mkdir(parents=True)
    (folder / recipe.network).write_text(every_network()[best.network].text, encoding="utf-8")
    recipe.save(folder / recipe.task)
