"""Read a folder of images and one of label images, whose pixels are class indexes or colors, or a COCO file.

The classes are those of all label images, so these are read twice: first to count the pixels of each class, in
one process per core, then with their images.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data import parallel
from digits.data.images import images
from digits.data.images.frames import Frame
from digits.data.images.images import Geometry, Size, UnusableImage, reason_of
from digits.data.images.mask_fit import MaskFit, MaskFits, frame_of
from digits.data.images.mask_values import default_names, recognize
from digits.data.images.masks import FIRST_SHADE, WHITE, Code, ColorMap, IndexCode, MaskSurvey, open_mask
from digits.data.images.object_sizes import ObjectSizes
from digits.data.records.records import Features
from digits.data.sources.class_names import read_names
from digits.data.sources.plan import Plan, Progress, Remark, SplitPlan, UnusableSource, count_of, listed, show
from digits.data.sources.shares import group_by_rarest, group_flags
from digits.data.sources.target_images import TargetImageSplit
from digits.data.tables.tables import SourceNotes, open_lines
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES, Mask
from digits.data.targets.palette import Color
from digits.kinds.segmentation.annotated import AnnotatedClasses, are_annotated, numbers_classes
from digits.kinds.segmentation.pairing import CombinedMasks, describe_overlap, pair_masks
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.sources.target_images import FoundTargetImages, find_target_images, plan_splits

TARGET = CreateSegmentation.target_word
NO_CLASS = "no class"
NO_MASK = "No label image can be used."
USABLE_MASKS = (
    "Use grayscale images or images with a palette, or choose a color map for the colors of the classes."
)
MAX_TEXT_BYTES = 1_000_000
MASKS_PER_PIECE = 32
_COLOR_HEAD = re.compile(r"\br(ed)?\b.*\bg(reen)?\b.*\bb(lue)?\b", re.IGNORECASE)
_COLOR_LINE = re.compile(
    r"((?P<before>.*[^\d\s,;-].*?)[\s,;]+)?(?P<red>\d+)[\s,;]+(?P<green>\d+)[\s,;]+(?P<blue>\d+)"
    r"([\s,;]+(?P<after>.*[^\d\s,;-].*))?"
)


@dataclass(frozen=True, slots=True)
class LabelImage:
    """The label image ``name`` of an image, with the indexes of its classes.

    It is turned by ``turn``, an EXIF orientation, to fit the image.
    """

    name: str
    classes: tuple[int, ...]
    turn: int = 1


@dataclass(frozen=True)
class Classes:
    """The names of the classes, their colors in the source if it has any, and how label images encode them.

    ``note`` says how unusual label images were understood, if they are.
    """

    names: list[str]
    colors: list[Color]
    code: Code
    note: str = ""

    def remarks(self) -> list[str]:
        """Return messages that describe what was detected."""
        if isinstance(self.code, IndexCode) and self.code.values == (0, WHITE):
            return [f"Black and white label images: 0 is “{self.names[0]}”, 255 is “{self.names[1]}”."]
        return [self.note] if self.note else []

    def shares(self, survey: MaskSurvey) -> NDArray[np.float64]:
        """Return the share of each class in the pixels of an image that have a class, float64 [classes]."""
        known = self.code.count(survey)[: len(self.names)]
        return np.divide(known, max(1, known.sum()))


@dataclass
class SegmentationPlan(Plan):
    """A plan whose targets are `LabelImage`; records are counted by all classes of their pixels.

    With ``scales``, label images are scaled to the size of their images.
    """

    code: Code = field(kw_only=True)
    scales: bool = False

    def counts(self, split: SplitPlan, places: Iterator[int] | Sequence[int]) -> NDArray[np.int64]:  # type: ignore[override]
        total = np.zeros(len(self.target.names), np.int64)
        for place in places:
            total[list(split.targets[place].classes)] += 1
        return total

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        resized = geometry.resize_mask(self._classes(split, place, geometry.size), IGNORED)
        return {self.target.feature: [images.encode_image(resized, "png")]}

    def value(self, split: SplitPlan, place: int) -> NDArray[np.uint8]:
        return np.asarray(self._classes(split, place))

    def _classes(self, split: SplitPlan, place: int, size: Size | None = None) -> Image.Image:
        """Return the class of each pixel of an image, whose ``size`` is that of its file if it is not known."""
        target: LabelImage = split.targets[place]
        try:
            image = open_mask(cast(TargetImageSplit, split).target_images.read(target.name))
            size = size or frame_of(split.images, split.files[place], image).size
            fits = MaskFit(target.turn, self.scales)
            fits.check(image.size, size)
            return fits.apply(Image.fromarray(self.code.decode(image)), size)
        except (UnusableImage, OSError) as error:
            raise UnusableImage(f"{TARGET} {show(target.name)}: {reason_of(error)}") from error


def read(recipe: CreateSegmentation, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    names, code = read_class_files(recipe.class_labels_file, recipe.colormap_file)
    annotations = AnnotatedClasses(recipe.class_labels_file)
    notes = SourceNotes()
    warnings = notes.warnings
    splits = plan_splits(recipe, progress, notes, partial(find_masks, annotations))
    if annotations.indexes:
        _check_annotations(recipe, splits)
    surveys, frames = _survey(splits, code, recipe.processes, progress)
    fits = MaskFits.of([item for items in frames.values() for item in items if item])
    known = [item for items in surveys.values() for item in items if item]
    if not known:
        _refuse_all(splits["train"], code)
    if isinstance(splits["train"].target_images, CombinedMasks):
        warnings += filter(None, [describe_overlap(known)])
    is_stated = recipe.are_indexes and bool(names)
    classes = Classes(names, [], code) if is_stated else find_classes(known, names, code, annotations)
    progress.say(f"{count_of(len(classes.names), 'class')}: {listed(classes.names)}.")
    for remark in classes.remarks():
        progress.say(remark)
    shares = _total_shares(classes, surveys["train"])
    for name, split in splits.items():
        split.targets = [
            LabelImage(
                file,
                tuple(np.flatnonzero(classes.shares(item)).tolist()) if item else (),
                fits.turn(frame) if frame else 1,
            )
            for file, item, frame in zip(split.targets, surveys[name], frames[name], strict=True)
        ]
    contained = {name: [item.classes for item in split.targets] for name, split in splits.items()}
    groups, of_images = group_by_rarest(classes.names, contained, NO_CLASS, shares.mean.tolist())
    for name, split in splits.items():
        split.groups = of_images[name]
    warnings += map(Remark, [*filter(None, [classes.note]), *fits.notes])
    warnings += _remarks(classes.names, shares.mean)
    target = Mask.of(
        classes.names,
        recipe.height,
        recipe.width,
        classes.colors,
        mean=shares.mean.tolist(),
        std=shares.std.tolist(),
    )
    return SegmentationPlan(
        target,
        dict(splits),
        groups,
        warnings,
        notes.unusable,
        code=classes.code,
        scales=fits.scales,
        objects=_object_sizes(classes, surveys, frames),
    )


def _object_sizes(
    classes: Classes, surveys: dict[str, list[MaskSurvey | None]], frames: dict[str, list[Frame | None]]
) -> ObjectSizes:
    """Return squares with as many pixels as each class has in an image, without the background."""
    pairs = (pair for name in surveys for pair in zip(surveys[name], frames[name], strict=True))
    sizes = []
    for survey, frame in pairs:
        if survey is not None and frame is not None:
            counts = classes.code.count(survey)[1 : len(classes.names)]
            scale = math.prod(frame.size) / math.prod(frame.stated)
            sides = np.sqrt(counts[counts > 0] * scale)
            sizes.append((frame.size, np.stack([sides, sides], axis=1)))
    return ObjectSizes.of(sizes, "Areas of a class in an image")


def _check_annotations(recipe: CreateSegmentation, splits: Mapping[str, TargetImageSplit]) -> None:
    """Raise UnusableSource for settings that do not fit COCO files and folders of classes."""
    if len({type(split.target_images) for split in splits.values()}) > 1:
        raise UnusableSource(
            "Some splits use annotations or a folder of masks for each class, others label images.",
            "Use the same format for all splits.",
        )
    takes_names = all(map(numbers_classes, recipe.folders().values()))
    if recipe.colormap_file or (recipe.class_labels_file and not takes_names):
        raise UnusableSource(
            "Class labels and color maps apply to label images only; annotations and folders of masks name classes.",
            "Leave both fields empty.",
        )


def find_masks(
    annotations: AnnotatedClasses, folders: TargetImageFolders, progress: Progress
) -> FoundTargetImages:
    """Return the images with label images, or with those drawn from annotations; raises UnusableSource."""
    if are_annotated(folders):
        return annotations.find(folders, Path(folders.targets), progress)
    return find_target_images(folders, progress, partial(pair_masks, indexes=annotations.indexes))


def read_class_files(class_labels: str, color_map: str) -> tuple[list[str], Code]:
    """Return the names of the classes, if they are known, and how to survey label images.

    That is by the colors in the file ``color_map``, or as indexes. Both paths can be empty. Raises UnusableSource.
    """
    names = read_class_names(class_labels)
    if not color_map:
        return names, IndexCode(len(names) or MAX_PIXEL_CLASSES)
    names_of_colors, colors = read_color_map(color_map)
    return names or names_of_colors, ColorMap(colors)


def find_classes(
    surveys: Sequence[MaskSurvey], names: list[str], code: Code, annotations: AnnotatedClasses
) -> Classes:
    """Return the classes of ``annotations`` if there are any, else of the surveyed label images.

    ``names`` may be empty. Raises UnusableSource.
    """
    if annotations.indexes:
        return Classes(list(annotations.indexes), [], IndexCode(len(annotations.indexes)))
    if not surveys:
        raise UnusableSource(NO_MASK, USABLE_MASKS)
    if isinstance(code, ColorMap):
        colors = list(code.colors)
        if len(names) > len(colors):
            raise UnusableSource(
                f"There are {len(names)} class labels, but {count_of(len(colors), 'color')} in the color map.",
                "Add the colors of the other classes.",
            )
        colors = colors[: len(names) or None]
        return Classes(names or default_names(len(colors)), colors, ColorMap(colors))
    meaning = recognize(surveys, names)
    return Classes(meaning.names, list(meaning.code.colors), meaning.code, meaning.note)


def read_class_names(path: str) -> list[str]:
    """Read the names of the classes, one per line; none without a path. Raises UnusableSource.

    The lines of Roboflow's ``_classes.csv`` are the value of the pixels of a class and its name, after a header.
    """
    if not path:
        return []
    if rows := _rows_of_values(Path(path)):
        return _names_of_values(show(Path(path).name), rows)
    return read_names(Path(path), MAX_PIXEL_CLASSES)


def lists_values(path: Path) -> bool:
    """Return whether the file ``path`` lists the values of the pixels of each class."""
    return bool(_rows_of_values(path))


def _rows_of_values(path: Path) -> list[list[str]]:
    if path.suffix.lower() != ".csv":
        return []
    lines, _ = open_lines(path, MAX_TEXT_BYTES)
    head, *rows = [*csv.reader(lines, skipinitialspace=True)] or [[]]
    return rows if [name.strip().lower() for name in head] == ["pixel value", "class"] else []


def _names_of_values(file: str, rows: Sequence[list[str]]) -> list[str]:
    """Return the names of the classes in rows of values and names, in the order of the values.

    Indexes without a name get one, unless values are shades of gray. Raises UnusableSource.
    """
    names: dict[int, str] = {}
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        try:
            value, name = int(row[0]), show(row[1].strip())
        except (ValueError, IndexError):
            raise UnusableSource(
                f"{file}: line {number} is not the value of a pixel and the name of its class."
            ) from None
        if not 0 <= value <= IGNORED or value in names or name in names.values():
            raise UnusableSource(
                f"{file}: line {number} repeats a value or a name, or the value is above 255."
            )
        names[value] = name
    highest = max(names, default=0)
    if highest >= 2 * len(names) + FIRST_SHADE:
        return [names[value] for value in sorted(names)]
    return [names.get(value, f"class {value}") for value in range(highest + 1)]


def read_color_map(path: str) -> tuple[list[str], list[Color]]:
    """Read the colors of the classes: red, green and blue per line, 0 to 255. Raises UnusableSource.

    As in DIGITS, a map of 256 colors is padded with black, and its last color is that of pixels without a class. The
    lines of CVAT's ``labelmap.txt`` begin with the name of the class: ``car:128,0,0::``; in other files, it is before
    or after the color. Without names, the first list is empty.
    """
    name = show(Path(path).name)
    colors: list[Color] = []
    names: list[str] = []
    lines, is_whole = open_lines(Path(path), MAX_TEXT_BYTES)
    if not is_whole:
        raise UnusableSource(f"{name} is larger than {MAX_TEXT_BYTES // 1_000_000} MB.")
    for number, line in enumerate("".join(lines).rstrip().splitlines(), 1):
        if line.startswith("#") or (number == 1 and _COLOR_HEAD.search(line)):
            continue
        label, has_name, color_text = line.partition(":")
        text = color_text.partition(":")[0] if has_name else line
        match = _COLOR_LINE.fullmatch(text.strip())
        color = tuple(map(int, match.group("red", "green", "blue"))) if match else ()
        if not match or max(color) > 255:
            raise UnusableSource(
                f"{name}: line {number} is not a color: “{show(line[:40])}”.",
                "Each line contains red, green and blue, from 0 to 255, separated by spaces.",
            )
        if has_name or match["before"] or match["after"]:
            names.append(show((label if has_name else match["before"] or match["after"]).strip()))
        colors.append((color[0], color[1], color[2]))
    if len(colors) == MAX_PIXEL_CLASSES + 1:
        colors.pop()
    while len(colors) > 1 and not any(colors[-1]) and colors[-1] in colors[:-1]:
        colors.pop()
    if len(colors) > MAX_PIXEL_CLASSES:
        raise UnusableSource(f"{name} lists {len(colors):,} colors.", f"Use at most {MAX_PIXEL_CLASSES}.")
    if not colors:
        raise UnusableSource(f"{name} is empty.", "List one color per line.")
    for number, color in enumerate(colors, 1):
        if color in colors[: number - 1]:
            raise UnusableSource(
                f"{name}: line {number} repeats the color of line {colors.index(color) + 1}."
            )
    return names if len(names) == len(colors) == len(set(names)) else [], colors


def _survey(
    splits: dict[str, TargetImageSplit], code: Code, processes: int | None, progress: Progress
) -> tuple[dict[str, list[MaskSurvey | None]], dict[str, list[Frame | None]]]:
    """Return the survey of each label image to open, and how its size fits that of the image.

    Both are None if one is unusable.
    """
    every = [(split, place) for split in splits.values() for place in range(len(split))]
    places = progress.sample(every)
    pieces = -(-len(places) // MASKS_PER_PIECE)

    def work(piece: int, send: parallel.Send) -> None:
        chosen = places[piece * MASKS_PER_PIECE : (piece + 1) * MASKS_PER_PIECE]
        send((piece, [survey_mask(split, place, code) for split, place in chosen]))

    surveyed: dict[int, list[tuple[MaskSurvey | None, Frame | None]]] = {}
    done = 0
    for message in parallel.run(work, pieces, processes=processes):
        if message:
            surveyed[message[0]] = message[1]
            done += len(message[1])
            progress.reading(f"Reading label images: {done:,} of {len(places):,}")
    flat = (item for piece in range(pieces) for item in surveyed[piece])
    found = {(id(split), place): item for (split, place), item in zip(places, flat, strict=True)}
    pairs = {
        name: [found.get((id(split), place), (None, None)) for place in range(len(split))]
        for name, split in splits.items()
    }
    return (
        {name: [survey for survey, _ in items] for name, items in pairs.items()},
        {name: [frame for _, frame in items] for name, items in pairs.items()},
    )


def survey_mask(split: TargetImageSplit, place: int, code: Code) -> tuple[MaskSurvey | None, Frame | None]:
    """Survey a label image, and compare its size with that of the image; return None if one cannot be used."""
    frame = None
    try:
        mask = open_mask(split.target_images.read(split.targets[place]))
        with contextlib.suppress(UnusableImage, OSError):
            frame = frame_of(split.images, split.files[place], mask)
        return code.survey(mask), frame
    except (UnusableImage, OSError):
        return None, frame


def _refuse_all(split: TargetImageSplit, code: Code) -> None:
    """Raise UnusableSource with the reason for which the first label image cannot be used, if there is one."""
    for name in split.targets[:1]:
        try:
            code.survey(open_mask(split.target_images.read(name)))
        except (UnusableImage, OSError) as error:
            first = f"The first one is {show(name)}: {reason_of(error)}."
            raise UnusableSource(f"{NO_MASK} {first}", USABLE_MASKS) from error


@dataclass(frozen=True)
class _Shares:
    """The mean and the standard deviation of the share of each class in the pixels of an image."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]


def _total_shares(classes: Classes, surveys: Sequence[MaskSurvey | None]) -> _Shares:
    total, squares, count = np.zeros(len(classes.names)), np.zeros(len(classes.names)), 0
    for item in filter(None, surveys):
        shares = classes.shares(item)
        total, squares, count = total + shares, squares + shares**2, count + 1
    mean = total / max(1, count)
    return _Shares(mean, np.sqrt(np.maximum(0, squares / max(1, count) - mean**2)))


def _remarks(names: list[str], shares: NDArray[np.float64]) -> list[str]:
    missing = [name for name, share in zip(names, shares, strict=True) if not share]
    return [f"No training image has pixels of: {listed(missing)}."] if missing else []


# Versions group records with new labels.
group_records = partial(group_flags, none=NO_CLASS)
