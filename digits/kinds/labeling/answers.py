"""What people say about an image: its class, labels, numbers, objects or mask, and the states of images.

Coordinates are pixels of the image as it is displayed, from its top left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from digits.core.errors import BadRequest
from digits.core.schema import Fraction, UnixTime, Whole

# ``none`` is the state of images without an entry.
State = Literal["unlabeled", "labeled", "reviewed", "skipped"]
STATES = ("none", "unlabeled", "labeled", "reviewed", "skipped")
# Those of images that are part of a dataset.
FINISHED = ("labeled", "reviewed")
MAX_NAME = 100

Edit = Annotated[str, Meta(pattern=r"^(?a:[\w.:-]{1,64})\Z")]
Color = Annotated[str, Meta(pattern=r"^#[0-9a-f]{6}\Z")]
Box = tuple[float, float, float, float]


class LabelClass(Struct, kw_only=True, omit_defaults=True):
    """A class, or the number of a regression. Its ``id`` is never used again, even if it ``is_deleted``."""

    id: Whole
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    color: Color
    is_deleted: bool = False


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


class Content(Struct, omit_defaults=True, kw_only=True, gc=False):
    """What is in an image; only the field of the kind is set. ``numbers`` are those by id, ``mask`` names a file."""

    objects: list[Object] | UnsetType = UNSET
    label: Whole | UnsetType = UNSET
    labels: list[Whole] | UnsetType = UNSET
    numbers: dict[str, float] | UnsetType = UNSET
    mask: str | UnsetType = UNSET


FIELDS = Content.__struct_fields__


class Answer(Content, kw_only=True):
    """The state of an image and what is in it.

    ``seconds`` is the time that a person took, who saw a proposal first if ``proposed``.
    """

    state: State = "labeled"
    seconds: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    proposed: bool = False


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


class Proposal(Content, kw_only=True):
    """What a model proposes for an ``image``.

    ``score`` is the lowest probability of what is proposed, and ``uncertainty`` the higher the more a person's answer
    would teach. ``error`` is set instead if the image cannot be read.
    """

    image: Whole
    score: Fraction = 0.0
    uncertainty: Annotated[float, Meta(ge=0)] = 0.0
    error: str = ""


class _BriefObject(Struct, rename={"class_": "class", "from_": "from"}, gc=False):
    class_: Whole
    from_: str = ""


class Brief(Struct, kw_only=True, gc=False):
    """The classes in an image, for indexes in memory: the rest of an entry or a proposal is not decoded."""

    image: Whole
    objects: list[_BriefObject] | UnsetType = UNSET
    label: Whole | UnsetType = UNSET
    labels: list[Whole] | UnsetType = UNSET


def classes_of(content: Any) -> Sequence[int]:
    """Return the classes in a `Content` or a `Brief`, those of all objects."""
    if content.label is not UNSET:
        return [content.label]
    return [item.class_ for item in content.objects] if content.objects else content.labels or ()


def digest(classes: Sequence[int]) -> int:
    """Return a number other than 0, which differs if the classes of two answers or their numbers of objects do."""
    return hash(tuple(classes if len(classes) < 2 else sorted(classes))) or 1


def read_sent(body: bytes) -> Sent:
    """Return the answer in the body of a request; raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=Sent)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The answer is not valid: {error}.") from error
