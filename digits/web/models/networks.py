"""The network that the form of models asks for: its text, its initial weights and its folder."""

from __future__ import annotations

from pathlib import Path

from flask import request
from wtforms import Field

from digits.core.errors import BadRequest, DigitsError, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.models.pretrained_catalog import PREFIX
from digits.kinds.advice.recommendation import facts_of, refusal
from digits.kinds.forms.fields import errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import Network, every_network, network, networks
from digits.kinds.views import views_of
from digits.web.jobs.snapshots import snapshot_of
from digits.web.models import network_lint
from digits.web.models.form import MAX_NETWORK_CHARACTERS, ModelForm
from digits.web.models.form_fields import BALANCES
from digits.web.models.network_settings import server_resources
from digits.web.services import services


def trained_by(weights: str | None) -> ModelJob | None:
    """Return the model of this server that saved the snapshot ``weights``."""
    folder = Path(weights).parent if weights else None
    job = services().store.find(folder.name) if folder else None
    return job if isinstance(job, ModelJob) and job.folder == folder else None


def network_of(form: ModelForm) -> tuple[str, str | None]:
    """Return the network's text and the weights to start from. Errors are added to the form's fields."""
    text, weights = _chosen_network(form)
    is_in_text = form.method.data == "custom" and calls_pretrained(text)
    if form.fine_tune.data and not weights and not is_in_text and not errors_of(form):
        _blame(form.fine_tune, "Choose initial weights: ImageNet, a file, or a snapshot of an earlier model.")
    return text, weights


def _chosen_network(form: ModelForm) -> tuple[str, str | None]:
    if form.method.data == "custom":
        text = (form.custom_network.data or "").replace("\r\n", "\n")
        # A text that is too long already has an error.
        for fault in (
            network_lint.check(text)[:1] if len(text) <= MAX_NETWORK_CHARACTERS and text.strip() else []
        ):
            _blame(form.custom_network, f"Line {fault['line']}: {fault['message']} {fault['hint']}".strip())
        return text, form.custom_network_snapshot.data or None
    if form.method.data in ("previous", "pretrained"):
        return _network_of_model(form)
    try:
        standard = network(form.standard_networks.data or "lenet")
    except NotFound as error:
        _blame(form.standard_networks, error.message)
        return "", None
    dataset = services().store.find(form.dataset.data or "")
    if isinstance(dataset, DatasetJob) and dataset.data_kind.name not in standard.kinds:
        titles = ", ".join(item.title for item in networks([dataset.data_kind.name]).values())
        kind = dataset.data_kind.title.lower()
        _blame(
            form.standard_networks, f"{standard.title} is not a network for {kind}. Choose one of: {titles}."
        )
    elif isinstance(dataset, DatasetJob):
        reason = refusal(standard, facts_of(dataset), server_resources())
        if reason:
            _blame(form.standard_networks, f"{standard.title} cannot be trained on this dataset. {reason}")
    return standard.text, _standard_weights(form, standard)


def _standard_weights(form: ModelForm, chosen: Network) -> str | None:
    """Return the initial weights of a standard network; None for random ones."""
    if form.custom_network_snapshot.data and "initial_weights" not in request.form:
        form.set(initial_weights="file")
    elif request.form.get("custom_network_snapshot") and form.initial_weights.data != "file":
        _blame(form.custom_network_snapshot, "Set initial_weights=file, or omit this field.")
    if form.initial_weights.data == "file":
        if not form.custom_network_snapshot.data:
            _blame(form.custom_network_snapshot, "Enter the path of a weights file, or upload one.")
        return form.custom_network_snapshot.data or None
    if form.initial_weights.data != "imagenet":
        return None
    if not chosen.pretrained:
        having = ", ".join(item.title for item in every_network().values() if item.pretrained)
        _blame(
            form.initial_weights, f"There are no ImageNet weights of {chosen.title}. Choose one of: {having}."
        )
        return None
    return f"{PREFIX}{chosen.pretrained}"


def check_kind(form: ModelForm) -> None:
    """Add errors for settings that are not available for the dataset's kind; turn off settings that were not sent."""
    dataset = services().store.find(form.dataset.data or "")
    if not isinstance(dataset, DatasetJob):
        return
    views, kind = views_of(dataset.data_kind), dataset.data_kind.title.lower()
    for field in form.keep_transformations(views.transformations):
        if field.name in request.form and not field.errors:
            _blame(field, f"Not available for {kind}. Omit this setting.")
    if form.balance.data not in views.balancing and not form.balance.errors:
        words = " or ".join(str(choice.label) for choice in BALANCES if choice.value in views.balancing)
        _blame(form.balance, f"Not available for {kind}. Choose {words}.")


def _network_of_model(form: ModelForm) -> tuple[str, str | None]:
    """Return the network of the chosen model, and the weights of its chosen snapshot or those in the file.

    Without either, the weights of an imported model are those that were imported, and of other models random.
    """
    field = form.chosen_model()
    job = services().store.find(field.data or "")
    if not isinstance(job, ModelJob):
        _blame(field, "Choose one of the models.")
        return "", None
    try:
        text = job.network_text()
    except UnreadableFile as error:
        _blame(field, f"The network of “{job.name}” cannot be read: {error}.")
        return "", None
    epoch, file = request.form.get(f"{job.id}-snapshot"), form.custom_network_snapshot
    if epoch and request.form.get(file.name):
        _blame(file, f"Specify either this file or {job.id}-snapshot.")
    if not epoch and file.data:
        return text, file.data
    try:
        if epoch is None and form.method.data == "pretrained":
            return text, str(job.folder / snapshot_of(job, None).name)
        return text, weights_of(job, epoch or "")
    except DigitsError as error:
        _blame(field, error.sentences)
        return text, None


def weights_of(job: ModelJob, epoch: str) -> str | None:
    """Return the weights that ``epoch`` names as in DIGITS 6: an epoch, or -1 for those that ``job`` started from.

    For 0 or an empty text, return None: random ones. Raises DigitsError if there are no such weights.
    """
    # Imported models without an epoch have a snapshot of epoch 0.
    if not epoch or (epoch == "0" and services().snapshots_of(job).of_epoch(0) is None):
        return None
    if epoch == "-1" and not job.recipe.weights:
        raise BadRequest(f"“{job.name}” started from random weights.", "Choose one of its snapshots, or 0.")
    return job.recipe.weights if epoch == "-1" else str(job.folder / snapshot_of(job, epoch).name)


def network_folder(form: ModelForm, text: str) -> Path | None:
    """Return the folder with the files that the network ``text`` may load by a relative path.

    It is that of the chosen model, whose network may have been customized, else that of the model that saved the
    initial weights.
    """
    if form.method.data == "standard" or not calls_pretrained(text):
        return None
    job = services().store.find(form.chosen_model().data or "")
    if not isinstance(job, ModelJob):
        job = trained_by(form.custom_network_snapshot.data)
    return job.folder if job else None


def calls_pretrained(text: str) -> bool:
    return "digits.pretrained(" in text


def _blame(field: Field, message: str) -> None:
    field.errors = [*field.errors, message]
