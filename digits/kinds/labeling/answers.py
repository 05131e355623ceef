"""What people say about an image: its class, labels, numbers, objects or mask, by the kind of the dataset.

Coordinates are pixels of the image as it is displayed, from its top left corner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.core.schema import Fraction, UnixTime, Whole
from digits.data.images.conversion import Size
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import objects_in
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.kinds.multilabel.recipe import MAX_LABELS
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS

# ``none`` is the state of images without an entry.
State = Literal["unlabeled", "labeled", "reviewed", "skipped"]
STATES = ("none", "unlabeled", "labeled", "reviewed", "skipped")
# Those of images that are part of a dataset.
FINISHED = ("labeled", "reviewed")
MAX_OBJECTS = 5000
# The endings of tables.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".parquet")
_ROUNDED = 1e-6
# Fractions of a pixel with more digits come from storing edges as 32 bits.
_DIGITS = 3
_CORNERS = 3

Edit = Annotated[str, Meta(pattern=r"^(?a:[\w.:-]{1,64})\Z")]
Box = tuple[float, float, float, float]
# Stores the mask of an image, uint8 [height, width], and returns its name.
WriteMask = Callable[[NDArray[np.uint8]], str]


class Object(
    Struct,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    rename={"class_": "class", "from_": "from"},
):
    """An object: its ``box`` (left, top, right, bottom), or ``rings`` of x and y of their corners in turn.

    ``from_`` names the model and the run that predicted it with a ``score``, until a person changes it.
    """

    class_: Whole
    box: Box | UnsetType = UNSET
    rings: list[list[float]] | UnsetType = UNSET
    from_: Annotated[str, Meta(max_length=200)] = ""
    score: Fraction | UnsetType = UNSET

    @property
    def edges(self) -> Box:
        """The box, or that around the rings."""
        if self.box is not UNSET:
            return self.box
        assert self.rings is not UNSET
        xs = [x for ring in self.rings for x in ring[::2]]
        ys = [y for ring in self.rings for y in ring[1::2]]
        return min(xs), min(ys), max(xs), max(ys)


class Answer(Struct, omit_defaults=True, kw_only=True, gc=False):
    """The state of an image and what is in it; only the field of the kind is set.

    ``numbers`` are those by id. ``mask`` is the name of a file. ``seconds`` is the time that a person took, who saw a
    proposal first if ``proposed``.
    """

    state: State = "labeled"
    seconds: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    proposed: bool = False
    objects: list[Object] | UnsetType = UNSET
    label: Whole | UnsetType = UNSET
    labels: list[Whole] | UnsetType = UNSET
    numbers: dict[str, float] | UnsetType = UNSET
    mask: str | UnsetType = UNSET


class Sent(Answer, kw_only=True, forbid_unknown_fields=True):
    """An answer in a request, which changes the entry ``rev``. ``edit`` identifies it when it is sent again.

    ``earlier`` are edits that it replaces and to which the client has received no response: they may have been saved.
    ``mask`` is a PNG file in Base64, or the name of the present mask.
    """

    rev: Whole
    edit: Edit
    earlier: Annotated[list[Edit], Meta(max_length=1000)] = []


class Entry(Answer, kw_only=True):
    """A line of the log: an answer about an ``image``, whose entries ``rev`` numbers from 1.

    ``prev`` is the place of the entry before in the log, -1 for the first one. Entries that were accepted together have
    the same ``batch``. ``source`` is the model and the run whose proposal was accepted, or seen by the person.
    """

    image: Whole
    rev: Whole
    edit: str
    at: UnixTime
    by: str = ""
    prev: int = -1
    batch: str = ""
    source: str = ""


def classes_of(answer: Any) -> Sequence[int]:
    """Return the classes of an answer or a proposal, those of all objects."""
    if answer.label is not UNSET:
        return [answer.label]
    return [item.class_ for item in answer.objects] if answer.objects else answer.labels or ()


def digest(classes: Sequence[int]) -> int:
    """Return a number other than 0, which differs if the classes of two answers or their numbers of objects do."""
    return hash(tuple(classes if len(classes) < 2 else sorted(classes))) or 1


class Form:
    """How images are labeled for one kind of dataset: which ``field`` of an answer, and what it may contain."""

    field: ClassVar[str]
    noun: ClassVar[str] = "class"
    most_classes: ClassVar[int] = 10_000
    has_background: ClassVar[bool] = False
    # The formats of downloads, the usual one first.
    formats: ClassVar[tuple[str, ...]] = ("csv",)
    # The fields of the form of datasets for the folder of images and for labels that are not in a table.
    source_fields: ClassVar[tuple[str, str] | None] = None
    reads_tables: ClassVar[bool] = True

    def check(self, answer: Answer, size: Size, ids: Collection[int]) -> None:
        """Raise BadRequest unless ``answer`` is about an image of this ``size`` and classes with these ``ids``.

        The process that decodes a mask checks its classes.
        """
        others = [name for name in FIELDS if name != self.field and getattr(answer, name) is not UNSET]
        if others:
            raise BadRequest(f"Here, images have “{self.field}”, not “{others[0]}”.")
        if self.is_missing(answer) and answer.state in FINISHED:
            raise BadRequest(f"“{self.field}” is missing.", "Images without it are skipped or unlabeled.")
        for number in self.classes(answer):
            if number not in ids:
                raise BadRequest(f"There is no class {number}.", "Load the classes again.")
        self.check_values(answer, size, ids)

    def is_missing(self, answer: Answer) -> bool:
        """Return whether an answer does not say enough for a dataset."""
        return getattr(answer, self.field) is UNSET

    def check_values(self, answer: Answer, size: Size, ids: Collection[int]) -> None:
        """Raise BadRequest for values that are impossible."""

    def classes(self, answer: Answer) -> Iterable[int]:
        """Return the ids of the classes in an answer; they may repeat."""
        return classes_of(answer)

    def fields_of(self, folder: str, labels: str) -> dict[str, str]:
        """Return the fields of the form of datasets that read the ``labels``, a path, of the images in ``folder``."""
        if self.source_fields and not (self.reads_tables and labels.lower().endswith(TABLES)):
            return dict(zip(self.source_fields, (folder, labels), strict=True))
        return {"method": "csv", "table_train": labels, "image_folder": folder}

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer | None:
        """Return the answer that the target ``value`` of a record gives; None if it gives none.

        ``ids`` are those of the classes of the target. The state is *unlabeled* if an answer cannot hold all of it.
        """
        raise NotImplementedError


FIELDS = ("objects", "label", "labels", "numbers", "mask")


class OneClass(Form):
    field = "label"
    source_fields = ("image_folder", "folder_train")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(label=ids[int(value)])


class Labels(Form):
    field = "labels"
    noun = "label"
    most_classes = MAX_LABELS

    def is_missing(self, answer: Answer) -> bool:
        return False

    def check_values(self, answer: Answer, size: Size, ids: Collection[int]) -> None:
        if answer.labels and len({*answer.labels}) < len(answer.labels):
            raise BadRequest("A label is repeated.")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(labels=sorted(ids[place] for place in np.flatnonzero(value).tolist()))


class Numbers(Form):
    field = "numbers"
    noun = "number"
    most_classes = MAX_TARGETS

    def classes(self, answer: Answer) -> Iterable[int]:
        for name in answer.numbers or ():
            if not name.isascii() or not name.isdecimal() or str(int(name)) != name:
                raise BadRequest(f"“{name[:40]}” is not the id of a number.")
            yield int(name)

    def check_values(self, answer: Answer, size: Size, ids: Collection[int]) -> None:
        for name, value in (answer.numbers or {}).items():
            if not abs(value) <= LARGEST_NUMBER:
                raise BadRequest(f"The number {name} is out of range.")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(numbers={str(ids[place]): float(number) for place, number in enumerate(value)})


class Objects(Form):
    field = "objects"
    formats = ("coco", "yolo", "voc", "csv")
    source_fields = ("train_image_folder", "train_label_folder")
    reads_tables = False  # the form of annotations does

    def is_missing(self, answer: Answer) -> bool:
        return False

    def check_values(self, answer: Answer, size: Size, ids: Collection[int]) -> None:
        objects = answer.objects or []
        if len(objects) > MAX_OBJECTS:
            raise BadRequest(
                f"{len(objects):,} objects are too many.", f"At most {MAX_OBJECTS:,} are possible."
            )
        for number, item in enumerate(objects, 1):
            if fault := _fault(item, size):
                raise BadRequest(f"Object {number:,} {fault}.")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer | None:
        """Return the boxes; regions to ignore, such as crowds, leave the image open, and so do no objects."""
        if not len(value):
            return None
        objects = [
            Object(class_=ids[int(place)], box=tuple(round(edge, _DIGITS) for edge in edges))
            for *edges, place in objects_in(value).tolist()
        ]
        has_ignored = bool((value[:, 4] == IGNORED_BOX).any())
        return Answer(objects=objects, state="unlabeled" if has_ignored else "labeled")


class Mask(Form):
    field = "mask"
    most_classes = MAX_PIXEL_CLASSES
    has_background = True
    formats = ("masks",)
    source_fields = ("feature_folder", "label_folder")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        table = np.full(IGNORED + 1, IGNORED, np.uint8)
        table[: len(ids)] = ids
        pixels = table[value]
        present = np.unique(pixels)
        return Answer(mask=write_mask(pixels), labels=present[present != IGNORED].tolist())


def _fault(item: Object, size: Size) -> str:
    if (item.box is UNSET) == (item.rings is UNSET):
        return "needs either a box or rings"
    rings = [] if item.rings is UNSET else item.rings
    if item.box is UNSET and (not rings or any(len(ring) % 2 or len(ring) < 2 * _CORNERS for ring in rings)):
        return "has no ring, or one of fewer than three corners"
    left, top, right, bottom = item.edges
    if left < 0 or top < 0 or right > size[0] or bottom > size[1]:
        return f"is outside the image of {size[0]}×{size[1]} pixels"
    if min(right - left, bottom - top) < 1 - _ROUNDED:
        return "is smaller than a pixel"
    return ""


FORMS: Mapping[str, Form] = {
    "image-classification": OneClass(),
    "image-multilabel": Labels(),
    "image-object-detection": Objects(),
    "image-segmentation": Mask(),
    "image-regression": Numbers(),
}


def form_of(kind: str) -> Form:
    """Return how images are labeled for the kind of dataset named ``kind``; raises BadRequest for other kinds."""
    if kind not in FORMS:
        raise BadRequest("Images cannot be labeled for this kind of dataset.", f"Use {', '.join(FORMS)}.")
    return FORMS[kind]


def read_sent(body: bytes) -> Sent:
    """Return the answer in the body of a request; raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=Sent)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The answer is not valid: {error}.") from error
