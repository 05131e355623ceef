"""Read labels that exist already, in a process of its own: ``python -m digits.kinds.labeling.importing``.

It writes them into the folder of a new job as ``imported.json``, whose entries the task that lists the images appends
to the log.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from digits.core.errors import BadRequest, TookTooLong
from digits.core.files import MissingFile, read_json, write_bytes
from digits.data.sources.class_folders import refuse_other_layouts
from digits.data.sources.declared_splits import split_folders
from digits.data.sources.plan import Progress, UnusableSource, count_of, listed, show
from digits.data.tables.tables import SourceNotes
from digits.kinds.classification import reader as classification
from digits.kinds.detection import reader as detection
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.labeling.answers import Answer, Object
from digits.kinds.labeling.processes import answer, ask

FILE = "imported.json"
AUTHOR = "imported"
SECONDS = 300
_MAX_BYTES = 2 << 30
# Fractions of a pixel with more digits come from storing edges as 32 bits.
_DIGITS = 3


class Request(Struct):
    """The images below ``root``, the folder ``target`` of the job, and the names of the first ``classes``.

    Their labels are in ``annotations``; if it is empty, the folders of the root are the classes.
    """

    root: str
    target: str
    classes: list[str]
    annotations: str = ""


class Imported(Struct):
    """The answers by the path of the image, and ``remarks`` about what was not imported."""

    answers: dict[str, Answer] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def import_labels(request: Request) -> list[str]:
    """Run the program, and return the names of the classes, the given ones first; raises DigitsError."""
    late = TookTooLong("The labels could not be read in time.", "Use a faster disk, or fewer images.")
    names: list[str] = ask(__name__, request, late)
    return names


def load(folder: Path) -> Imported:
    """Return what was imported into the job in ``folder``; raises UnreadableFile."""
    try:
        return read_json(folder / FILE, Imported, below=folder, limit=_MAX_BYTES)
    except MissingFile:
        return Imported()


def write(request: Request) -> list[str]:
    """Write the file in this process, and return the names of the classes; raises DigitsError and OSError."""
    root = Path(request.root)
    try:
        if request.annotations:
            names, imported = _annotated(root, Path(request.annotations), request.classes)
        else:
            names, imported = _in_folders(root, request.classes)
    except UnusableSource as error:
        raise BadRequest(error.message, error.hint) from error
    # Others are not listed.
    imported.answers = {path: answer for path, answer in imported.answers.items() if is_text(path)}
    write_bytes(Path(request.target, FILE), msgspec.json.encode(imported))
    return names


def is_text(path: str) -> bool:
    """Return whether a path is valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_folders(root: Path, given: Sequence[str]) -> tuple[list[str], Imported]:
    if splits := split_folders(root):
        named = listed(path.name for path in splits.values())
        raise UnusableSource(
            f"The folders in {show(str(root))} are not classes but splits: {named}.", "Choose one of them."
        )
    refuse_other_layouts(root)
    found = classification.scan(root)
    folders = [item for item in found.classes if item.files]
    if not folders:
        raise UnusableSource(f"No folder in {show(str(root))} contains images.")
    names, ids = _numbered(given, [item.label for item in folders])
    answers = {file: Answer(label=ids[item.label]) for item in folders for file in item.files}
    remarks = (
        [f"{count_of(found.loose, 'image')} outside of the folders: not labeled."] if found.loose else []
    )
    return names, Imported(answers, remarks)


def _annotated(root: Path, labels: Path, given: Sequence[str]) -> tuple[list[str], Imported]:
    """Return the boxes in pixels of the upright images; images without any stay open."""
    notes = SourceNotes()
    recipe = CreateDetection(images=str(root), labels=str(labels))
    found = detection.read_source(recipe, detection.SplitSource("train", root, labels), Progress(), notes)
    if found.keeps_order:
        raise UnusableSource("These annotations contain images.", "Create a dataset for object detection.")
    used = {name for names in found.names for name in names}
    names, ids = _numbered(given, dict.fromkeys([*found.declared, *sorted(used)]))
    answers = {}
    for file, boxes, classes in zip(found.files, found.boxes, found.names, strict=True):
        edges = boxes[boxes[:, 4] >= 0, :4].tolist()
        if edges:
            answers[file] = Answer(
                objects=[
                    Object(class_=ids[name], box=tuple(round(edge, _DIGITS) for edge in box))
                    for name, box in zip(classes, edges, strict=True)
                ]
            )
    return names, Imported(answers, [str(remark) for remark in notes.warnings])


def _numbered(given: Sequence[str], found: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """Return the names of all classes, and the number of each one that was ``found``, which may be a given one.

    Raises BadRequest if upper and lower case make the difference between two of those found.
    """
    names = [name for name in given if name.strip()]
    numbers = {_folded(name): number for number, name in enumerate(names)}
    ids: dict[str, int] = {}
    seen: dict[str, str] = {}
    for name in found:
        key = _folded(name)
        if (other := seen.setdefault(key, name)) != name:
            raise BadRequest(f"“{show(other)}” and “{show(name)}” are the same class.", "Rename one of them.")
        if key not in numbers:
            numbers[key] = len(names)
            names.append(name)
        ids[name] = numbers[key]
    return names, ids


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip()).casefold()


if __name__ == "__main__":
    answer(Request, write, SECONDS)
