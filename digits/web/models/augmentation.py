"""Augmentation preview: dataset records with the settings of the model form, as in training."""

from __future__ import annotations

from functools import partial

from flask import Blueprint, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotReady
from digits.core.files import UnreadableFile
from digits.core.recipe import PreviewAugmentation
from digits.core.results import augmentation_preview
from digits.core.results.augmentation_preview import AugmentationPreview
from digits.kinds.forms.fields import errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.models.form import ModelForm
from digits.web.request_limits import limited
from digits.web.responses.representation import respond, respond_invalid, twin
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("augmentation", __name__)


@twin(blueprint, "/models/augmentation-preview", AugmentationPreview)
def preview() -> AnyResponse:
    """Augment a few training records, and return the pictures.

    ``seed`` determines the random variants. A newer request with the same ``form`` cancels an earlier one.
    """
    require_tensorflow()
    dataset = services().store.get(request.form.get("dataset", ""), DatasetJob)
    manifest = dataset.manifest()
    if manifest is None:
        raise NotReady(
            f"The dataset “{dataset.name}” is not done yet.", "The preview appears once the dataset is done."
        )
    views = views_of(dataset.data_kind)
    form = ModelForm(formdata=request.form, meta={"data_roots": services().roots})
    form.keep_transformations(views.transformations)
    form.validate()
    settings = ("use_mean", "crop_size", "aug_")
    errors = {name: messages for name, messages in errors_of(form).items() if name.startswith(settings)}
    if errors:
        return respond_invalid(errors)
    recipe = PreviewAugmentation(
        dataset=str(dataset.folder),
        mean=form.use_mean.data,
        crop_size=form.crop_size.data,
        augment=form.augmentation(),
        seed=(limited("seed") or 0) % 2**31,
    )
    made = services().short_tasks.run(recipe, form=request.form.get("form", "")[:100])
    if made.state.failure:
        raise BadRequest(made.state.failure.message, made.state.failure.hint)
    try:
        preview: AugmentationPreview = in_thread(augmentation_preview.load, made.folder)
    except UnreadableFile as error:
        raise NotReady(f"The preview cannot be read: {error}.", "Try again.") from error
    finally:
        services().short_tasks.forget(made)
    boxes = [box for record in preview.records for box in record.original.boxes]
    page = partial(
        render_template,
        "_augmented.html",
        preview=preview,
        legend=manifest.target.legend(has_ignored=any(box.ignored for box in boxes)),
        note=_note(recipe),
        is_padded=min(manifest.width, manifest.height) < (recipe.crop_size or 0),
        record_word=views.record,
    )
    return respond(preview, page=page)


def _note(recipe: PreviewAugmentation) -> str:
    """Explain how the pictures differ from the network's input."""
    if recipe.augment.whitening:
        return "; brightness and contrast normalized for display"
    return "" if recipe.mean == "none" else "; mean added back for display"
