"""What several views of labels do: find and describe a job, make a dataset from it, and accept proposals."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flask import request
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.core.recipe import CreateDataset, Frozen
from digits.data.sources.plan import count_of
from digits.kinds import Kind
from digits.kinds.forms import scanning
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.forms.request_fields import flag, whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling import importing
from digits.kinds.labeling.answers import FINISHED
from digits.kinds.labeling.forms import form_of
from digits.kinds.labeling.freezing import Request, freeze
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.recipes import build_recipe
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.labels.books import OPEN, LabelBook, book_of
from digits.web.resources.encoding import describe
from digits.web.resources.labels import Accepted, Labels
from digits.web.security.sessions import current_username
from digits.web.services import services

# The settings of the recipe that a request can choose.
NUMBERS, CHOICES = ("width", "height", "channels", "seed"), ("resize_mode", "encoding")
FOLDERS = "folders_are_classes"
# Fields of the form of a dataset that leave no image out.
_EVERYTHING = {"one_class": "y", "folder_train_min_per_class": "1", "max_unusable_percent": "100"}
# If none of this many random proposals is wrong, at most 5% of all are, with 95% confidence.
SAMPLE = 59


def find(job_id: str) -> LabelsJob:
    return services().store.get(job_id, LabelsJob)


def fields_of_request() -> dict[str, Any]:
    """Return the fields of a request, of a form or of a JSON object; raises BadRequest."""
    if not request.is_json:
        return dict(request.form.items())
    sent = request.get_json()
    if not isinstance(sent, dict):
        raise BadRequest("Send a JSON object.")
    return sent


def filters_of_request() -> dict[str, Any]:
    """Return what the query of a request chooses besides the states and splits of images; raises BadRequest.

    Scores are in percent.
    """
    above, below = (whole(request.args, name, None, 0, 100) for name in ("above", "below"))
    return {
        "label": whole(request.args, "label", None, 0),
        "by": request.args.get("by", ""),
        "model": request.args.get("model", ""),
        "above": None if above is None else above / 100,
        "below": None if below is None else below / 100,
        "differs": flag(request.args, "differs"),
    }


def name_in(sent: dict[str, Any]) -> str:
    name = str(sent.get("name", "")).strip()
    if not 0 < len(name) <= NAME_LENGTH:
        raise BadRequest(f"The name must have 1 to {NAME_LENGTH} characters.")
    return name


def dataset_in(sent: Mapping[str, Any]) -> DatasetJob | None:
    """Return the dataset with whose labels a request begins; raises BadRequest if it has no image files."""
    if not sent.get("dataset"):
        return None
    dataset = services().store.get(str(sent["dataset"]), DatasetJob)
    if dataset.parent_id:
        raise BadRequest(
            f"“{dataset.name}” is a version, whose images are in records instead of files.",
            "Choose the dataset from which it was made.",
        )
    return dataset


def start_of(
    kind: Kind, sent: dict[str, Any], dataset: DatasetJob | None, folder: Path
) -> tuple[str, dict[str, Any] | None]:
    """Return the folder of the images of the job in ``folder``, and the recipe of the labels to begin with, if any.

    The folder is empty if it is that of the ``dataset``. Raises DigitsError.
    """
    given = {key: str(sent.get(key) or "").strip() for key in ("folder", "annotations", FOLDERS)}
    are_folders = flag(given, FOLDERS)
    root = str(services().roots.resolve(given["folder"], "folder")) if given["folder"] or not dataset else ""
    if sum([dataset is not None, bool(given["annotations"]), are_folders]) > 1:
        raise BadRequest(f"Labels can begin with only one of a dataset, annotations and “{FOLDERS}”.")
    if are_folders and form_of(kind.name).field != "label":
        raise BadRequest("Only for image classification, folders can be the classes.")
    labels = root if are_folders else given["annotations"]
    if dataset is not None:
        if dataset.data_kind.name != kind.name:
            raise BadRequest(
                f"“{dataset.name}” is for {dataset.data_kind.title.lower()}.",
                f"Use the kind {dataset.data_kind.route}.",
            )
        recipe = dataset.recipe
    elif labels:
        recipe = _recipe_of(kind, root, labels, folder)
    else:
        return root, None
    return root, importing.whole(recipe).as_json()


def _recipe_of(kind: Kind, root: str, labels: str, folder: Path) -> CreateDataset:
    """Return the recipe of a dataset of the images below ``root`` with ``labels``, a path; raises DigitsError."""
    beside = "" if labels == root else "y"
    fields = {
        **_EVERYTHING,
        "beside": beside,
        "dataset_name": "labels",
        **form_of(kind.name).fields_of(root, labels),
    }
    roots = [*map(str, services().roots.paths)]
    draft = scanning.check(
        scanning.Request(kind.name, [*fields.items()], roots, new=scanning.NewJob(str(folder)))
    )
    faults = [*filter(None, [draft.problem]), *(text for texts in draft.errors.values() for text in texts)]
    if faults:
        raise BadRequest(faults[0])
    return build_recipe(draft.recipe)


def described(job: LabelsJob) -> Labels:
    book = book_of(job)
    states = services().scheduler.task_state(job, job.tasks[0])
    of_classes = in_thread(book.log.classes.count)
    return describe(
        Labels,
        serializers.row(job),
        kind=job.data_kind.route,
        field=job.form.field,
        folder=job.root,
        classes=job.classes,
        images=len(book.images),
        states=book.count_states(),
        splits=book.count_splits(),
        images_of_classes={str(item.id): of_classes[item.id] for item in job.classes},
        cursor=book.log.cursor,
        formats=[*job.form.formats],
        warnings=states.warnings,
    )


def names_of_models(ids: Iterable[str]) -> dict[str, str]:
    """Return the names of models that have proposed labels, by id."""
    jobs = {model: services().store.find(model) for model in ids}
    return {model: job.name if job else "A deleted model" for model, job in jobs.items()}


def freeze_labels(job: LabelsJob, sent: dict[str, Any]) -> tuple[DatasetJob, list[str]]:
    """Create a dataset with the ``name`` and the settings in a request; return it with what it lacks."""
    book = book_of(job)
    count = len(book.find(FINISHED))
    name = name_in({"name": f"{job.name[:150]}, {count_of(count, 'label')}", **sent})
    services().roots.resolve(job.root, "folder")
    has_gpu = any(device.is_gpu for device in services().devices.list())
    with services().store.creation() as new_folder:
        folder = new_folder()
        recipe = freeze(
            Request(
                folder=str(job.folder),
                target=str(folder),
                kind=job.kind,
                root=job.root,
                classes=job.classes,
                frozen=Frozen(id=job.id, name=job.name, cursor=book.log.cursor, labeled=count),
                settings=_settings_in(sent),
                device="gpu" if has_gpu else "cpu",
            )
        )
        dataset = DatasetJob.create(
            folder, recipe=recipe, name=name, owner=current_username(request), group=job.group
        )
        services().scheduler.submit(dataset)
    return dataset, recipe.notes


def _settings_in(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe in a request; raises BadRequest."""
    given = {key: str(sent[key]) for key in (*NUMBERS, *CHOICES) if sent.get(key) not in (None, "")}
    return {key: whole(given, key, None) if key in NUMBERS else text for key, text in given.items()}


def sample_above(book: LabelBook, threshold: float) -> tuple[int, list[int]]:
    """Return how many open training images have proposals of such a score, and a random sample of them."""
    chosen = _above(book, threshold)
    sample = np.random.default_rng().choice(chosen, min(SAMPLE, len(chosen)), replace=False)
    return len(chosen), np.sort(sample).tolist()


def accept_above(book: LabelBook, threshold: float) -> Accepted:
    """Accept all proposals of such a score for open training images; raises BadRequest if there are none."""
    chosen = in_thread(_above, book, threshold).tolist()
    if not chosen:
        raise BadRequest("No proposal for an open training image has such a score.", "Lower the threshold.")
    batch = secrets.token_hex(8)
    count = book.write(book.accept, chosen, current_username(request) or "", batch)
    return Accepted(count, batch=batch)


def _above(book: LabelBook, threshold: float) -> NDArray[np.int64]:
    numbers = book.find(OPEN, ["train"], above=threshold)
    return numbers[~book.log.classes.are_set(numbers)]  # others are not complete, such as imported ones
