"""Train a model again, on more labels: with the same network and settings, from its weights."""

from __future__ import annotations

import math

from flask import Blueprint, request, url_for
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob, epoch_label
from digits.kinds.advice.recommendation import EPOCHS_FOR_CLASSES
from digits.kinds.jobs import DatasetJob
from digits.web.jobs import serializers
from digits.web.jobs.snapshots import snapshot_of
from digits.web.labels.actions import CHOICES, NUMBERS, fields_of_request, find, freeze_labels
from digits.web.labels.steps import datasets_of
from digits.web.models.form_choices import next_name
from digits.web.models.submission import Submission
from digits.web.resources.encoding import describe
from digits.web.resources.labels import RetrainedModel
from digits.web.responses.representation import respond, twin
from digits.web.security.sessions import current_username
from digits.web.services import services

blueprint = Blueprint("retraining", __name__)

# Enough for the head phase of the recommended settings and those of all layers.
_FEWEST_EPOCHS = 7 + EPOCHS_FOR_CLASSES


@twin(blueprint, "/labels/<job_id>/train", RetrainedModel)
def start(job_id: str) -> AnyResponse:
    """Create a dataset from the labels so far, and train ``model`` on it again.

    The new model has the network and the settings of ``model``, trains for about as many steps, and starts from its
    best snapshot.
    """
    labels = find(job_id)
    model = services().store.get(str(fields_of_request().get("model", "")), ModelJob)
    before = services().store.find(model.dataset_id)
    if not isinstance(before, DatasetJob) or before.data_kind.name != labels.kind:
        raise BadRequest(
            f"“{model.name}” was not trained on what these labels contain.",
            "Create a dataset from the labels, and a model for it.",
        )
    snapshot = snapshot_of(model, None)
    submission = Submission(MultiDict({f"{model.id}-snapshot": epoch_label(snapshot.epoch)}))
    submission.copy(model.id)
    submission.form.set(method="previous", previous_networks=model.id, custom_network_snapshot="")
    if errors := submission.check():
        reasons = dict.fromkeys(str(message) for messages in errors.values() for message in messages)
        raise BadRequest(
            f"“{model.name}” cannot be trained again with its settings: {' '.join(reasons)}",
            "Create a dataset from the labels, clone the model, and choose the dataset and other settings.",
        )
    settings = {name: getattr(before.recipe, name) for name in (*NUMBERS, *CHOICES) if name != "seed"}
    dataset, warnings = freeze_labels(labels, settings)
    labeled = {each.id: frozen.labeled for frozen, each in datasets_of(labels)}
    share = labeled.get(before.id, labeled[dataset.id]) / labeled[dataset.id]
    submission.form.set(
        train_epochs=epochs_again(model.recipe.epochs, share),
        dataset=dataset.id,
        # “LeNet on cats, 60 labels” becomes “LeNet on cats, 560 labels”.
        model_name=(
            model.name.removesuffix(before.name) + dataset.name
            if model.name.endswith(before.name)
            else next_name(model.name)
        ),
    )
    (job,) = submission.create(current_username(request))
    return respond(
        lambda: describe(RetrainedModel, serializers.brief(job), dataset=dataset.id, warnings=warnings),
        created=url_for("label_pages.show", job_id=job_id),
    )


def epochs_again(epochs: float, share: float) -> int:
    """Return the epochs that take about as many steps as before, when the images were a ``share`` of those now."""
    return max(math.ceil(min(epochs, _FEWEST_EPOCHS)), round(epochs * share))
