"""How images are labeled for each kind of dataset: what answers contain, and how models and files say the same."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.core.recipe import ProposeLabels
from digits.core.splits import Split
from digits.data.images.conversion import Size
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import MAX_OBJECTS, objects_in
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import BACKGROUND
from digits.kinds.labeling.answers import FIELDS, FINISHED, Answer, LabelClass, Object, Proposal, classes_of
from digits.kinds.multilabel.recipe import MAX_LABELS
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS

# More than datasets can contain: people may label a crowd, and leave its image out.
MOST_OBJECTS = 5000
MASKS_FOLDER = "masks"
# The endings of tables.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".parquet")
_ROUNDED = 1e-6
# Fractions of a pixel with more digits come from storing edges as 32 bits.
_DIGITS = 3
_CORNERS = 3
_PERCENT = 100.0

# Stores the mask of an image, uint8 [height, width], and returns its name.
WriteMask = Callable[[NDArray[np.uint8]], str]
# The names of classes by id.
Names = Mapping[int, str]


class Files(NamedTuple):
    """The usual download in a ``folder``, about images below ``root``: the ``columns`` of its tables and the
    ``classes``. Each of the ``splits`` has images, the first one for training.
    """

    root: str
    folder: Path
    columns: list[str]
    classes: list[str]
    splits: list[Split]

    def of_splits(self, name: str) -> dict[str, str]:
        """Return the path of the file ``name``, in which ``{}`` is the split, for each split."""
        return {split: str(self.folder / name.format(split)) for split in self.splits}

    @property
    def style(self) -> dict[str, Any]:
        """How the tables are written."""
        return {"delimiter": ",", "header": "yes", "image_column": self.columns[0]}


class Form:
    """How images are labeled for one kind of dataset: which ``field`` of an answer, and what it may contain."""

    field: ClassVar[str]
    noun: ClassVar[str] = "class"
    most_classes: ClassVar[int] = 10_000
    has_background: ClassVar[bool] = False
    # Without any, an image may be labeled, too.
    needs_value: ClassVar[bool] = True
    # The formats of downloads, the usual one first.
    formats: ClassVar[tuple[str, ...]] = ("csv",)
    # The columns of tables besides that of the images; without, each class has one.
    columns: ClassVar[tuple[str, ...]] = ()
    # The fields of the form of datasets for the folder of images and for labels that are not in a table.
    source_fields: ClassVar[tuple[str, str] | None] = None
    reads_tables: ClassVar[bool] = True

    def check(
        self,
        answer: Answer,
        size: Size,
        classes: Sequence[LabelClass],
        before: Answer | None = None,
        drawn: Collection[int] = (),
    ) -> None:
        """Raise BadRequest unless ``answer`` is about an image of this ``size`` and some of the ``classes``.

        Those in its mask are ``drawn``. Deleted ones must be in the answer ``before``: a page may not know it yet.
        """
        others = [name for name in FIELDS if name != self.field and getattr(answer, name) is not UNSET]
        if others:
            raise BadRequest(f"Here, images have “{self.field}”, not “{others[0]}”.")
        is_missing = self.needs_value and getattr(answer, self.field) is UNSET
        if is_missing and answer.state in FINISHED:
            raise BadRequest(f"“{self.field}” is missing.", "Images without it are skipped or unlabeled.")
        known = {*self.classes(before)} if before else set()
        for number in {*self.classes(answer), *drawn} - known:
            if number >= len(classes):
                raise BadRequest(f"There is no class {number}.", "Load the classes again.")
            if classes[number].is_deleted:
                raise BadRequest(f"The class “{classes[number].name}” was deleted.", "Choose another one.")
        self.check_values(answer, size)

    def check_values(self, answer: Answer, size: Size) -> None:
        """Raise BadRequest for values that are impossible."""

    def classes(self, answer: Answer) -> Iterable[int]:
        """Return the ids of the classes in an answer; they may repeat."""
        return classes_of(answer)

    def first_classes(self, given: Iterable[str]) -> list[str]:
        """Return the names of the first classes: those ``given`` that are not blank, after that of the background."""
        names = [name for name in given if name.strip()]
        has_background = bool(names) and folded(names[0]) == BACKGROUND
        return [BACKGROUND, *names] if self.has_background and not has_background else names

    def words(self, content: Answer | Proposal, names: Sequence[str]) -> str:
        """Return what is in an image in words, with the ``names`` of all classes."""
        return ", ".join(names[number] for number in sorted({*classes_of(content)}))

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

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        """Return what a model proposes for an ``image``, from its prediction in the format of the kind.

        Classes that the labels do not have are left out.
        """
        raise NotImplementedError

    def left_out(self, answer: Answer, names: Names) -> str:
        """Return why no dataset with the classes ``names`` contains an image with ``answer``; empty if one does."""
        return ""

    def check_training(self, names: Sequence[str]) -> None:
        """Raise BadRequest unless a model can learn from training images with the classes ``names``."""

    def rows(self, answer: Answer, names: Names) -> Iterator[list[Any]]:
        """Yield the cells of an image in a table, without that of its path."""
        raise NotImplementedError

    def source(self, files: Files) -> dict[str, Any]:
        """Return how the recipe of the kind names its source, the ``files``."""
        train, *others = files.of_splits("{}.csv").items()
        tables = {f"{split}_table": path for split, path in others}
        return {"table": train[1], "folder": files.root, **files.style, **tables}


class OneClass(Form):
    field = "label"
    columns = ("label",)
    source_fields = ("image_folder", "folder_train")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(label=ids[int(value)])

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        (name, first), (_, second) = [*predicted, ["", 0.0]][:2]
        uncertainty = max(0.0, 1 - (first - second) / _PERCENT)
        proposal = Proposal(image=image, score=_chance(first), uncertainty=uncertainty)
        if name in recipe.classes:
            proposal.label = recipe.classes[name]
        return proposal

    def left_out(self, answer: Answer, names: Names) -> str:
        return "" if answer.label in names else "image of a deleted class"

    def check_training(self, names: Sequence[str]) -> None:
        if len(names) < 2:
            raise BadRequest(
                f"All labeled training images have the class “{names[0]}”.",
                "Label some of another class, too.",
            )

    def rows(self, answer: Answer, names: Names) -> Iterator[list[Any]]:
        assert answer.label is not UNSET
        yield [names[answer.label]]

    def source(self, files: Files) -> dict[str, Any]:
        splits = {
            split: {"file": path, "folder": files.root} for split, path in files.of_splits("{}.csv").items()
        }
        return {
            "files": {"type": "csv", **files.style, "label_column": files.columns[1], **splits},
            # The first validation images may show a class that no training image shows yet.
            "class_names": files.classes,
        }


class Labels(Form):
    field = "labels"
    noun = "label"
    most_classes = MAX_LABELS
    needs_value = False

    def check_values(self, answer: Answer, size: Size) -> None:
        if answer.labels and len({*answer.labels}) < len(answer.labels):
            raise BadRequest("A label is repeated.")

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(labels=sorted(ids[place] for place in np.flatnonzero(value).tolist()))

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        chances = {
            recipe.classes[name]: _chance(percent) for name, percent in predicted if name in recipe.classes
        }
        return Proposal(
            image=image,
            labels=sorted(number for number, chance in chances.items() if chance >= 0.5),
            score=min((max(chance, 1 - chance) for chance in chances.values()), default=0.0),
            uncertainty=sum(map(_entropy, chances.values())) / max(1, len(chances)),
        )

    def rows(self, answer: Answer, names: Names) -> Iterator[list[Any]]:
        yield [int(number in (answer.labels or ())) for number in names]

    def source(self, files: Files) -> dict[str, Any]:
        return {**super().source(files), "label_columns": files.columns[1:], "layout": "columns"}


class Numbers(Form):
    field = "numbers"
    noun = "number"
    most_classes = MAX_TARGETS

    def classes(self, answer: Answer) -> Iterable[int]:
        for name in answer.numbers or ():
            if not name.isascii() or not name.isdecimal() or str(int(name)) != name:
                raise BadRequest(f"“{name[:40]}” is not the id of a number.")
            yield int(name)

    def check_values(self, answer: Answer, size: Size) -> None:
        for name, value in (answer.numbers or {}).items():
            if not abs(value) <= LARGEST_NUMBER:
                raise BadRequest(f"The number {name} is out of range.")

    def words(self, content: Answer | Proposal, names: Sequence[str]) -> str:
        return ", ".join(f"{names[int(key)]} {value:g}" for key, value in (content.numbers or {}).items())

    def read(self, value: Any, ids: Sequence[int], write_mask: WriteMask) -> Answer:
        return Answer(numbers={str(ids[place]): float(number) for place, number in enumerate(value)})

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        numbers = {str(recipe.classes[name]): value for name, value in predicted if name in recipe.classes}
        return Proposal(image=image, numbers=numbers)

    def left_out(self, answer: Answer, names: Names) -> str:
        has_all = {*map(str, names)} <= {*(answer.numbers or ())}
        return "" if has_all else "image without some of the numbers"

    def rows(self, answer: Answer, names: Names) -> Iterator[list[Any]]:
        assert answer.numbers is not UNSET
        yield [repr(answer.numbers[str(number)]) for number in names]

    def source(self, files: Files) -> dict[str, Any]:
        return {**super().source(files), "target_columns": files.columns[1:]}


class Objects(Form):
    field = "objects"
    needs_value = False
    formats = ("coco", "yolo", "voc", "csv")
    columns = ("label", "left", "top", "right", "bottom")
    source_fields = ("train_image_folder", "train_label_folder")
    reads_tables = False  # the form of annotations does

    def check_values(self, answer: Answer, size: Size) -> None:
        objects = answer.objects or []
        if len(objects) > MOST_OBJECTS:
            raise BadRequest(
                f"{len(objects):,} objects are too many.", f"At most {MOST_OBJECTS:,} are possible."
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

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        objects, scores = [], [item["score"] for item in predicted]
        for item in predicted:
            left, top, right, bottom = box = tuple(item["box"])
            is_sure = item["score"] >= recipe.min_score and min(right - left, bottom - top) >= 1
            if is_sure and (number := recipe.classes.get(item["label"])) is not None:
                objects.append(Object(class_=number, box=box, from_=recipe.source, score=item["score"]))
        kept = [item.score for item in objects if item.score is not UNSET]
        return Proposal(
            image=image,
            objects=objects,
            score=min(kept) if kept else 1 - max(scores, default=0.0),
            uncertainty=sum(min(score, 1 - score) for score in scores),
        )

    def left_out(self, answer: Answer, names: Names) -> str:
        is_crowd = len(answer.objects or ()) > MAX_OBJECTS
        return f"image with more than {MAX_OBJECTS:,} objects" if is_crowd else ""

    def check_training(self, names: Sequence[str]) -> None:
        if not names:
            raise BadRequest("No labeled training image has an object.", "Draw some objects first.")

    def rows(self, answer: Answer, names: Names) -> Iterator[list[Any]]:
        for item in answer.objects or []:
            yield [names[item.class_], *map(_shortest, item.edges)]

    def source(self, files: Files) -> dict[str, Any]:
        train, *others = files.of_splits("annotations/instances_{}.json").items()
        labels = {f"{split}_labels": path for split, path in others}
        return {
            "images": files.root, "labels": train[1], "format": "coco", "val_min_box_size": 0, **labels
        }  # fmt: skip


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

    def propose(self, image: int, predicted: Any, recipe: ProposeLabels) -> Proposal:
        return Proposal(image=image)  # the worker writes the mask

    def source(self, files: Files) -> dict[str, Any]:
        list_of_names = files.folder / "classes.txt"
        list_of_names.write_text("".join(f"{name}\n" for name in files.classes), encoding="utf-8")
        folders = {"images": files.root, "targets": str(files.folder / MASKS_FOLDER)}
        pairs = {split: {**folders, "pairs": path} for split, path in files.of_splits("{}.csv").items()}
        return {**pairs, "class_labels_file": str(list_of_names), "are_indexes": True}


def folded(name: str) -> str:
    """Return what is the same in two names of one class."""
    return unicodedata.normalize("NFC", name.strip()).casefold()


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


def _shortest(edge: float) -> str:
    """Return a coordinate as text, without a fraction if it is whole."""
    return f"{edge:g}" if edge.is_integer() and abs(edge) < 1e6 else repr(edge)


def _chance(percent: float) -> float:
    return min(1.0, max(0.0, percent / _PERCENT))


def _entropy(chance: float) -> float:
    """Return the entropy of an event in bits."""
    return -sum(part * log(part, 2) for part in (chance, 1 - chance) if part > 0)


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
