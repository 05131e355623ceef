"""Pages and JSON of models."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from flask import (
    Blueprint,
    Response,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.wrappers import Response as AnyResponse
from wtforms import Field
from wtforms.fields.choices import SelectChoice

from digits.core import events, metrics_csv, schedules
from digits.core import preflight_result as preflights
from digits.core.errors import BadRequest, DigitsError, NotAllowed, NotFound, NotReady
from digits.core.events import Measured, Resumed, for_browser
from digits.core.files import UnreadableFile
from digits.core.job import Job
from digits.core.metrics import row_json
from digits.core.model_job import ModelJob, epoch_label, request_devices
from digits.core.recipe import TRANSFORMATIONS, Preflight, Train
from digits.core.status import Status
from digits.core.task import EVENTS_FILE
from digits.data.archive import MEDIA_TYPES, existing, stream
from digits.data.model_archive import INFO_FILE
from digits.data.pretrained import WeightsPlaces
from digits.data.pretrained_catalog import PREFIX
from digits.kinds import Kind, all_kinds, default_kind
from digits.kinds.builtin_views.gan.view import GenerationOptions
from digits.kinds.form_fields import choices, errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.request_fields import flag, whole
from digits.kinds.views import views_of
from digits.runtime.short_tasks import ShortTaskResult
from digits.web.evaluations import panel as evaluation_panel
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.models import export_panel as model_export_panel
from digits.web.models import fine_tune_settings, network_lint, network_settings
from digits.web.models.archives import archive_of
from digits.web.models.form import MAX_NETWORK_CHARACTERS, POLICY_TITLES, SOLVER_FIELDS, USUAL, ModelForm
from digits.web.models.form_fields import BALANCES
from digits.web.models.snapshots import snapshot_of
from digits.web.models.standard_networks import Network, every_network, network, networks, template
from digits.web.models.submit import new_model
from digits.web.offload import each_in_thread, in_turns
from digits.web.predictions import runs as prediction_runs
from digits.web.predictions.view_choice import rendering, views_for
from digits.web.resources.datasets import DatasetChoice, DatasetChoices
from digits.web.resources.models import CreatedModels
from digits.web.responses.archives import check_ending
from digits.web.responses.files import send_job_file
from digits.web.responses.negotiation import json_only, wants_json
from digits.web.responses.pages import render_in_turns
from digits.web.security.auth import current_username
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("models", __name__)

# The form lists this many of the newest jobs; the others can be searched.
SHOWN_DATASETS = 50
SHOWN_MODELS = 25


@blueprint.get("/models/<kind:kind>/new")
def new(kind: Kind) -> str:
    form = _form(None)
    form.dataset.data = request.args.get("dataset") or _newest_dataset(kind) or form.dataset.data
    clone = request.args.get("clone")
    if clone:
        _fill_from(form, clone)
    else:
        _fit(form)
    if previous := request.args.get("previous"):
        form.set(method="previous", previous_networks=previous)
    return _form_page(form, is_fitted=not clone)


@blueprint.post("/models/<kind:kind>")
@blueprint.post("/models/<kind:kind>.json", endpoint="create_json")
def create(kind: Kind) -> AnyResponse | tuple[str | Response, int]:
    """Create a model, or one for each pair of swept values. An invalid form is shown again with all entries.

    The dataset determines the kind of the model; the form is the same for all kinds.
    """
    form = _form(request.form)
    if request.form.get("clone"):
        _fill_from(form, request.form["clone"])
    else:
        _fit(form, request.form)
    as_json = request.path.endswith(".json")
    form.validate()
    text, weights = _network_of(form)
    _check_kind(form)
    errors = errors_of(form)
    if errors:
        return (jsonify(errors=errors), 400) if as_json else (_form_page(form), 400)
    dataset = services().store.get(form.dataset.data, DatasetJob)
    network_folder = _network_folder(form, text)
    with services().store.creation() as new_folder:
        jobs = [
            new_model(
                new_folder(),
                dataset,
                _recipe(form, dataset, weights, size, rate),
                name,
                text=text,
                network_folder=network_folder,
                device=form.device(),
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
        bodies = [serializers.model_json(job) for job in jobs]
        return jsonify(CreatedModels(bodies)) if as_json else redirect(url_for("home.index"))
    return (
        jsonify(serializers.model_json(jobs[0]))
        if as_json
        else redirect(url_for("models.show", job_id=jobs[0].id))
    )


@blueprint.get("/models/<kind:kind>")
def back_to_form(kind: Kind) -> AnyResponse:
    """Redirect to the form after a reload of its target."""
    return redirect(url_for("models.new", kind=kind))


@blueprint.post("/models/sweep")
@json_only
def sweep() -> Response:
    """Return the names of the models that the form would create."""
    form = _form(request.form)
    form.model_name.data = form.model_name.data or ""
    fields = (form.learning_rate, form.batch_size)
    errors = {field.name: list(map(str, field.errors)) for field in fields if not field.validate(form)}
    return jsonify(names=[] if errors else [name for name, _, _ in form.sweep()], errors=errors)


@blueprint.get("/models/dataset-choices.json")
def dataset_choices() -> Response:
    """Return the newest usable datasets that match the search ``q``."""
    found, has_more = _usable_datasets(request.args.get("q", ""))
    return jsonify(DatasetChoices([_dataset_choice(job) for job in in_turns(iter(found))], has_more))


@blueprint.get("/models/network-choices")
def network_choices() -> str:
    """Render the form's list of the newest models that match the search ``q``, and the ``chosen`` one."""
    words, chosen = request.args.get("q", ""), request.args.get("chosen")
    return render_template("_previous_networks.html", **_previous_networks(words, chosen))


