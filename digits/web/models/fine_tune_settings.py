"""The settings of Fine-tune for the model form: sound defaults for a few hundred to a few thousand photos."""

from __future__ import annotations

from digits.core.recipe import Train
from digits.data.pretrained import WeightsPlaces
from digits.data.pretrained_catalog import CATALOG
from digits.kinds.jobs import DatasetJob
from digits.web.models import network_settings
from digits.web.models.form import ModelForm
from digits.web.models.standard_networks import Network, networks

# Fine-tuning is suggested for color images of at least this size, and up to this number of training images.
SMALLEST_SIDE = 64
MOST_IMAGES = 5000

# Fields of the model form with their values, as text. The epochs include those of the head.
SETTINGS = {
    "fine_tune": "true",
    "head_epochs": "2",
    "head_rate": "0.003",
    "trunk_factor": "0.1",
    "solver_type": "ADAM",
    "learning_rate": "0.0005",
    "lr_policy": "cosine",
    "lr_warmup": "10",
    "batch_size": "16",
    "train_epochs": "7",
    "use_mean": "none",
    "crop_size": "",
    "aug_flip": "fliplr",
    "early_stopping_metric": "loss",
    "early_stopping_patience": "5",
    "snapshots_kept": "1",
}


def default_recipe(network: Network, dataset: str, weights: str) -> Train:
    """Return the recipe for fine-tuning ``network`` from ``weights`` on the dataset in the folder ``dataset``."""
    form = ModelForm(formdata=None)
    network_settings.apply(network_settings.settings_of(network) | SETTINGS, form)
    (size,), (rate,) = form.batch_size.data, form.learning_rate.data
    return form.recipe(dataset, weights, size, rate)


def suggestion(dataset: DatasetJob, training: Train) -> str:
    """Return a suggestion to fine-tune instead of ``training``; empty if it is pointless or not available."""
    manifest = dataset.manifest()
    if manifest is None or training.weights or manifest.channels != 3:
        return ""
    count = manifest.splits["train"].count
    if count > MOST_IMAGES or min(manifest.width, manifest.height) < SMALLEST_SIDE:
        return ""
    fitting = networks([dataset.data_kind.name]).values()
    offered = [item.title for item in fitting if item.pretrained and not item.missing]
    if not offered:
        return ""
    return (
        f"{count:,} images are few for training from scratch. Fine-tuning a network with ImageNet weights is usually "
        f"far more accurate on photos, and faster. Available for {', '.join(offered)}."
    )


def offers(places: WeightsPlaces) -> dict[str, dict[str, object]]:
    """Return, for each entry of the catalog, the facts that the form shows: whether its weights are on this machine."""
    return {
        entry.id: {
            "title": entry.title,
            "found": str(found) if (found := places.find(entry)) else None,
            "megabytes": entry.full.megabytes,
            "license": entry.license,
            "file": entry.full.name,
            "folder": str(places.folder),
            "is_downloaded": not entry.how_to_get,
        }
        for entry in CATALOG.values()
    }
