"""The job of labels: images that people label in the browser, and their classes."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field, structs

from digits.core.errors import BadRequest, NotFound
from digits.core.job import DeviceRequest, Job
from digits.core.recipe import ListImages
from digits.core.schema import Whole
from digits.core.task import Task
from digits.data.targets.palette import BACKGROUND, css_color, distinct_color
from digits.kinds import Kind, kind_named
from digits.kinds.labeling.answers import FORMS, Form
from digits.kinds.labeling.images import ImageIndex

MAX_NAME = 100


class LabelClass(Struct, kw_only=True, omit_defaults=True):
    """A class, or the number of a regression. Its ``id`` is never used again, even if it ``is_deleted``."""

    id: Whole
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    color: Annotated[str, Meta(pattern=r"^#[0-9a-f]{6}\Z")]
    is_deleted: bool = False


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

    def refuse_deleted(self, numbers: Iterable[int], before: Iterable[int]) -> None:
        """Raise BadRequest for a deleted class that an image did not have ``before``: a page may not know it yet."""
        for number in {*numbers} - {*before}:
            if self.classes[number].is_deleted:
                raise BadRequest(
                    f"The class “{self.classes[number].name}” was deleted.", "Choose another one."
                )

    def changed_classes(self, sent: dict[str, Any]) -> list[LabelClass]:
        """Return the classes after one is added, or that with the ``id`` in ``sent`` is changed or deleted.

        Raises BadRequest or NotFound.
        """
        number = sent.get("id")
        if number is None:
            return [*self.classes, new_class(self, str(sent.get("name", "")))]
        before = next((item for item in self.classes if item.id == number), None)
        if before is None:
            raise NotFound(f"There is no class {number}.")
        after = structs.replace(
            before, **{name: sent[name] for name in ("color", "is_deleted") if name in sent}
        )
        if after.is_deleted and self.form.has_background and after.id == 0:
            raise BadRequest("The background cannot be deleted.")
        others = [item for item in self.classes if item.id != number]
        if "name" in sent or (before.is_deleted and not after.is_deleted):
            after.name = checked_name(sent.get("name", before.name), others)
        return [after if item.id == number else item for item in self.classes]


def new_class(job: LabelsJob, name: str) -> LabelClass:
    """Return a class to add to ``job``, with the next id; raises BadRequest."""
    number = len(job.classes)
    if number >= job.form.most_classes:
        raise BadRequest(f"At most {job.form.most_classes:,} classes are possible, deleted ones included.")
    is_background = job.form.has_background and not number
    color = "#000000" if is_background else css_color(distinct_color(number))
    return LabelClass(id=number, name=checked_name(name, job.classes), color=color)


def add_classes(job: LabelsJob, names: Sequence[str]) -> None:
    """Add the first classes to a new ``job``; raises BadRequest."""
    given = [name for name in names if name.strip()]
    if job.form.has_background and (not given or given[0].strip().lower() != BACKGROUND):
        given.insert(0, BACKGROUND)
    for name in given:
        job.classes.append(new_class(job, name))


def checked_name(name: str, others: Sequence[LabelClass]) -> str:
    """Return the name of a class; raises BadRequest if it is not one line of text, or that of one of ``others``."""
    plain = unicodedata.normalize("NFC", name.strip())
    if not plain or len(plain) > MAX_NAME or not plain.isprintable():
        raise BadRequest(f"The name of a class is one line of 1 to {MAX_NAME} characters.")
    if any(item.name.casefold() == plain.casefold() for item in others if not item.is_deleted):
        raise BadRequest(
            f"There are two classes called “{plain}”.", "Upper and lower case make no difference."
        )
    return plain
