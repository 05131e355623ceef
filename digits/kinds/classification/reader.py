"""Read a folder of images with a sub-folder for each class.

Each folder directly below the root is a class; its images are anywhere below it.
Only the names and types of directory entries are read; no file is opened, unless its ending is unknown.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from digits.core.splits import SPLIT_TITLES
from digits.data.images.endings import LeftOut
from digits.data.images.lists import (
    ImageList,
    is_folder,
    read_folder,
    special_files,
    walk_images,
    without_images,
)
from digits.data.samples import samples
from digits.data.sources.class_folders import class_in_name, named_classes
from digits.data.sources.dataset_folder import find
from digits.data.sources.declared_splits import affixed_splits
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    listed,
    show,
    shuffle,
)
from digits.data.sources.shares import CreateWithShares, Shares
from digits.data.tables.parquet import ParquetImages
from digits.data.tables.tables import SourceNotes
from digits.data.targets.class_index import ClassIndex
from digits.kinds.classification import listing, record_files
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    LabeledRecords,
    Tables,
    TextFiles,
)
from digits.kinds.sources.tables import tables_in

PROGRESS_EVERY_FILES = 20_000
_FOLD = re.compile(r"k?fold[-_ ]?\d+", re.IGNORECASE)


@dataclass
class ClassFolder:
    """A class: its folder's name, the label shown for it, and its images relative to the root, sorted.

    The images in ``left_out`` cannot be read.
    """

    name: str
    label: str
    files: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)


@dataclass
class Scan:
    """The contents of ``root``, with classes sorted by folder name.

    ``links`` were not followed because they lead outside of the root or form a cycle; ``specials`` are pipes, devices
    and sockets. ``rest`` is what is outside of any class: directly in the root, or with ``by_name``, for which the
    classes are those in the names of the images, without one. ``seen`` is the number of entries examined.
    """

    root: Path
    classes: list[ClassFolder] = field(default_factory=list)
    links: int = 0
    specials: int = 0
    rest: ImageList = field(default_factory=lambda: ImageList(Path()))
    unreadable: list[str] = field(default_factory=list)
    seen: int = 0
    by_name: bool = False

    @property
    def unread(self) -> LeftOut:
        """All images that cannot be read."""
        total = LeftOut()
        for part in (self.rest.left_out, *(item.left_out for item in self.classes)):
            total.update(part)
        return total

    @property
    def count(self) -> int:
        """Images in all classes."""
        return sum(len(item.files) for item in self.classes)

    @property
    def loose(self) -> int:
        """Images outside of any class."""
        return len(self.rest.files)

    def skip(self, part: ImageList | Scan, below: str = "") -> None:
        """Count what was skipped in a part of the root, the folder ``below`` it."""
        self.links += part.links
        self.specials += part.specials
        self.unreadable += [os.path.join(below, path) for path in part.unreadable]


@dataclass
class Bounds:
    """Limits on the images per class: classes with too few are dropped, and excess images are dropped at random."""

    minimum: int = 2
    maximum: int | None = None


def read(recipe: CreateClassification, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``, after downloading its sample if it has one.

    Raises UnusableSource, `samples.DownloadFailed` and OSError.
    """
    if recipe.files is not None:
        return _read_files(recipe, recipe.files, progress)
    if recipe.train is None:
        raise UnusableSource("The recipe has no source.")
    train, val = recipe.train, recipe.val
    if recipe.sample is not None:
        folder = samples.download(
            recipe.sample, Path(train.folder).parent, progress.downloaded, mirrors=recipe.sample_mirrors
        )
        train = structs.replace(train, folder=str(folder / "train"))
        val = structs.replace(val or train, folder=str(folder / "test"))
    by_name = recipe.classes_from_names
    found, bounds = _scan(train, progress, by_name)
    separate = {"val": val, "test": recipe.test}
    return plan(
        found,
        bounds,
        recipe,
        progress,
        separate={name: _scan(split, progress, by_name) for name, split in separate.items() if split},
        one_class=recipe.one_class,
    )


