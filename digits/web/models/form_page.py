"""The page of the form of models: what it says about the training that its fields describe."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from wtforms import BooleanField, Field

from digits.core.errors import BadRequest
from digits.data.models.pretrained_catalog import CATALOG, Pretrained
from digits.kinds import default_kind, kind_named
from digits.kinds.advice.recommendation import TRANSFORMATION_FIELDS, Settings
from digits.kinds.standard_networks import networks, template
from digits.kinds.views import format_number, views_of
from digits.web.jobs import serializers
from digits.web.models import network_settings
from digits.web.models.form import BALANCES, SOLVER_FIELDS
from digits.web.models.form_choices import metric_choices, offer_datasets, previous_networks
from digits.web.models.network_settings import same, text_of
from digits.web.models.submission import EVERYTHING, Submission
from digits.web.resources.datasets import RecommendedModel
from digits.web.responses.representation import render_in_turns
from digits.web.services import services
from digits.web.template_filters import without_unit

LABELS_SHOWN = 4
_TRANSFORMATION_OF = {field: name for name, field in TRANSFORMATION_FIELDS.items()}


class Card(NamedTuple):
    """What the form says about the training that it describes.

    ``advice`` is the headline of the recommendation, unless the form has its settings.
    """

    is_recommended: bool
    headline: str
    reason: str
    time: str
    advice: str


class Outlook(NamedTuple):
    """What the settings of the form amount to.

    ``rates`` are the learning rates after 0, 1, … 100% of the training, for each rate of a sweep, which ``words``
    describe. ``names`` are those of the models.
    """

    rates: list[list[float]]
    words: str
    names: list[str]


class FormPage:
    """What the form of a `Submission` shows beside the values of its fields."""

    def __init__(self, submission: Submission) -> None:
        self.submission, self.form = submission, submission.form

    @cached_property
    def best(self) -> RecommendedModel | None:
        """The recommendation for the dataset; None without one, or without a network for it."""
        facts = self.submission.facts
        return network_settings.recommendation_of(facts, self.submission.resources) if facts else None

    def uses(self, name: str) -> bool:
        """Return whether the field ``name`` has an effect with the values of the others, so that it is shown."""
        form, facts, standard = self.form, self.submission.facts, self.submission.standard
        is_standard, has_weights = form.method.data == "standard", bool(standard and standard.pretrained)
        if facts and name in _TRANSFORMATION_OF:
            return _TRANSFORMATION_OF[name] in views_of(kind_named(facts.kind)).transformations
        if name in SOLVER_FIELDS:
            return form.solver_type.data in SOLVER_FIELDS[name]
        if name.startswith("lr_") and name not in ("lr_policy", "lr_warmup"):
            return name.startswith(f"lr_{form.lr_policy.data}_")
        match name:
            case "early_stopping_patience":
                return bool(form.early_stopping_metric.setting)
            case "aug_hsv_h" | "aug_hsv_s" | "aug_hsv_v":
                return bool(form.aug_hsv_use.data) and self.uses("aug_hsv_use")
            case "initial_weights":
                return is_standard and has_weights
            case "custom_network_snapshot":
                return form.method.data == "custom" or (
                    self.uses("initial_weights") and form.initial_weights.data == "file"
                )
            case "fine_tune" | "freeze":
                return not is_standard or (has_weights and form.initial_weights.data != "random")
            case "head_epochs" | "head_rate" | "trunk_factor":
                return bool(form.fine_tune.data) and self.uses("fine_tune")
        return True

    @property
    def imagenet_weights(self) -> Pretrained | None:
        """The ImageNet weights that the form uses, if any."""
        is_used = self.uses("initial_weights") and self.form.initial_weights.data == "imagenet"
        return CATALOG[self.submission.standard.pretrained] if self.submission.standard and is_used else None

    def departs(self, name: str) -> bool:
        """Return whether the field ``name`` is used with another value than the usual one, so that its section is open.

        The usual value is the recommended one for the chosen network, or else the form's default.
        """
        form, best = self.form, self.best
        network = form.standard_networks.data if form.method.data == "standard" else ""
        offered = best.networks.get(network or "") if best else None
        settings = self.submission.recommendation or (offered.settings if offered else {})
        usual = network_settings.default_texts() | settings
        return self.uses(name) and not same(text_of(self.form[name]), usual[name])

    def mark_edits(self) -> None:
        """Mark the fields that differ from the recommended settings with the recommended value in words."""
        settings = self.submission.recommendation or {}
        for name in self._edits(settings):
            self.form[name].recommended = _in_words(self.form[name], settings[name])

    def card(self) -> Card:
        """Return what the form says about the training that it describes."""
        form, best, reason = self.form, self.best, self.submission.source
        network = form.standard_networks.data if form.method.data == "standard" else ""
        offered = best.networks.get(network) if best else None
        edits = self._edits(offered.settings) if offered else []
        time = offered.time if offered and not edits else ""
        if best and network == best.network and not edits and EVERYTHING not in self.submission.own:
            return Card(True, best.headline, best.reason, best.time, "")
        headline, advice = self._headline(), best.headline if best else ""
        if not reason and advice == headline:
            labels = [_lower(form[name].label.text) for name in edits]
            if len(labels) > LABELS_SHOWN:
                labels[LABELS_SHOWN:] = [f"{len(labels) - LABELS_SHOWN} more"]
            reason = f"Changed: {', '.join(labels)}."
        elif not reason and advice:
            reason = f"Recommended: {_lower(advice)}."
        return Card(False, headline, reason, time, advice)

    def _headline(self) -> str:
        form, earlier = self.form, self.submission.earlier
        if form.method.data == "custom":
            return "Train your own network"
        if form.method.data != "standard":
            if earlier is None:
                return "Choose a model"
            if not self.submission.sent.get(f"{earlier.id}-snapshot", "default"):
                return f"Train the network of “{earlier.name}” from scratch"
            return f"Fine-tune “{earlier.name}”" if form.fine_tune.data else f"Train “{earlier.name}” further"
        weights = form.initial_weights.data if self.uses("initial_weights") else "random"
        is_tuned = self.uses("fine_tune") and form.fine_tune.data
        return network_settings.headline(self.submission.standard, weights, is_tuned=is_tuned)

    def _edits(self, settings: Settings) -> list[str]:
        """Return the fields in use whose values differ from ``settings``."""
        form = self.form
        return [
            name for name, text in settings.items() if self.uses(name) and not same(text_of(form[name]), text)
        ]

    def outlook(self) -> Outlook:
        """Return what the settings amount to, without adding errors to the fields."""
        form, shown = self.form, {field.name: field.errors for field in self.form}
        form.validate()
        try:
            if form.train_epochs.errors:
                raise BadRequest(f"{form.train_epochs.label.text}: {form.train_epochs.errors[0]}")
            rates = self.submission.rates()
            first, last = (format_number(rates[0][at]) for at in (0, -1))
            words = f"From {first} to {last}." if len(set(rates[0])) > 1 else f"Constant at {first}."
            words += f" {len(rates)} models, one per rate." if len(rates) > 1 else ""
        except BadRequest as error:
            rates, words = [], error.message
        is_invalid = form.learning_rate.errors or form.batch_size.errors or not form.model_name.data
        names = [] if is_invalid else [name for name, _, _ in form.sweep()]
        for field in form:
            field.errors = shown[field.name]
        return Outlook(rates, words, names)


def render(
    submission: Submission, template_name: str = "model_new.html", *, lists_models: bool = True
) -> str:
    """Render the page of the form, or a part of it; it may do without the list of models."""
    page, places = FormPage(submission), services().weights_places
    form, dataset, sent = submission.form, submission.dataset, submission.sent
    form.custom_network.data = form.custom_network.data or template()
    if form.method.data == "pretrained":  # the page lists imported models among the others
        form.set(method="previous", previous_networks=form.pretrained_networks.data)
        form.previous_networks.errors = [*form.previous_networks.errors, *form.pretrained_networks.errors]
    views = views_of(dataset.data_kind if dataset else default_kind())
    form.balance.choices = [choice for choice in BALANCES if choice.value in views.balancing]
    page.mark_edits()
    found, has_more = offer_datasets(form, words := sent.get("dataset_search", ""))
    earlier = sent.get("previous_search", ""), form.previous_networks.data, form.custom_network_snapshot.data
    return render_in_turns(
        template_name,
        form=form,
        submission=submission,
        uses=page.uses,
        departs=page.departs,
        outlook=page.outlook(),
        card=page.card(),
        best=page.best,
        dataset_search={"words": words, "found": found, "has_more": has_more},
        summary=(serializers.row(dataset), serializers.contents_of(dataset)) if dataset else None,
        views=views,
        metrics=metric_choices(views),
        networks=networks([dataset.data_kind.name]) if dataset else {},
        lists_models=lists_models,
        **(previous_networks(dataset, *earlier) if lists_models else {}),
        weights=(weights := page.imagenet_weights),
        weights_file=weights and places.find(weights),
        weights_folder=places.folder,
        devices=serializers.device_rows(),
        partitions=services().clusters.partitions(),
    )


def _in_words(field: Field, text: str) -> str:
    """Describe a value of a field, such as “128” or “none”."""
    if isinstance(field, BooleanField):
        return "on" if text == "true" else "off"
    choices = field.iter_choices() if hasattr(field, "iter_choices") else ()
    return str({str(value): label for value, label, *_ in choices}.get(text, text)) or "none"


def _lower(label: str) -> str:
    """Return a label or a headline within a sentence, without a unit: “batch size”, but “XLA compilation”."""
    words = without_unit(label)
    return words if words[:2].isupper() else words[:1].lower() + words[1:]
