"""Dataset jobs of all kinds, and the table of the types of jobs that the store loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from digits.core.files import UnreadableFile
from digits.core.job import DeviceRequest, Job
from digits.core.model_job import ModelJob
from digits.core.recipe import CreateDataset
from digits.core.status import Status
from digits.core.task import Failure, Task
from digits.data import manifest as manifests
from digits.kinds import Kind, kind_named
from digits.kinds.recipes import build_recipe


@dataclass(kw_only=True, eq=False)
class DatasetJob(Job):
    """Creates a dataset; once done, it is the dataset. ``recipe.kind`` names its kind."""

    kind: ClassVar[str] = "dataset"

    recipe: CreateDataset

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="create", title="Create the records")]

    @property
    def data_kind(self) -> Kind:
        return kind_named(self.recipe.kind)

    def recipe_for(self, task: Task) -> CreateDataset:
        return self.recipe

    def device_request(self, task: Task) -> DeviceRequest:
        return DeviceRequest(pool="create")

    def clear_away(self) -> None:
        manifests.remove_products(self.folder)

    def manifest(self) -> manifests.Manifest | None:
        """The manifest of the finished dataset; None until it is finished, or if it is damaged."""
        try:
            return self._read_manifest()
        except UnreadableFile:
            return None

    @property
    def damage(self) -> Failure | None:
        if self.status is Status.DONE:
            try:
                self._read_manifest()
            except UnreadableFile as error:
                return Failure(f"This dataset is damaged: {error}.", "Clone it to create it again.")
        return None

    def _read_manifest(self) -> manifests.Manifest:
        if self._manifest is None:
            self._manifest = manifests.load(self.folder)
        return self._manifest

    _manifest: manifests.Manifest | None = None

    def details(self) -> dict[str, Any]:
        return {"recipe": self.recipe.as_json()}

    @classmethod
    def own_details(cls, body: dict[str, Any]) -> dict[str, Any]:
        return {"recipe": build_recipe(body.get("recipe"))}


JOB_TYPES: dict[str, type[Job]] = {job_type.kind: job_type for job_type in (DatasetJob, ModelJob)}