def _read_files(
    recipe: CreateClassification,
    source: TextFiles | Tables | DatasetFolder | LabeledRecords,
    progress: Progress,
) -> Plan:
    names: list[str] | None = None
    is_shuffled, notes = True, SourceNotes()
    if isinstance(source, TextFiles):
        progress.reading(f"Reading {show(source.train.file)}")
        splits, names = listing.read_text_files(source, recipe.max_unusable_percent, progress, notes)
        is_shuffled = source.shuffle
    elif isinstance(source, Tables):
        tables = listing.tables_of(source)
        splits, names = listing.read_tables(
            tables, source, recipe.max_unusable_percent, progress, notes, recipe.class_names
        )
    elif isinstance(source, LabeledRecords):
        return record_files.plan(recipe, progress)
    else:
        progress.reading(f"Reading {show(source.folder)}")
        contents = find(source.folder)
        progress.say(contents.describe())
        if not contents.tables:
            folders = {
                name: _scan(FolderSplit(folder=str(path), min_per_class=1), progress)
                for name, path in contents.folders.items()
            }
            found, bounds = folders.pop("train")
            return plan(found, bounds, recipe, progress, separate=folders)
        tables = tables_in(contents, contents.root)
        splits, names = listing.read_tables(tables, source, recipe.max_unusable_percent, progress, notes)
    # Images in Parquet files are read in the order of their rows.
    is_shuffled &= not isinstance(splits["train"].images, ParquetImages)
    return listing.plan_listings(splits, names, recipe, notes, is_shuffled=is_shuffled)


def _scan(split: FolderSplit, progress: Progress, by_name: bool = False) -> tuple[Scan, Bounds]:
    found = []
    for folder in split.folders:
        root = Path(folder)
        progress.reading(f"Reading {show(folder)}")
        found.append(scan(root, progress, by_name))
    return merge(found), Bounds(split.min_per_class, split.max_per_class)


def merge(scans: list[Scan]) -> Scan:
    """Merge the classes with the same label of several folders; the root becomes their common parent.

    A folder that is given twice, or inside another one, counts once.
    """
    if len(scans) == 1:
        return scans[0]
    roots = [os.path.realpath(item.root) for item in scans]
    root = os.path.commonpath(roots)
    merged = Scan(Path(root), by_name=scans[0].by_name)
    classes: dict[str, ClassFolder] = {}
    taken: set[str] = set()
    for place, item in zip(roots, scans, strict=True):
        below = os.path.relpath(place, root)
        for folder in item.classes:
            target = classes.setdefault(folder.label, ClassFolder(folder.name, folder.label))
            paths = [os.path.normpath(os.path.join(below, file)) for file in folder.files]
            target.files += [path for path in paths if path not in taken]
            target.left_out.update(folder.left_out)
            taken.update(paths)
        merged.skip(item, below)
        merged.rest.files += item.rest.files
        merged.rest.left_out.update(item.rest.left_out)
    for folder in classes.values():
        folder.files.sort(key=os.fsencode)
    merged.classes = sorted(classes.values(), key=lambda folder: os.fsencode(folder.name))
    return merged


def scan(root: Path, progress: Progress | None = None, by_name: bool = False) -> Scan:
    """List the images below ``root`` by class, in the limits of ``progress``.

    The classes are the names of folders, or with ``by_name`` those in the names of the images; see `class_in_name`.
    Raises UnusableSource when ``root`` is missing, no folder, or cannot be read.
    """
    progress = progress or Progress()
    name = show(str(root))
    found = Scan(Path(root))
    reported = 0
    for found in progress.take(_scan_steps(Path(root))):
        if found.seen >= reported + PROGRESS_EVERY_FILES:
            reported = found.seen
            progress.reading(f"Reading {name}: {found.seen:,} files")
    if by_name:
        found.classes, found.by_name = _divide_by_name(found), True
    for item in found.classes:  # if it was cut off
        item.files.sort(key=os.fsencode)
    return found


def _scan_steps(root: Path) -> Iterator[Scan]:
    """List the images below ``root`` by the folders in it, yielding the same `Scan` after each entry."""
    found = Scan(root)
    classes: dict[str, ClassFolder] = {}
    top = os.path.realpath(root)
    for entry in read_folder(root):
        if is_folder(entry, top):
            label = label_of(entry.name)
            item = classes.setdefault(label, ClassFolder(entry.name, label))
            found.classes = list(classes.values())
            images = ImageList(root, item.files, left_out=item.left_out)
            for _ in walk_images(root, start=entry.name, follows=True, listed=images):
                found.seen += 1
                yield found
            found.skip(images)
        else:
            found.rest.add(entry, entry.name, top)
            found.seen += 1
        yield found
    found.skip(found.rest)


def _divide_by_name(found: Scan) -> list[ClassFolder]:
    """Return the classes in the names of all images; those without one, and what cannot be read, are the rest."""
    files = [*found.rest.files, *(file for item in found.classes for file in item.files)]
    found.rest = ImageList(found.root, left_out=found.unread)
    classes: dict[str, ClassFolder] = {}
    for file in files:
        if label := label_of(class_in_name(os.path.basename(file))):
            classes.setdefault(label, ClassFolder(label, label)).files.append(file)
        else:
            found.rest.files.append(file)
    return sorted(classes.values(), key=lambda item: os.fsencode(item.name))