@blueprint.get("/models/<job_id>")
def show(job_id: str) -> str:
    job = _model(job_id)
    state = services().scheduler.task_state(job, job.tasks[0])
    kind = serializers.data_kind(job) or default_kind()
    views = views_of(kind)
    return render_in_turns(  # there may be thousands of layers
        "model.html",
        job=serializers.page(job),
        kind=kind,
        views=views,
        charts=[asdict(chart) for chart in views.charts],
        prediction_views=[(view, rendering(view).Options()) for view in views_for(kind)],
        gan_options=GenerationOptions(),
        model=serializers.model(job),
        cursor=state.cursor,
        evaluation=evaluation_panel.panel(job),
        batches=prediction_runs.recent(job),
        production_names=services().production.names_of(job.id),
        export=model_export_panel.panel(job),
    )


@blueprint.get("/models/<job_id>.json")
def show_json(job_id: str) -> Response:
    return jsonify(serializers.model_json(_model(job_id)))


@blueprint.post("/models/<job_id>/resume")
def resume(job_id: str) -> AnyResponse:
    """Resume an aborted or failed training, or restart it if it has not saved anything."""
    job = _model(job_id)
    check_owner(job)
    if not job.can_resume:
        raise NotAllowed(
            f"“{job.name}” cannot be resumed: it is {job.status.title.lower()}.",
            "Only aborted and failed training jobs can be resumed.",
        )
    services().scheduler.resume(job)
    if wants_json():
        return jsonify(serializers.brief(job))
    return redirect(url_for("models.show", job_id=job.id))


@blueprint.get("/models/<job_id>/metrics.json")
def metrics(job_id: str) -> Response:
    """Return the metrics as columns; with ``after``, only the rows after that cursor.

    ``resumed`` means that some rows replace earlier ones, so that all metrics must be fetched again.
    """
    job = _model(job_id)
    task = job.tasks[0]
    after = whole(request.args, "after", None, 0)
    if after is None:
        state = services().scheduler.task_state(job, task)
        # For many numbers, much faster than Flask's JSON provider.
        found = {"cursor": state.cursor, **state.metrics.as_json(), "marks": serializers.marks(job)}
        body = msgspec.json.encode(found)
        return Response(body, mimetype="application/json")
    rows = _rows_after(job.task_folder(task) / EVENTS_FILE, after)
    return Response(in_turns(rows), mimetype="application/json")


def _rows_after(log: Path, after: int) -> Iterator[bytes]:
    """Stream the rows after the cursor ``after`` as JSON. Pieces may be empty."""
    cursor, resumed, separator = after, False, b""
    yield b'{"rows":['
    for happened, end in events.row_turns(log, after, until=events.end(log)):
        cursor = end
        rows = [row_json(event) for event in happened if isinstance(event, Measured)]
        resumed = resumed or any(isinstance(event, Resumed) for event in happened)
        yield separator + msgspec.json.encode(rows)[1:-1] if rows else b""
        separator = b"," if rows else separator
    yield b"],%s" % msgspec.json.encode({"cursor": cursor, "resumed": resumed})[1:]


