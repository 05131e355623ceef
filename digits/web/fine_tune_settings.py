"""The settings of Fine-tune for the model form: sound defaults for a few hundred to a few thousand photos."""

from __future__ import annotations

from digits.core.recipe import Train
from digits.data.pretrained import WeightsPlaces
from digits.data.pretrained_catalog import CATALOG
from digits.web import network_settings
from digits.web.model_form import ModelForm
from digits.web.standard_networks import Network

# Fields of the model form with their values, as text. The epochs include those of the head.
SETTINGS = {
    "fine_tune": "true",
    "head_epochs": "3",
    "head_rate": "0.001",
    "trunk_factor": "0.1",
    "solver_type": "ADAM",
    "learning_rate": "0.0005",
    "lr_policy": "cosine",
    "lr_warmup": "10",
    "batch_size": "16",
    "train_epochs": "8",
    "use_mean": "none",
    "crop_size": "",
    "aug_flip": "fliplr",
    "aug_pad_crop": "8",
    "early_stopping_metric": "loss",
    "early_stopping_patience": "5",
    "snapshots_kept": "1",
}


def default_recipe(network: Network, dataset: str, weights: str) -> Train:
    """Return the recipe of a fine-tuning of ``network`` from ``weights`` on the dataset in the folder ``dataset``."""
    form = ModelForm(formdata=None)
    network_settings.apply(network_settings.settings_of(network) | SETTINGS, form)
    (size,), (rate,) = form.batch_size.data, form.learning_rate.data
    return form.recipe(dataset, weights, size, rate)


def offers(places: WeightsPlaces) -> dict[str, dict[str, object]]:
    """Return, for each entry of the catalog, the facts that the form shows: whether its weights are on this machine."""
    return {
        entry.id: {
            "title": entry.title,
            "found": str(found) if (found := places.find(entry)) else None,
            "megabytes": entry.full.megabytes,
            "license": entry.license,
        }
        for entry in CATALOG.values()
    }