def label_of(folder_name: str) -> str:
    """Return the label of a class folder: its name, with unprintable characters escaped.

    The same name from macOS, which decomposes accented characters, and from other systems is the same label.
    """
    return show(unicodedata.normalize("NFC", folder_name))


def plan(
    train: Scan,
    bounds: Bounds,
    recipe: CreateWithShares,
    progress: Progress,
    *,
    separate: dict[str, tuple[Scan, Bounds]] | None = None,
    one_class: bool = False,
) -> Plan:
    """Plan the splits. ``separate`` contains separate folders for ``val`` or ``test``.

    Raises UnusableSource if fewer than two classes have images, or none with ``one_class``.
    """
    separate = separate or {}
    _say_classes(train, progress)
    shares, seed = recipe.shares(separate), recipe.seed
    warnings = remarks(train)
    classes = large_enough(train, max(bounds.minimum, 1 + len(shares.taken)), warnings)
    if one_class and len(classes) == 1:
        warnings.append(f"Only one class found ({classes[0].label}): accuracy will always be 100%.")
    else:
        need_two_classes(train, classes, warnings)
    _remark_on_names(train, classes, warnings)

    need_classes(train, [item.name for item in classes])

    labels = [item.label for item in classes]
    splits = _shared_out(train.root, classes, bounds, shares, seed)
    for name, (found, own_bounds) in separate.items():
        warnings += remarks(found)
        splits[name] = _matched(name, found, own_bounds, classes, seed, warnings)
    for name, split in splits.items():
        shuffle(split, seed, name)
    return Plan(ClassIndex.of(labels), splits, labels, warnings, required_groups=1 if one_class else 2)


def _say_classes(scan: Scan, progress: Progress) -> None:
    """Report the number of images in the classes, and those of the smallest and of the largest class."""
    counts = {item.label: len(item.files) for item in scan.classes if item.files}
    if not counts:
        return
    images, classes = count_of(scan.count, "image"), count_of(len(counts), "class")
    progress.say(f"{progress.at_least}{images} in {progress.at_least.lower()}{classes}.")
    if not progress.is_partial and min(counts.values()) < max(counts.values()):
        fewest, most = (extreme(counts, key=counts.__getitem__) for extreme in (min, max))
        progress.say(
            f"The smallest class is “{fewest}” with {count_of(counts[fewest], 'image')}, "
            f"the largest “{most}” with {counts[most]:,}."
        )


def large_enough(scan: Scan, minimum: int, warnings: list[str]) -> list[ClassFolder]:
    """Return the classes with at least ``minimum`` images, and report the others in ``warnings``."""
    kept = [item for item in scan.classes if item.files and len(item.files) >= minimum]
    small = [item for item in scan.classes if len(item.files) < minimum]
    if small:
        names = listed(
            f"{item.label} ({len(item.files)}{f', besides {item.left_out}' if item.left_out else ''})"
            for item in small
        )
        warnings.append(f"Excluded, because they have fewer than {count_of(minimum, 'image')}: {names}.")
    return kept


def need_two_classes(scan: Scan, kept: list[ClassFolder], warnings: list[str]) -> None:
    """Raise UnusableSource if fewer than two classes are ``kept``."""
    if not scan.count:
        raise _without_images(scan)
    root = show(str(scan.root))
    left_out = warnings[-1:] if len(kept) < len(scan.classes) else []
    remedy = "Add images, or lower the minimum number of images per class."
    if not kept:
        raise UnusableSource(f"No class in {root} has enough images.", " ".join([*left_out, remedy]))
    if len(kept) == 1:
        needed = "Classification requires at least two, each in its own folder directly below this one."
        raise UnusableSource(
            f"Only one class with enough images was found in {root}: {kept[0].label}.",
            " ".join([*(left_out or remarks(scan)), remedy if left_out else needed]),
        )


def _without_images(scan: Scan) -> UnusableSource:
    root = show(str(scan.root))
    if scan.loose and scan.by_name:
        return UnusableSource(
            f"The names of the {count_of(scan.loose, 'image')} in {root} contain no classes.",
            "Expected names such as cat_1.jpg and dog_2.jpg.",
        )
    if scan.loose:
        return UnusableSource(
            f"No folders with images found in {root}, but {count_of(scan.loose, 'image')} directly in it.",
            _advice_on_names(scan) or "Put the images of each class into a separate folder.",
        )
    return without_images(scan.root, scan.unreadable, scan.unread, scan.links)