@blueprint.get("/models/<job_id>/metrics.csv")
def metrics_table(job_id: str) -> Response:
    job = _model(job_id)
    return Response(
        in_turns(metrics_csv.table(job.task_folder(job.tasks[0]) / EVENTS_FILE)),
        mimetype="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{job.id}-metrics.csv"'},
    )


# Flask would redirect download.tar.gz to the rule that has it as a default.
@blueprint.route("/models/<job_id>/download", methods=["GET", "POST"])
@blueprint.route("/models/<job_id>/download.<ending>", methods=["GET", "POST"])
def download(job_id: str, ending: str = "tar.gz") -> Response:
    """Download a snapshot with everything needed to use it: network, labels, mean, description.

    It is that of ``epoch`` or ``snapshot_epoch``, by default the newest one, as in DIGITS 6.
    """
    job = _model(job_id)
    check_ending(ending)
    snapshot = snapshot_of(job, request.values.get("epoch") or request.values.get("snapshot_epoch") or "-1")
    described, files = archive_of(job, snapshot)
    about = json.dumps(for_browser(described), indent=2, sort_keys=True)
    name = f"{job.id}_epoch_{epoch_label(snapshot.epoch)}.{ending}"
    return Response(
        each_in_thread(stream(ending, [(INFO_FILE, about.encode()), *existing(files)])),
        mimetype=MEDIA_TYPES[ending],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@blueprint.post("/models/customize")
@json_only
def customize() -> Response:
    """Return the source code of a standard network or of a model's network, for the editor.

    ``snapshot`` are the weights that ``snapshot_epoch`` names, for ``custom_network_snapshot``: see `_weights_of`.
    """
    name = request.values.get("network", "")
    job = services().store.find(name)
    if isinstance(job, ModelJob):
        weights = _weights_of(job, request.values.get("snapshot_epoch", ""))
        return jsonify(network=job.network_text(), snapshot=weights)
    if not name:
        raise BadRequest(
            "The network is missing.", "Specify the name of a standard network or the id of a model."
        )
    return jsonify(network=network(name).text, snapshot=None)


@blueprint.post("/models/lint")
@json_only
def check() -> Response:
    text = request.form.get("custom_network", "")
    if len(text) > MAX_NETWORK_CHARACTERS:
        raise BadRequest(f"The network must be at most {MAX_NETWORK_CHARACTERS:,} characters long.")
    return jsonify(diagnostics=network_lint.check(text))


@blueprint.post("/models/visualize-network")
@json_only
def visualize_network() -> tuple[Response, int]:
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
    form = _form(request.form)
    crop_size = form.crop_size
    if not crop_size.validate(None):
        raise BadRequest(f"{crop_size.label.text}: {crop_size.errors[0]}")
    preview = services().short_tasks.visualize(
        text, dataset.folder, crop_size.data, _network_folder(form, text)
    )
    if preview.state.failure:
        return _preview_failed(preview)
    return jsonify(
        ok=True,
        layers=preview.state.layers,
        parameters=preview.state.parameters,
        tensorboard_url=services().tensorboards.url_for(preview.id) + "#graphs",
        seconds=preview.seconds,
    ), 200


@blueprint.post("/models/preflight")
@json_only
def preflight() -> tuple[Response, int]:
    """Run one training step of the form's model, and report the result.

    With ``eager``, a few steps run operation by operation, and the text that the network prints is reported too.
    """
    require_tensorflow()
    form = _form(request.form)
    form.model_name.data = form.model_name.data or "not named yet"
    _fit(form, request.form)
    form.validate()
    text, weights = _network_of(form)
    _check_kind(form)
    errors = errors_of(form)
    if errors:
        return jsonify(errors=errors), 400
    dataset = services().store.get(form.dataset.data, DatasetJob)
    if dataset.manifest() is None:
        raise NotReady(f"The dataset “{dataset.name}” is not done yet.", "Check again as soon as it is.")
    _, size, rate = max(form.sweep(), key=lambda run: run[1] or 0)  # the one that requires the most memory
    training = _recipe(form, dataset, weights, size, rate)
    recipe = Preflight.of(training, eager=flag(request.form, "eager"))
    preview = services().short_tasks.preflight(
        text,
        recipe,
        request_devices(form.device()),
        request.form.get("watch", ""),
        _network_folder(form, text),
    )
    if preview.state.failure:
        return _preview_failed(preview)
    result = for_browser(preview.state.result)
    result["suggestion"] = "" if _calls_pretrained(text) else fine_tune_settings.suggestion(dataset, training)
    preflights.save(preview.folder, result, preview.state.warnings)
    return jsonify(
        ok=True,
        id=preview.id,
        result=result,
        loaded_weights=events.facts(preview.state.loaded_weights),
        warnings=preview.state.warnings,
        batch_url=url_for("models.preflight_picture", preview_id=preview.id),
        seconds=preview.seconds,
    ), 200


@blueprint.get("/models/preflight/progress")
@json_only
def preflight_progress() -> Response:
    """Return the current stage of the check submitted with this ``watch``."""
    state = services().short_tasks.watched(request.args.get("watch", ""))
    return jsonify(doing=state.doing if state else None)


@blueprint.get("/models/previews/<preview_id>/batch.png")
def preflight_picture(preview_id: str) -> Response:
    """Return a picture of the first batch of a checked training, as the network's input."""
    folder = services().short_tasks.folder(preview_id)
    if folder is None:
        raise NotFound("This picture no longer exists.")
    return send_job_file(folder, preflights.PICTURE_FILE, "image/png")


@blueprint.get("/models/<job_id>/batch.png")
def first_batch(job_id: str) -> Response:
    """Return a picture of the first batch as the network's input, if a preflight ran before the training."""
    return send_job_file(_model(job_id).folder, preflights.PICTURE_FILE, "image/png")


def _preview_failed(preview: ShortTaskResult) -> tuple[Response, int]:
    assert preview.state.failure
    return jsonify(ok=False, error=preview.state.failure.as_json(), seconds=preview.seconds), 400


@blueprint.post("/models/visualize-lr")
@json_only
def visualize_lr() -> Response:
    """Return the learning rate after 0 to 100 percent of the training, in a column for each swept rate.

    With ``fine_tune``, it includes the head phase, ``head_epochs`` of ``train_epochs``.
    """
    form = _form(request.form)
    policy_fields = [field.name for field in form if field.name.startswith(f"lr_{form.lr_policy.data}_")]
    form.validate()
    head_fields = ("head_epochs", "head_rate", "train_epochs") if form.fine_tune.data else ()
    for name in ("learning_rate", "lr_policy", *policy_fields, "lr_warmup", *head_fields):
        if form[name].errors:
            raise BadRequest(f"{form[name].label.text}: {form[name].errors[0]}")
    try:
        head = (form.head_rate.data, form.head_epochs.data / form.train_epochs.data) if head_fields else ()
        curves = schedules.preview(form.policy(), form.learning_rate.data, *head)
        columns = [[f"Learning Rate {number}", *curve] for number, curve in enumerate(curves)]
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"The schedule cannot be drawn: {error}") from error
    return jsonify(data={"columns": for_browser(columns)})


