"""The model form: its page, the creation of models, and the lists that the page loads."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.model_job import request_devices
from digits.core.results import preflight_result as preflights
from digits.kinds import Kind
from digits.kinds.forms.fields import errors_of
from digits.kinds.forms.request_fields import flag, positive
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import template
from digits.web.jobs import serializers
from digits.web.jobs.compute_choice import check_target, partitions_of_clusters
from digits.web.models import network_settings
from digits.web.models import serializers as model_serializers
from digits.web.models.form import SOLVER_FIELDS, USUAL, ModelForm
from digits.web.models.form_choices import (
    kinds_by_transformation,
    metric_choices,
    newest_dataset,
    offer_datasets,
    offered_networks,
    previous_networks,
    usable_datasets,
)
from digits.web.models.form_filling import fill_from, fit, next_name, open_form, recipe_of, suggested_name
from digits.web.models.networks import check_kind, network_folder, network_of
from digits.web.models.submit import new_model
from digits.web.resources.datasets import DatasetChoices, DatasetRecommendation
from digits.web.resources.models import CreatedModels, Model
from digits.web.resources.networks import SweepNames
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import respond, respond_invalid, returns, twin
from digits.web.security.usernames import current_username
from digits.web.services import services

blueprint = Blueprint("model_form", __name__)


@blueprint.get("/models/<kind:kind>/new")
def new(kind: Kind) -> str:
    """Render the form. A ``clone`` has another model's settings, with its rates multiplied by ``rate_factor``."""
    form = open_form(None)
    form.dataset.data = request.args.get("dataset") or newest_dataset(kind) or form.dataset.data
    clone, source = request.args.get("clone"), ""
    if clone:
        fill_from(form, clone)
        source = f"With the settings of “{form.model_name.data}”"
        form.model_name.data = next_name(form.model_name.data)
        if "rate_factor" in request.args:
            form.scale_rates(factor := positive(request.args, "rate_factor"))
            source += f", and {factor:g} times its learning rates"
        source += "."
    else:
        fit(form, is_recommended=True)
        form.model_name.data = suggested_name(form)
    if previous := request.args.get("previous"):
        form.set(method="previous", previous_networks=previous)
    return _form_page(form, is_fitted=not clone, source=source)


@twin(blueprint, "/models/<kind:kind>", Model)
def create(kind: Kind) -> AnyResponse:
    """Create a model, or one for each pair of swept values. An invalid form is shown again with all entries.

    The dataset determines the kind of the model; the form is the same for all kinds.
    """
    form = open_form(request.form)
    if request.form.get("clone"):
        fill_from(form, request.form["clone"])
    else:
        is_recommended = flag(request.form, "recommended")
        fit(form, request.form, is_recommended=is_recommended)
        if is_recommended:
            form.model_name.data = form.model_name.data or suggested_name(form)
    form.validate()
    text, weights = network_of(form)
    check_kind(form)
    if not errors_of(form):
        check_target(form, request_devices(form.device(), form.compute()))
    if errors := errors_of(form):
        return respond_invalid(errors, lambda: _form_page(form))
    dataset = services().store.get(form.dataset.data, DatasetJob)
    folder = network_folder(form, text)
    with services().store.creation() as new_folder:
        jobs = [
            new_model(
                new_folder(),
                dataset,
                recipe_of(form, dataset, weights, size, rate),
                name,
                text=text,
                network_folder=folder,
                device=form.device(),
                compute=form.compute(),
                owner=current_username(request),
                group=(form.group_name.data or "").strip(),
            )
            for name, size, rate in form.sweep()
        ]
        checked = services().short_tasks.folder(request.form.get("preflight", ""))
        if checked and len(jobs) == 1:
            preflights.copy_to_job(checked, jobs[0].folder)
        services().scheduler.submit(*jobs)
    if len(jobs) > 1:
        models = CreatedModels([model_serializers.model_json(job) for job in jobs])
        return respond(models, created=url_for("home.index"))
    return respond(
        model_serializers.model_json(jobs[0]), created=url_for("model_page.show", job_id=jobs[0].id)
    )


@blueprint.get("/models/<kind:kind>")
def back_to_form(kind: Kind) -> AnyResponse:
    """Redirect to the form after a reload of its target."""
    return redirect(url_for("model_form.new", kind=kind))


@blueprint.post("/models/sweep")
@returns(SweepNames)
def sweep() -> Response:
    """Return the names of the models that the form would create."""
    form = open_form(request.form)
    form.model_name.data = form.model_name.data or ""
    fields = (form.learning_rate, form.batch_size)
    errors = {field.name: list(map(str, field.errors)) for field in fields if not field.validate(form)}
    return jsonify(SweepNames([] if errors else [name for name, _, _ in form.sweep()], errors))


@blueprint.get("/models/dataset-choices.json")
@returns(DatasetChoices)
def dataset_choices() -> Response:
    """Return the newest usable datasets that match the search ``q``."""
    datasets, has_more = usable_datasets(request.args.get("q", ""))
    return jsonify(DatasetChoices(serializers.rows(datasets), has_more))


@blueprint.get("/models/recommendation.json")
@returns(DatasetRecommendation)
def recommendation() -> Response:
    """Return the recommended network for a ``dataset``, with ``from_scratch`` without ImageNet weights."""
    job = services().store.get(request.args.get("dataset", ""), DatasetJob)
    best = network_settings.recommendation_of(job, from_scratch=flag(request.args, "from_scratch"))
    return jsonify(DatasetRecommendation(best))


@blueprint.get("/models/network-choices")
def network_choices() -> str:
    """Render the form's list of the newest models for a ``dataset`` that match ``q``, and the ``chosen`` one."""
    dataset = services().store.find(request.args.get("dataset", ""))
    words, chosen = request.args.get("q", ""), request.args.get("chosen")
    models = previous_networks(dataset if isinstance(dataset, DatasetJob) else None, words, chosen)
    return render_template("_previous_networks.html", **models)


def _form_page(form: ModelForm, *, is_fitted: bool = False, source: str = "") -> str:
    """Render the form. ``is_fitted`` means that it has the recommended settings for the dataset.

    ``source`` says in a sentence where other settings come from.
    """
    form.custom_network.data = form.custom_network.data or template()
    if form.method.data == "pretrained":  # the page lists imported models among the others
        form.set(method="previous", previous_networks=form.pretrained_networks.data)
        form.previous_networks.errors = [*form.previous_networks.errors, *form.pretrained_networks.errors]
    _, has_more = usable_datasets()
    job = services().store.find(form.dataset.data or "")
    dataset = job if isinstance(job, DatasetJob) else None
    return render_in_turns(
        "model_new.html",
        form=form,
        usual=USUAL,
        solver_fields=SOLVER_FIELDS,
        datasets=serializers.rows(offer_datasets(form)),
        search_datasets=has_more,
        best=network_settings.recommendation_of(dataset) if dataset else None,
        is_fitted=is_fitted,
        source=source,
        kinds_for=kinds_by_transformation(),
        metrics=metric_choices(),
        default_settings=network_settings.default_settings(),
        networks=list(offered_networks().values()),
        **previous_networks(
            dataset,
            chosen=form.previous_networks.data or request.args.get("previous"),
            weights=form.custom_network_snapshot.data,
        ),
        weights=network_settings.offers(network_settings.weights_places()),
        devices=serializers.device_rows(),
        partitions=partitions_of_clusters(),
    )
