"""The job of labels: images that people label in the browser, and their classes."""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

from msgspec import Meta, field

from digits.core.job import DeviceRequest, Job
from digits.core.recipe import ListImages
from digits.core.schema import JsonObject
from digits.core.task import Task
from digits.kinds import Kind, kind_named
from digits.kinds.labeling import importing
from digits.kinds.labeling.answers import LabelClass
from digits.kinds.labeling.forms import FORMS, Form
from digits.kinds.labeling.images import ImageIndex


class LabelsJob(Job, kw_only=True, eq=False):
    """Labels of the images below the folder ``root``, for datasets of a ``kind``.

    They begin with those of the ``source``, the recipe of a dataset. It is None when these are imported, which may
    add ``classes``, and without a ``root`` finds it. ``weights`` is the file with those of the network by whose
    features images are compared, or "".
    """

    type: ClassVar[str] = "labels"

    kind: str
    root: str
    classes: Annotated[list[LabelClass], Meta(max_length=10_000)] = field(default_factory=list)
    source: JsonObject | None = None
    weights: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a kind whose images cannot be labeled, and for ids that are not those of the places."""
        super().__post_init__()
        if self.kind not in FORMS or any(item.id != place for place, item in enumerate(self.classes)):
            raise ValueError("the kind or the ids of the classes are not valid")

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="list", title="List the images")]

    def recipe_for(self, task: Task) -> ListImages:
        classes = [item.name for item in self.classes]
        return ListImages(
            root=self.root,
            target=str(self.folder),
            classes=classes,
            source=self.source,
            weights=self.weights,
        )

    def device_request(self, task: Task) -> DeviceRequest:
        return DeviceRequest("dataset", compute=self.compute)

    def list_again(self) -> None:
        """Prepare the job to look for further images."""
        self._restart(self.tasks)

    def summarize_products(self) -> None:
        if self.source is not None:
            imported = importing.load(self.folder)
            self.root, self.classes, self.source = imported.root, imported.classes, None
        images = ImageIndex(self.folder)
        images.update()
        self.summary.last_values = {"images": float(len(images))}

    @property
    def data_kind(self) -> Kind:
        return kind_named(self.kind)

    @functools.cached_property
    def form(self) -> Form:
        """How the images are labeled."""
        return FORMS[self.kind]

    @property
    def shown_classes(self) -> list[LabelClass]:
        """The classes that are not deleted."""
        return [item for item in self.classes if not item.is_deleted]
