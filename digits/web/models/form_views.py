"""The model form: its page, the answers to its changes, and the creation of models."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.kinds import Kind
from digits.kinds.advice.recommendation import facts_of
from digits.kinds.forms.request_fields import flag, positive
from digits.kinds.jobs import DatasetJob
from digits.web.models import network_settings
from digits.web.models import serializers as model_serializers
from digits.web.models.form_choices import newest_dataset, next_name
from digits.web.models.form_page import render
from digits.web.models.submission import EVERYTHING, Submission
from digits.web.resources.datasets import DatasetRecommendation
from digits.web.resources.models import CreatedModels, Model
from digits.web.responses.representation import respond, respond_invalid, returns, twin
from digits.web.security.sessions import current_username
from digits.web.services import services

blueprint = Blueprint("model_form", __name__)


@blueprint.get("/models/<kind:kind>/new")
def new(kind: Kind) -> str:
    """Render the form. A ``clone`` has another model's settings, with its rates multiplied by ``rate_factor``.

    It may have another ``batch_size``, and ``numerics_checks``.
    """
    submission = Submission()
    form = submission.form
    form.dataset.data = request.args.get("dataset") or newest_dataset(kind) or form.dataset.data
    if clone := request.args.get("clone"):
        submission.copy(clone)
        form.model_name.data = next_name(form.model_name.data)
        others = {
            name: request.args[name] for name in ("batch_size", "numerics_checks") if name in request.args
        }
        network_settings.apply(others, form)
        if "rate_factor" in request.args:
            form.scale_rates(factor := positive(request.args, "rate_factor"))
            submission.source = f"{submission.source[:-1]}, and {factor:g} times its learning rates."
    if previous := request.args.get("previous"):
        form.set(method="previous", previous_networks=previous)
    submission.follow()
    return render(submission)


@blueprint.post("/models/<kind:kind>/form")
def change(kind: Kind) -> str:
    """Render the form after a change: the fields that were not changed by hand follow the recommendation.

    ``own`` lists the fields that were changed by hand. With ``checked``, the form has its errors.
    """
    submission = Submission(request.form)
    submission.follow()
    if submission.sent.get("checked"):
        submission.check()
    return render(submission, "_model_form.html", lists_models=submission.form.method.data == "previous")


@twin(blueprint, "/models/<kind:kind>", Model)
def create(kind: Kind) -> AnyResponse:
    """Create a model, or one for each pair of swept values. An invalid form is shown again with all entries.

    The dataset determines the kind of the model; the form is the same for all kinds.
    """
    submission = Submission(request.form)
    if "clone" in request.form:
        submission.copy(request.form["clone"])
    else:
        submission.complete(is_recommended=flag(request.form, "recommended"))
    if errors := submission.check():
        submission.own = [EVERYTHING]
        return respond_invalid(errors, lambda: render(submission))
    jobs = submission.create(current_username(request))
    if len(jobs) > 1:
        models = CreatedModels([model_serializers.model_json(job) for job in jobs])
        return respond(models, created=url_for("home.index"))
    job = jobs[0]
    return respond(model_serializers.model_json(job), created=url_for("model_page.show", job_id=job.id))


@blueprint.get("/models/<kind:kind>")
def back_to_form(kind: Kind) -> AnyResponse:
    """Redirect to the form after a reload of its target."""
    return redirect(url_for("model_form.new", kind=kind))


@blueprint.get("/models/recommendation.json")
@returns(DatasetRecommendation)
def recommendation() -> Response:
    """Return the recommended network for a ``dataset``, with ``from_scratch`` without ImageNet weights."""
    job = services().store.get(request.args.get("dataset", ""), DatasetJob)
    available = network_settings.server_resources(from_scratch=flag(request.args, "from_scratch"))
    best = network_settings.recommendation_of(facts_of(job), available)
    return jsonify(DatasetRecommendation(best))
