"""What the form of models checks on request: the network, its layers, one training step and the learning rate."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, make_response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core import events
from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.events import for_browser
from digits.core.model_job import ModelJob
from digits.core.recipe import ObtainWeights, Preflight
from digits.core.results import preflight_result as preflights
from digits.data.models.pretrained_catalog import CATALOG
from digits.kinds.forms.request_fields import flag
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import network
from digits.runtime.short_tasks import ShortTaskResult
from digits.web.models import network_lint
from digits.web.models.form import MAX_NETWORK_CHARACTERS
from digits.web.models.submission import Submission, weights_of
from digits.web.resources.encoding import describe
from digits.web.resources.networks import (
    BuiltNetwork,
    CheckedTraining,
    CheckStage,
    Diagnostics,
    NetworkSource,
    ObtainedWeights,
    Schedule,
    ScheduleColumns,
)
from digits.web.responses.errors import with_box
from digits.web.responses.files import send_job_file
from digits.web.responses.representation import respond_invalid, returns
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("model_checks", __name__)


@blueprint.post("/models/lint")
@returns(Diagnostics)
def lint() -> Response:
    text = request.form.get("custom_network", "")
    if len(text) > MAX_NETWORK_CHARACTERS:
        raise BadRequest(f"The network must be at most {MAX_NETWORK_CHARACTERS:,} characters long.")
    return jsonify(Diagnostics(network_lint.check(text)))


@blueprint.post("/models/visualize-network")
@returns(BuiltNetwork)
def visualize_network() -> AnyResponse:
    """Build a network in a separate process; return its layers, or its error."""
    require_tensorflow()
    job_id = request.form.get("dataset") or request.form.get("dataset_id") or ""
    if not job_id:
        raise BadRequest("Choose a dataset first: the network is built for its images.")
    dataset = services().store.get(job_id, DatasetJob)
    if dataset.manifest() is None:
        raise BadRequest(
            f"The dataset “{dataset.name}” is not done yet.", "The network can be built as soon as it is."
        )
    text = request.form.get("custom_network", "")
    if not text.strip():
        raise BadRequest("There is no network to build.", "Paste or write one first.")
    if len(text) > MAX_NETWORK_CHARACTERS:
        raise BadRequest(f"The network must be at most {MAX_NETWORK_CHARACTERS:,} characters long.")
    submission = Submission(request.form)
    crop_size = submission.form.crop_size
    if not crop_size.validate(None):
        raise BadRequest(f"{crop_size.label.text}: {crop_size.errors[0]}")
    preview = services().short_tasks.visualize(
        text, dataset.folder, crop_size.data, submission.network_folder(text)
    )
    if preview.state.failure:
        return _preview_failed(preview)
    built = describe(
        BuiltNetwork,
        preview.state,
        tensorboard_url=url_for("tensorboard.proxy", job_id=preview.id) + "#graphs",
        seconds=preview.seconds,
    )
    return jsonify(built)


@blueprint.post("/models/preflight")
@returns(CheckedTraining)
def preflight() -> AnyResponse:
    """Run one training step of the form's model, and report the result.

    With ``eager``, a few steps run without a graph, and the text that the network prints is reported too.
    """
    require_tensorflow()
    submission = Submission(request.form)
    form = submission.form
    form.model_name.data = form.model_name.data or "not named yet"
    submission.complete()
    if errors := submission.check():
        return respond_invalid(errors)
    dataset = services().store.get(form.dataset.data, DatasetJob)
    if dataset.manifest() is None:
        raise NotReady(f"The dataset “{dataset.name}” is not done yet.", "Check again as soon as it is.")
    _, size, rate = max(form.sweep(), key=lambda run: run[1] or 0)  # the one that requires the most memory
    preview = services().short_tasks.preflight(
        submission.text,
        Preflight.of(submission.recipe(dataset, size, rate), eager=flag(request.form, "eager")),
        submission.devices,
        request.form.get("watch", ""),
        submission.network_folder(submission.text),
    )
    if preview.state.failure:
        return _preview_failed(preview)
    result = for_browser(preview.state.result)
    if form.method.data != "custom":  # the advice is about source code that the user did not write
        result["advice"] = ""
    checked = describe(
        CheckedTraining,
        preview,
        result=result,
        loaded_weights=events.facts(preview.state.loaded_weights),
        warnings=preview.state.warnings,
        batch_url=url_for("model_checks.preflight_picture", preview_id=preview.id),
    )
    return jsonify(checked)


@blueprint.post("/models/weights/<name>")
@returns(ObtainedWeights)
def obtain_weights(name: str) -> AnyResponse:
    """Download the ImageNet weights ``name`` unless they are on this server; return when they are."""
    require_tensorflow()
    if name not in CATALOG:
        raise NotFound(f"There are no ImageNet weights called “{name}”.")
    places = services().weights_places
    if found := places.find(CATALOG[name]):
        return jsonify(ObtainedWeights(str(found)))
    recipe = ObtainWeights(name=name, weights_folder=str(places.folder), weights_sources=[*places.sources])
    download = services().short_tasks.run(recipe, watch=request.form.get("watch", ""))
    if download.state.failure:
        return _preview_failed(download)
    return jsonify(ObtainedWeights((download.state.result or {})["path"]))


@blueprint.get("/models/preflight/progress")
@returns(CheckStage)
def preflight_progress() -> Response:
    """Return the current stage of the check or the download of weights submitted with this ``watch``."""
    state = services().short_tasks.watched(request.args.get("watch", ""))
    return jsonify(
        CheckStage(state.doing if state else None, round(100 * state.fraction, 1) if state else 0.0)
    )


@blueprint.get("/models/previews/<preview_id>/batch.png")
def preflight_picture(preview_id: str) -> Response:
    """Return a picture of the first batch of a checked training, as the network's input."""
    folder = services().short_tasks.folder(preview_id)
    if folder is None:
        raise NotFound("This picture no longer exists.")
    return send_job_file(folder, preflights.PICTURE_FILE, "image/png")


def _preview_failed(preview: ShortTaskResult) -> AnyResponse:
    assert preview.state.failure
    error = {"type": "NetworkError", **preview.state.failure.as_json()}
    return make_response(jsonify(with_box({"ok": False, "error": error, "seconds": preview.seconds})), 400)


@blueprint.post("/models/visualize-lr")
@returns(Schedule)
def visualize_lr() -> Response:
    """Return the learning rate after 0 to 100 percent of the training, in a column for each swept rate.

    With ``fine_tune``, it includes the head phase, ``head_epochs`` of ``train_epochs``.
    """
    submission = Submission(request.form)
    submission.form.validate()
    columns = [[f"Learning Rate {number}", *curve] for number, curve in enumerate(submission.rates())]
    return jsonify(Schedule(ScheduleColumns(for_browser(columns))))


@blueprint.post("/models/customize")
@returns(NetworkSource)
def customize() -> Response:
    """Return the source code of a standard network or of a model's network, for the editor.

    ``snapshot`` are the weights that ``snapshot_epoch`` names, for ``custom_network_snapshot``: see `weights_of`.
    """
    name = request.values.get("network", "")
    job = services().store.find(name)
    if isinstance(job, ModelJob):
        weights = weights_of(job, request.values.get("snapshot_epoch", ""))
        return jsonify(NetworkSource(job.network_text(), weights))
    if not name:
        raise BadRequest(
            "The network is missing.", "Specify the name of a standard network or the id of a model."
        )
    return jsonify(NetworkSource(network(name).text, None))