def _model(job_id: str) -> ModelJob:
    return services().store.get(job_id, ModelJob)


def _form(data: Any) -> ModelForm:
    form = ModelForm(formdata=data, meta={"data_roots": services().roots})
    offered = _offer_datasets(form)
    if data is None and offered:
        form.dataset.data = offered[0].id
    form.standard_networks.choices = choices(*((item.id, item.title) for item in _networks().values()))
    form.balance.choices = [
        SelectChoice(value, words, {"data-kinds": " ".join(_kinds_balanced_by(value))})
        for value, words, *_ in BALANCES
    ]
    return form


def _kinds_balanced_by(balance: str) -> list[str]:
    return [kind.name for kind in all_kinds().values() if balance in views_of(kind).balancing]


def _recipe(
    form: ModelForm, dataset: DatasetJob, weights: str | None, size: int | None, rate: float
) -> Train:
    """Return the recipe of the form, which must be valid, with the places of pretrained weights."""
    recipe, places = form.recipe(str(dataset.folder), weights, size, rate), _weights_places()
    recipe.weights_folder, recipe.weights_sources = str(places.folder), [*places.sources]
    return recipe


def _weights_places() -> WeightsPlaces:
    settings = services().settings
    return WeightsPlaces(settings.weights_dir, settings.weights_sources)


def _fit(form: ModelForm, sent: Collection[str] = ()) -> None:
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


