"""The job of labels: images that people label in the browser, and their classes."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from digits.core.errors import BadRequest, NotFound
from digits.core.job import DeviceRequest, Job
from digits.core.recipe import ListImages
from digits.core.task import Task
from digits.data.targets.palette import css_color, distinct_color
from digits.kinds import Kind, kind_named
from digits.kinds.labeling.answers import MAX_NAME, Color, LabelClass
from digits.kinds.labeling.forms import FORMS, Form, folded
from digits.kinds.labeling.images import ImageIndex


class ClassChange(Struct):
    """A new class, or what changes in that with the ``id``."""

    id: int | None = None
    name: str | UnsetType = UNSET
    color: Color | UnsetType = UNSET
    is_deleted: bool | UnsetType = UNSET


class LabelsJob(Job, kw_only=True, eq=False):
    """Labels of the images below the folder ``root``, for datasets of a ``kind``."""

    type: ClassVar[str] = "labels"

    kind: str
    root: str
    classes: Annotated[list[LabelClass], Meta(max_length=10_000)] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError for a kind whose images cannot be labeled, and for ids that are not those of the places."""
        super().__post_init__()
        if self.kind not in FORMS or any(item.id != place for place, item in enumerate(self.classes)):
            raise ValueError("the kind or the ids of the classes are not valid")

    @classmethod
    def first_tasks(cls) -> list[Task]:
        return [Task(name="list", title="List the images")]

    def recipe_for(self, task: Task) -> ListImages:
        return ListImages(root=self.root, target=str(self.folder))

    def device_request(self, task: Task) -> DeviceRequest:
        return DeviceRequest("dataset", compute=self.compute)

    def list_again(self) -> None:
        """Prepare the job to look for further images."""
        self._restart(self.tasks)

    def summarize_products(self) -> None:
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

    def changed_classes(self, change: ClassChange) -> list[LabelClass]:
        """Return the classes after one is added, changed or deleted; raises BadRequest or NotFound."""
        number = change.id
        if number is None:
            return [*self.classes, new_class(self, change.name or "")]
        if not 0 <= number < len(self.classes):
            raise NotFound(f"There is no class {number}.")
        before = self.classes[number]
        given = {name: value for name, value in structs.asdict(change).items() if value is not UNSET}
        after = structs.replace(before, **given)
        if after.is_deleted and self.form.has_background and number == 0:
            raise BadRequest("The background cannot be deleted.")
        others = [item for item in self.classes if item.id != number]
        if "name" in given or (before.is_deleted and not after.is_deleted):
            after.name = checked_name(after.name, others)
        return [after if item.id == number else item for item in self.classes]


def new_class(job: LabelsJob, name: str) -> LabelClass:
    """Return a class to add to ``job``, with the next id; raises BadRequest."""
    number = len(job.classes)
    if number >= job.form.most_classes:
        raise BadRequest(f"At most {job.form.most_classes:,} classes are possible, deleted ones included.")
    is_background = job.form.has_background and not number
    color = "#000000" if is_background else css_color(distinct_color(number))
    return LabelClass(id=number, name=checked_name(name, job.classes), color=color)


def checked_name(name: str, others: Sequence[LabelClass]) -> str:
    """Return the name of a class; raises BadRequest if it is not one line of text, or that of one of ``others``."""
    plain = unicodedata.normalize("NFC", name.strip())
    if not plain or len(plain) > MAX_NAME or not plain.isprintable():
        raise BadRequest(f"The name of a class is one line of 1 to {MAX_NAME} characters.")
    if any(folded(item.name) == folded(plain) for item in others if not item.is_deleted):
        raise BadRequest(
            f"There are two classes called “{plain}”.", "Upper and lower case make no difference."
        )
    return plain
