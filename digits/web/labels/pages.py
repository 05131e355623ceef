"""Pages of labels: the form for new ones, their images, and the page on which an image is labeled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse
from wtforms import SelectField, StringField, TextAreaField

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.kinds import kind_named
from digits.kinds.forms.fields import NAME_LENGTH, FlagField, JobForm
from digits.kinds.forms.request_fields import choice, whole
from digits.kinds.labeling.answers import STATES, Object
from digits.kinds.labeling.export import TITLES
from digits.kinds.labeling.forms import FORMS
from digits.kinds.labeling.images import ListedImage
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.ordering import BATCH
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.activities import panels_of
from digits.web.jobs.query import Page, page_of
from digits.web.labels import gain, steps
from digits.web.labels.actions import (
    SAMPLE,
    dataset_in,
    described,
    filters_of_request,
    find,
    names_of_models,
    sample_above,
)
from digits.web.labels.books import LabelBook, book_of
from digits.web.responses.representation import render_in_turns
from digits.web.security.bodies import MAX_BODY_BYTES, MAX_IMAGE_BYTES
from digits.web.security.sessions import current_username

blueprint = Blueprint("label_pages", __name__)

PAGE_IMAGES = 60
STATE_TITLES = {
    "none": "Open",
    "unlabeled": "Unfinished",
    "labeled": "Labeled",
    "reviewed": "Reviewed",
    "skipped": "Skipped",
}


class LabelsForm(JobForm):
    """The fields of new labels, which are posted to ``labels.create``."""

    name = StringField("Name", default="", render_kw={"maxlength": NAME_LENGTH, "dir": "auto"})
    # Plugins of kinds are loaded when the server is complete.
    kind = SelectField("What to label", choices=lambda: [(name, kind_named(name).title) for name in FORMS])
    folder = StringField("Folder with images", default="")
    folders_are_classes = FlagField("The folders are classes")
    annotations = StringField("Annotations", default="")
    classes = TextAreaField("Classes", default="", render_kw={"rows": 6, "dir": "auto"})


@blueprint.get("/labels/new")
def new() -> str:
    """Show the form, for labels that begin with those of a ``dataset`` if there is one in the URL."""
    dataset = dataset_in(request.args)
    values = {"kind": dataset.data_kind.name, "name": dataset.name} if dataset else {}
    return render_template(
        "labels_new.html",
        form=LabelsForm(request.args, data=values),
        dataset=serializers.row(dataset) if dataset else None,
    )


@blueprint.get("/labels/<job_id>")
def show(job_id: str) -> str:
    """Show the images that the filters of the request choose.

    With ``score``, in percent, show a sample of the proposals that can be accepted instead.
    """
    job = find(job_id)
    book = book_of(job)
    state = choice(request.args, "state", "", ("", *STATES))
    split = choice(request.args, "split", "", ("", *SPLITS))
    filters = filters_of_request()
    chosen = {name: text for name in (*filters, "state", "split") if (text := request.args.get(name))}
    percent = whole(request.args, "score", None, 1, 100)
    if percent is None:
        wanted = partial(book.find, [state] if state else (), [split] if split else (), **filters)
        numbers, sample = in_thread(lambda: wanted().tolist()), None
    else:
        count, numbers = in_thread(sample_above, book, percent / 100)
        sample = {"percent": percent, "count": count}
    page: Page[int] = Page.of(numbers, page_of(request.args), PAGE_IMAGES)

    panels = panels_of(job)

    def address(number: int = 1, name: str = "", value: Any = None) -> str:
        arguments = chosen | ({name: value} if name else {})
        given: dict[str, Any] = {key: text for key, text in arguments.items() if text not in ("", None)}
        return url_for(".show", job_id=job_id, **given, page=number if number > 1 else None)

    return render_in_turns(
        "labels.html",
        **serializers.page(job),
        labels=described(job),
        formats=TITLES,
        chosen=chosen,
        address=address,
        page=page,
        sample=sample,
        most_sampled=SAMPLE,
        batch=_batch(book),
        items=in_thread(_items, job, book, page.items, sample is not None),
        has_proposals=book.proposals.run is not None,
        authors=sorted(in_thread(book.log.authors.count)),
        models=names_of_models(in_thread(book.log.models.count)),
        step=steps.next_step(job, book),
        first=BATCH,
        proposals=next(panel.state for panel in panels),
        state_titles=STATE_TITLES,
        split_titles=SPLIT_TITLES,
        panels=panels,
        gains=_gains(job),
        metric=views_of(job.data_kind).metric(job.data_kind.metric),
        paces=[gain.pace(each) for each in book.log.paces],
    )


def _gains(job: LabelsJob) -> list[gain.Gain]:
    """Return the best model of each dataset from the labels, in the order of their numbers."""
    candidates = [
        (frozen.labeled, dataset, steps.models_of(dataset)) for frozen, dataset in steps.datasets_of(job)
    ]
    found = in_thread(lambda: [gain.best_of(*candidate) for candidate in candidates])
    return sorted(filter(None, found), key=attrgetter("labeled"))


def _batch(book: LabelBook) -> dict[str, Any] | None:
    """Return the batch that was just accepted, for the button that takes it back."""
    count = whole(request.args, "accepted", 0, 0)
    return {"id": request.args.get("batch", "")[:32], "count": count} if count else None


@blueprint.get("/labels/<job_id>/label")
def label(job_id: str) -> AnyResponse:
    """Go to the first open image, or to the first one."""
    book = book_of(find(job_id))
    if not len(book.images):
        abort(404)
    holder = f"{current_username(request) or ''}\n{request.remote_addr}"
    chosen = book.lease(holder, 1, (), ())
    return redirect(url_for(".label_image", job_id=job_id, number=chosen[0] if chosen else 0))


@blueprint.get("/labels/<job_id>/images/<int:number>")
def label_image(job_id: str, number: int) -> str:
    job = find(job_id)
    book = book_of(job)
    book.image(number)
    page = {
        "url": url_for(".show", job_id=job_id),
        "job": job.id,
        "field": job.form.field,
        "classes": msgspec.to_builtins(job.classes),
        # In bytes, of masks and of other answers.
        "limits": [MAX_IMAGE_BYTES, MAX_BODY_BYTES],
        "count": len(book.images),
        "user": current_username(request) or "",
        "n": number,
    }
    return render_template("label.html", job=serializers.row(job), page=page)


def _items(
    job: LabelsJob, book: LabelBook, numbers: Sequence[int], are_proposals: bool
) -> list[dict[str, Any]]:
    """Describe images with their labels, or with the proposals, for a gallery. It reads files."""
    names, disagreed = [item.name for item in job.classes], {*book.find(differs=True).tolist()}
    found = []
    for number in numbers:
        image, entry = book.images.read(number), book.log.latest(number)
        is_proposed = are_proposals or number in disagreed or book.shows_proposal(number, image.split)
        proposal = book.proposals.find(number) if is_proposed else None
        shown = proposal if are_proposals else entry
        found.append(
            {
                "row": book.row(number, image),
                "words": job.form.words(shown, names) if shown else "",
                "boxes": [_box_of(item, job, image) for item in (shown and shown.objects) or ()],
                "by": entry.by if entry else "",
                "proposed": job.form.words(proposal, names) if proposal and not are_proposals else "",
            }
        )
    return found


def _box_of(item: Object, job: LabelsJob, image: ListedImage) -> dict[str, Any]:
    """Return the box of an object, with its position in percent."""
    left, top, right, bottom = item.edges
    return {
        "left": 100 * left / image.width,
        "top": 100 * top / image.height,
        "width": 100 * (right - left) / image.width,
        "height": 100 * (bottom - top) / image.height,
        "color": job.classes[item.class_].color,
    }
