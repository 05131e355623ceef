"""The forms of datasets without a server: their errors, their summaries, and the datasets that they create."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flask
import msgspec
from werkzeug.datastructures import MultiDict

from digits.core import events
from digits.core.remote import RemotePolicy
from digits.data.data_roots import Roots
from digits.data.manifest import Manifest, load
from digits.data.records.records import Record, SplitReader
from digits.data.sources.plan import Plan, Progress
from digits.kinds import kind_named
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.previews import summarize
from digits.kinds.forms.summary import SourceSummary
from digits.kinds.recipes import read_source
from digits.worker.tasks import create_dataset

APP = flask.Flask(__name__)


class Forms:
    """The forms of the ``kind`` of datasets, which may read the folder ``data`` and create datasets beside it."""

    def __init__(self, kind: str, data: Path) -> None:
        data.mkdir(exist_ok=True)
        self.kind, self.data = kind_named(kind), data

    def form(self, **fields: Any) -> ImageDatasetForm[Any]:
        """Return a form with ``fields`` like those that a browser sends."""
        sent = MultiDict({"dataset_name": "a"} | {name: _sent(value) for name, value in fields.items()})
        meta = {"data_roots": Roots([self.data]), "remote": RemotePolicy([]), "job_folder": Path}
        with APP.app_context():
            form: ImageDatasetForm[Any] = self.kind.load("form").DatasetForm(sent, meta=meta)
        return form

    def errors(self, **fields: Any) -> dict[str, list[str]]:
        """Return the errors of a form by field."""
        with APP.app_context():
            form = self.form(**fields)
            assert not form.validate()
            return {name: list(map(str, errors)) for name, errors in form.errors.items()}

    def summary(self, **fields: Any) -> SourceSummary:
        """Return the last summary of the source."""
        with APP.app_context():
            last = summarize(self.form(**fields))
        assert last.finished
        return last

    def filled(self, **fields: Any) -> tuple[ImageDatasetForm[Any], Any]:
        """Return a valid form and its recipe, which does not start processes."""
        with APP.app_context():
            form = self.form(**{"seed": 1} | fields)
            assert form.validate(), form.errors
            recipe = form.recipe()
        recipe.processes = 1
        return form, recipe

    def plan(self, **fields: Any) -> Plan:
        """Return the plan of the dataset that a form describes; raises UnusableSource."""
        return read_source(self.filled(**fields)[1], Progress())

    def create(self, **fields: Any) -> Created:
        """Create a dataset, whose clone must have the same recipe; raises UserFault."""
        form, recipe = self.filled(**fields)
        assert self.clone(recipe) == msgspec.structs.replace(recipe, processes=None, notes=[])
        folders = (self.data.with_name(f"job-{number}") for number in itertools.count())
        folder = next(folder for folder in folders if not folder.exists())
        create(recipe, folder)
        return Created(folder, recipe, form.warnings())

    def clone(self, recipe: Any) -> Any:
        """Return the recipe of a form that is filled in from ``recipe`` and submitted without a change."""
        with APP.app_context():
            shown = self.form()
            shown.fill_recipe(recipe)
            shown.dataset_name.data = "clone"
            form = self.form(**submitted(shown))
            assert form.validate(), form.errors
            return form.recipe()


def submitted(form: ImageDatasetForm[Any]) -> dict[str, str]:
    """What a browser sends for a form that it shows."""
    texts = {field.name: "y" if field.data is True else str(field.data) for field in form if field.data}
    return texts | {field.name: "0" for field in form if field.data == 0 and field.data is not False}


@dataclass(frozen=True)
class Created:
    """A dataset in ``folder``, and the ``warnings`` of the form of its ``recipe``."""

    folder: Path
    recipe: Any
    warnings: list[str]

    @property
    def manifest(self) -> Manifest:
        return load(self.folder)

    @property
    def counts(self) -> dict[str, int]:
        """The number of records of each split."""
        return {name: split.count for name, split in self.manifest.splits.items()}

    @property
    def remarks(self) -> list[str]:
        """The notes about the source, and the warnings of the task."""
        found = events.read(self.folder / "create" / "events.jsonl")[0]
        warned = [event.message for event in found if isinstance(event, events.Warned)]
        return [*self.recipe.notes, *warned]

    def records(self, split: str = "train") -> list[Record]:
        """Return all records of a split."""
        with SplitReader(self.folder, self.manifest.splits[split]) as reader:
            return [reader.read(number) for number in range(len(reader))]


def create(recipe: Any, folder: Path) -> None:
    """Create a dataset in ``folder``; raises UserFault."""
    (folder / "create").mkdir(parents=True)
    log = events.EventLog(folder / "create" / "events.jsonl")
    try:
        create_dataset.run(recipe, folder / "create", log)
    finally:
        log.close()


def _sent(value: Any) -> Any:
    return str(value) if isinstance(value, int | float | Path) else value