def _offer_datasets(form: ModelForm) -> list[DatasetJob]:
    """Offer the newest usable datasets, and the one chosen in the form."""
    offered, _ = _usable_datasets()
    chosen = services().store.find(form.dataset.data or "")
    if isinstance(chosen, DatasetJob) and _is_usable(chosen) and chosen not in offered:
        offered.append(chosen)
    form.dataset.choices = choices(*((job.id, job.name) for job in offered))
    return offered


def _usable_datasets(words: str = "") -> tuple[list[DatasetJob], bool]:
    """Return the newest usable datasets that match, and whether there are more."""
    usable = (job for job in services().store.index.select(DatasetJob, words) if _is_usable(job))
    found = list(itertools.islice(usable, SHOWN_DATASETS + 1))
    return found[:SHOWN_DATASETS], len(found) > SHOWN_DATASETS


def _previous_networks(
    words: str = "", chosen: str | None = None, weights: str | None = None
) -> dict[str, Any]:
    """Return the newest models that match, and the chosen one, with their snapshots.

    Of each model, the snapshot ``weights`` is selected, or else the default one.
    """
    found = services().store.index.select(ModelJob, words)
    shown = [job for job in found[:SHOWN_MODELS] if _has_network(job)]
    job = services().store.find(chosen or "")
    if isinstance(job, ModelJob) and job not in shown and _has_network(job):
        shown.insert(0, job)
    return {
        "previous": [
            {
                "id": job.id,
                "name": job.name,
                "snapshots": serializers.snapshots(job, weights),
            }
            for job in in_turns(iter(shown))
        ],
        "previous_count": len(found),
        "searching": bool(words),
        "chosen": chosen,
    }


def _has_network(job: ModelJob) -> bool:
    return job.network_path.is_file() and not job.network_path.is_symlink()


def _networks() -> dict[str, Network]:
    return networks(all_kinds())


def _newest_dataset(kind: Kind) -> str | None:
    """Return the id of the newest usable dataset of ``kind``."""
    datasets = services().store.index.select(DatasetJob)
    return next((job.id for job in datasets if job.data_kind == kind and _is_usable(job)), None)


def _fill_from(form: ModelForm, job_id: str) -> None:
    """Fill in the configuration and the network of another job."""
    job = services().store.get(job_id, ModelJob)
    form.fill(job)
    text = job.network_text()
    source = _trained_by(job.recipe.weights)
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
    _offer_datasets(form)


def _trained_by(weights: str | None) -> ModelJob | None:
    """Return the model of this server that saved the snapshot ``weights``."""
    folder = Path(weights).parent if weights else None
    job = services().store.find(folder.name) if folder else None
    return job if isinstance(job, ModelJob) and job.folder == folder else None


def _is_usable(job: Job) -> bool:
    return job.status is Status.DONE or job.status.is_running


def _network_of(form: ModelForm) -> tuple[str, str | None]:
    """Return the network's text and the weights to start from. Errors are added to the form's fields."""
    text, weights = _chosen_network(form)
    is_in_text = form.method.data == "custom" and _calls_pretrained(text)
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
        chosen = network(form.standard_networks.data or "lenet")
    except NotFound as error:
        _blame(form.standard_networks, error.message)
        return "", None
    dataset = services().store.find(form.dataset.data or "")
    if isinstance(dataset, DatasetJob) and dataset.data_kind.name not in chosen.kinds:
        titles = ", ".join(item.title for item in networks([dataset.data_kind.name]).values())
        kind = dataset.data_kind.title.lower()
        _blame(
            form.standard_networks, f"{chosen.title} is not a network for {kind}. Choose one of: {titles}."
        )
    if chosen.missing:
        _blame(
            form.standard_networks, f"{chosen.title} requires the package {chosen.package}. {chosen.missing}"
        )
    return chosen.text, _standard_weights(form, chosen)


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


def _check_kind(form: ModelForm) -> None:
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
    chosen, file = request.form.get(f"{job.id}-snapshot"), form.custom_network_snapshot
    if chosen and request.form.get(file.name):
        _blame(file, f"Specify either this file or {job.id}-snapshot.")
    if not chosen and file.data:
        return text, file.data
    try:
        if chosen is None and form.method.data == "pretrained":
            return text, str(job.folder / snapshot_of(job, None).name)
        return text, _weights_of(job, chosen or "")
    except DigitsError as error:
        _blame(field, error.sentences)
        return text, None


