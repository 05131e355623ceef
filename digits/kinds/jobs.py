"""Dataset jobs of all kinds, and the table of the types of jobs that the store loads."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from digits.core.files import UnreadableFile
from digits.core.job import DeviceRequest, Job
from digits.core.model_job import ModelJob
from digits.core.recipe import CreateDataset
from digits.core.schema import MAX_INTEGER
from digits.core.snapshot_list import choose_metric
from digits.core.status import Status
from digits.core.task import Failure, Task
from digits.data import manifest as manifests
from digits.kinds import Kind, default_kind, kind_named
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.recipes import build_recipe
from digits.kinds.versions.additions import takes_images
from digits.kinds.versions.versions import CreateVersion
from digits.kinds.views import ACCURACY, views_of

if TYPE_CHECKING:
    AnyRecipe = CreateDataset
else:
    AnyRecipe = Any  # its class depends on the kind; see DatasetJob.__post_init__


class DatasetJob(Job, kw_only=True, eq=False):
    """Creates a dataset; once done, it is the dataset. ``recipe.kind`` names its kind."""

    type: ClassVar[str] = "dataset"

    recipe: AnyRecipe

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.recipe, CreateDataset):
            self.recipe = build_recipe(self.recipe)

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="create", title="Create the records")]

    @property
    def data_kind(self) -> Kind:
        return kind_named(self.recipe.kind)

    @property
    def parent_id(self) -> str:
        """The id of the dataset of which this is a version, and which may have been deleted; "" for others."""
        return self.recipe.parent_id if isinstance(self.recipe, CreateVersion) else ""

    @functools.cached_property
    def kind_recipe(self) -> CreateDataset:
        """The recipe of this dataset, or of a version's original with the version's size, as the kind defines it."""
        if not isinstance(self.recipe, CreateVersion):
            return self.recipe
        original = build_recipe(self.recipe.original)
        original.width, original.height = self.recipe.width, self.recipe.height
        original.resize_mode = self.recipe.resize_mode
        return original

    def recipe_for(self, task: Task) -> CreateDataset:
        return self.recipe

    def device_request(self, task: Task) -> DeviceRequest:
        return DeviceRequest("dataset", compute=self.compute)

    def summarize_products(self) -> None:
        manifest = self.manifest()
        sizes = [split.bytes for split in manifest.splits.values()] if manifest else []
        self.summary.record_bytes = min(sum(sizes), MAX_INTEGER) if sizes else None

    def clear_away(self) -> None:
        manifests.remove_products(self.folder)

    def manifest(self) -> manifests.Manifest | None:
        """Return the manifest of the finished dataset; None until it is finished, or if it is damaged."""
        try:
            return self._loaded_manifest
        except UnreadableFile:
            return None

    @property
    def takes_images(self) -> bool:
        """Whether a version can add images to the finished dataset."""
        manifest, views = self.manifest(), views_of(self.data_kind)
        return manifest is not None and (
            views.adds_sources or (views.shows_images and takes_images(manifest))
        )

    @property
    def damage(self) -> Failure | None:
        if self.status is Status.DONE:
            try:
                _ = self._loaded_manifest
            except UnreadableFile as error:
                return Failure(f"This dataset is damaged: {error}.", "Clone it to create it again.")
        return None

    @functools.cached_property
    def _loaded_manifest(self) -> manifests.Manifest:
        return manifests.load(self.folder)


@dataclass(frozen=True)
class ImportedDataset:
    """The dataset of an imported model, of which its ``folder`` contains only the manifest."""

    folder: Path

    def manifest(self) -> manifests.Manifest | None:
        """Return the manifest; None if it is damaged."""
        try:
            return _load_imported(self.folder)
        except UnreadableFile:
            return None

    @property
    def data_kind(self) -> Kind:
        manifest = self.manifest()
        return kind_named(manifest.kind) if manifest else default_kind()


@functools.lru_cache(256)
def _load_imported(folder: Path) -> manifests.Manifest:
    return manifests.load(folder)  # never changes


JOB_TYPES: dict[str, type[Job]] = {job_type.type: job_type for job_type in (DatasetJob, ModelJob, LabelsJob)}


def last_metric(model: Job, dataset: Job | None) -> tuple[str, float] | None:
    """Return the name and value of the model's main metric: the latest one, or that of the snapshot once it is done.

    This is an accuracy, which networks of any kind can report, or else that of the dataset's kind, or the loss. A
    training that failed or was aborted has none: it is not that of a finished model.
    """
    if model.status in (Status.ERROR, Status.ABORT):
        return None
    summary = model.summary
    values = (summary.snapshot_values if model.status is Status.DONE else {}) or summary.last_values
    if summary.last_accuracy is not None:
        return ACCURACY.name, values.get(ACCURACY.name, summary.last_accuracy / 100)
    kind = dataset.data_kind if values and isinstance(dataset, DatasetJob) else None
    name = choose_metric(kind.metric, values) if kind else ""
    return (name, values[name]) if name else None


def metric_rank(model: Job, dataset: Job | None) -> tuple[bool, float] | None:
    """Return a key that sorts models by their main metric, best last; metrics where lower is better come first."""
    metric = last_metric(model, dataset)
    if metric is None:
        return None
    name, value = metric
    kind = dataset.data_kind if isinstance(dataset, DatasetJob) else default_kind()
    return (False, -value) if kind.lower_is_better(name) else (True, value)
