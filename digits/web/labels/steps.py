"""What to do next with labels: label images, train a model, let it propose the rest, correct it, and train again."""

from __future__ import annotations

from typing import Literal, NamedTuple

from digits.core.model_job import ModelJob
from digits.core.recipe import Frozen
from digits.core.status import Status
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.answers import FINISHED
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.ordering import BATCH
from digits.web.labels.books import OPEN, LabelBook
from digits.web.services import services

# A model is worth training again after this part of its labels was added, and after a `BATCH`.
_WORTH_TRAINING = 4


class Step(NamedTuple):
    """The next step.

    ``model`` is the newest one that can predict, the newest one that is still trained, or one that has failed;
    ``dataset`` contains all labels. ``more`` counts the labels that the newest model does not know.
    """

    name: Literal["label", "train", "wait", "propose", "correct", "again", "done"]
    labeled: int
    open: int
    more: int
    model: ModelJob | None = None
    dataset: DatasetJob | None = None


def datasets_of(job: LabelsJob) -> list[tuple[Frozen, DatasetJob]]:
    """Return what of the labels each dataset from them contains, and the dataset, the newest first."""
    frozen = ((dataset.recipe.frozen, dataset) for dataset in services().store.all(DatasetJob))
    return [(labels, dataset) for labels, dataset in frozen if labels is not None and labels.id == job.id]


def models_of(dataset: DatasetJob) -> list[ModelJob]:
    """Return the models of a dataset, the newest first."""
    return [model for model in services().store.children(dataset) if isinstance(model, ModelJob)]


def next_step(job: LabelsJob, book: LabelBook) -> Step:
    """Return the next step with the labels of ``job``."""
    labeled, open_ = len(book.find(FINISHED)), len(book.find(OPEN))
    datasets = datasets_of(job)
    trained = [(frozen.labeled, model) for frozen, dataset in datasets for model in models_of(dataset)]
    usable = (
        (count, model) for count, model in trained if services().snapshots_of(model).default is not None
    )
    known, model = next(((count, model) for count, model in usable if not model.status.is_running), (0, None))
    more = max(0, labeled - known)
    newest = trained[0][1] if trained else None
    if newest is not None and newest.status.is_running:
        return Step("wait", labeled, open_, more, newest)
    complete = (dataset for frozen, dataset in datasets[:1] if frozen.cursor == book.log.cursor)
    dataset = next(complete, None)
    if model is None:
        name: Literal["label", "train"] = "label" if open_ and labeled < BATCH else "train"
        failed = newest is not None and newest.status is Status.ERROR
        return Step(name, labeled, open_, more, newest if failed else None, dataset)
    if more and (not open_ or more >= max(BATCH, known // _WORTH_TRAINING)):
        return Step("again", labeled, open_, more, model, dataset)
    if not open_:
        return Step("done", labeled, open_, more, model)
    run = book.proposals.run
    is_proposed = run is not None and run.model == model.id
    return Step("correct" if is_proposed else "propose", labeled, open_, more, model)