def _weights_of(job: ModelJob, asked: str) -> str | None:
    """Return the weights that ``asked`` names as in DIGITS 6: an epoch, or -1 for those that ``job`` started from.

    For 0 or an empty text, return None: random ones. Raises DigitsError if there are no such weights.
    """
    # Imported models without an epoch have a snapshot of epoch 0.
    if not asked or (asked == "0" and services().snapshots_of(job).of_epoch(0) is None):
        return None
    if asked == "-1" and not job.recipe.weights:
        raise BadRequest(f"“{job.name}” started from random weights.", "Choose one of its snapshots, or 0.")
    return job.recipe.weights if asked == "-1" else str(job.folder / snapshot_of(job, asked).name)


def _network_folder(form: ModelForm, text: str) -> Path | None:
    """Return the folder with the files that the network ``text`` may load by a relative path.

    It is that of the chosen model, whose network may have been customized, else that of the model that saved the
    initial weights.
    """
    if form.method.data == "standard" or not _calls_pretrained(text):
        return None
    job = services().store.find(form.chosen_model().data or "")
    if not isinstance(job, ModelJob):
        job = _trained_by(form.custom_network_snapshot.data)
    return job.folder if job else None


def _calls_pretrained(text: str) -> bool:
    return "digits.pretrained(" in text


def _blame(field: Field, message: str) -> None:
    field.errors = [*field.errors, message]


def _form_page(form: ModelForm, *, is_fitted: bool = False) -> str:
    """Render the form. ``is_fitted`` means that it has the settings of the default network for the dataset."""
    form.custom_network.data = form.custom_network.data or template()
    if form.method.data == "pretrained":  # the page lists imported models among the others
        form.set(method="previous", previous_networks=form.pretrained_networks.data)
        form.previous_networks.errors = [*form.previous_networks.errors, *form.pretrained_networks.errors]
    _, has_more = _usable_datasets()
    return render_in_turns(
        "model_new.html",
        form=form,
        usual=USUAL,
        solver_fields=SOLVER_FIELDS,
        datasets=[_dataset_choice(job) for job in in_turns(iter(_offer_datasets(form)))],
        search_datasets=has_more,
        is_fitted=is_fitted,
        kinds_for=_kinds_by_transformation(),
        metrics=_metric_choices(),
        default_settings=network_settings.default_settings(),
        networks=[
            {
                "id": item.id,
                "title": item.title,
                "summary": item.summary,
                "settings": item.settings,
                "values": network_settings.settings_of(item),
                "kinds": item.kinds,
                "pretrained": item.pretrained,
                "missing": item.missing,
            }
            for item in _networks().values()
        ],
        **_previous_networks(
            chosen=form.previous_networks.data or request.args.get("previous"),
            weights=form.custom_network_snapshot.data,
        ),
        policies=POLICY_TITLES,
        weights=fine_tune_settings.offers(_weights_places()),
        fine_tune_settings=fine_tune_settings.SETTINGS,
        devices=serializers.device_rows(),
    )


def _kinds_by_transformation() -> dict[str, list[str]]:
    """Return the kinds for which each transformation is offered."""
    return {
        name: [kind.name for kind in all_kinds().values() if name in views_of(kind).transformations]
        for name in TRANSFORMATIONS
    }


def _dataset_choice(job: DatasetJob) -> DatasetChoice:
    """Return the row of a dataset with its kind, its default network, and the length of its images' shorter side."""
    fitting = network_settings.network_for(job)
    return DatasetChoice(
        **msgspec.structs.asdict(serializers.row(job)),
        data_kind=job.data_kind.name,
        network=fitting.id if fitting else None,
        side=network_settings.smaller_side(job),
    )


def _metric_choices() -> dict[str, list[tuple[str, str, str]]]:
    """Return the choices of metrics for the best snapshot and for early stopping.

    Each choice is a tuple of value, label, and kind; the kind is empty for choices available for all kinds.
    """
    kinds = all_kinds().values()
    metrics = [
        (metric, kind.name)
        for kind in kinds
        for metric in views_of(kind).metrics
        if metric.chart is not None and not metric.name.endswith("/")
    ]
    best = [(each.name, f"{each.best.capitalize()} validation {each.word}", kind) for each, kind in metrics]
    stopping = [(each.name, f"When {each.word} stops improving", kind) for each, kind in metrics]
    return {
        "best": [("", "Automatic", ""), *best, ("loss", "Lowest validation loss", "")],
        "stopping": [("", "Off", ""), *stopping, ("loss", "When loss stops improving", "")],
    }
