"""The dataset job: one task that turns a folder of images into records."""

from __future__ import annotations

import functools
from typing import ClassVar

from digits.core.files import UnreadableFile
from digits.core.job import DeviceRequest, Job
from digits.core.recipe import CreateDataset
from digits.core.status import Status
from digits.core.task import Failure, Task
from digits.data import manifest as manifests


class DatasetJob(Job, kw_only=True, eq=False):
    """Makes a dataset for image classification, and then is it."""

    kind: ClassVar[str] = "dataset"
    type_title: ClassVar[str] = "Image classification dataset"

    recipe: CreateDataset

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="create", title="Create the records")]

    def recipe_for(self, task: Task) -> CreateDataset:
        return self.recipe

    def device_request(self, task: Task) -> DeviceRequest:
        return DeviceRequest(pool="create")

    def clear_away(self) -> None:
        manifests.remove_products(self.folder)

    def manifest(self) -> manifests.Manifest | None:
        """What the finished dataset is; None as long as it is not finished, or damaged."""
        try:
            return self._loaded_manifest
        except UnreadableFile:
            return None

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