def advise_names(classes: list[str]) -> str:
    """Return the advice to use the ``classes`` in the names of files."""
    return (
        f"The names of the images contain classes: {listed(classes)}. Check “Classes from file names” "
        "(classes_from_names) to use these, or put the images of each class into a separate folder."
    )


def _advice_on_names(scan: Scan) -> str:
    classes = named_classes(scan.rest.files)
    return advise_names(classes) if classes else ""


def remarks(scan: Scan) -> list[str]:
    """Return warnings about a scan for the user."""
    root = show(str(scan.root))
    remarks = scan.unread.remarks()
    if scan.links:
        remarks.append(
            f"{count_of(scan.links, 'link')} ignored in {root}: broken, leading outside of it, or cyclic."
        )
    if scan.specials:
        remarks.append(special_files(scan.specials, scan.root))
    if scan.loose and scan.by_name:
        remarks.append(f"{count_of(scan.loose, 'image')} ignored in {root}: no class in the name.")
    elif scan.loose and scan.count:
        remarks.append(
            f"{count_of(scan.loose, 'image')} ignored directly in {root}, outside any class's folder."
        )
    if scan.unreadable:
        remarks.append(f"Folders in {root} that cannot be read: {listed(scan.unreadable)}.")
    return remarks


def need_classes(scan: Scan, names: list[str]) -> None:
    """Raise UnusableSource if all ``names`` of classes are those of splits or folds."""
    root = show(str(scan.root))
    groups = affixed_splits(names)
    declared = {name for group in groups.values() for each in group.values() for name in each}
    if declared.issuperset(names):
        hint = "Enter the folder of each split, or all of them for training to mix their images."
        if len(groups) > 1:
            hint = "Put the folders of the classes into one folder for each split, such as train and test."
        raise UnusableSource(f"{root} contains splits instead of classes: {listed(names)}.", hint)
    if all(map(_FOLD.fullmatch, names)):
        raise UnusableSource(
            f"{root} contains folds instead of classes: {listed(names)}.",
            "Enter one of them as the validation folder, and the others for training, one per line.",
        )


def _remark_on_names(scan: Scan, classes: list[ClassFolder], warnings: list[str]) -> None:
    folded = Counter(item.label.casefold() for item in classes)
    alike = [item.label for item in classes if folded[item.label.casefold()] > 1]
    if alike:
        warnings.append(f"Classes that differ only in upper and lower case: {listed(alike)}.")


def _shared_out(
    root: Path, classes: list[ClassFolder], bounds: Bounds, shares: Shares, seed: int
) -> dict[str, SplitPlan]:
    """Divide each class of a folder between train and the splits that take a share of it."""
    splits: dict[str, SplitPlan] = {name: SplitPlan(ImageFolder(root)) for name in ("train", *shares.taken)}
    for number, item in enumerate(classes):
        files = choose(item.files, seed, "train", item.name, maximum=bounds.maximum)
        for name, part in shares.slices(len(files)).items():
            numbers = [number] * len(files[part])
            splits[name].files += files[part]
            splits[name].targets += numbers
            splits[name].groups += numbers
    return splits


def _matched(
    name: str, scan: Scan, bounds: Bounds, classes: list[ClassFolder], seed: int, warnings: list[str]
) -> SplitPlan:
    """Return the split of a separate folder, whose classes are those of train."""
    root = show(str(scan.root))
    if not scan.count:
        raise _without_images(scan)
    numbers = {item.name: number for number, item in enumerate(classes)}
    numbers |= {item.label: number for number, item in enumerate(classes)}
    known = [item for item in scan.classes if item.name in numbers or item.label in numbers]
    unknown = [item.label for item in scan.classes if item not in known]
    if not known:
        raise UnusableSource(
            f"No folder in {root} is named like a class of the training images.",
            f"Expected names such as {listed(item.label for item in classes)}.",
        )
    if unknown:
        warnings.append(
            f"Folders in {root} are left out, because the training images have no class of that name: "
            f"{listed(unknown)}."
        )
    split = SplitPlan(ImageFolder(scan.root))
    kept = large_enough(Scan(scan.root, known), bounds.minimum, warnings)
    for item in kept:
        files = choose(item.files, seed, name, item.name, maximum=bounds.maximum)
        split.files += files
        targets = [numbers.get(item.name, numbers.get(item.label, 0))] * len(files)
        split.targets += targets
        split.groups += targets
    present = set(split.groups)
    missing = [item.label for number, item in enumerate(classes) if number not in present]
    if missing:
        warnings.append(f"Classes without {SPLIT_TITLES[name].lower()} images: {listed(missing)}.")
    if not split.files:
        raise UnusableSource(f"No class in {root} has enough images for {SPLIT_TITLES[name].lower()}.")
    return split
