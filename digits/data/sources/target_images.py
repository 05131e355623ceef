"""Folders of images and of target images, such as masks, with matching names."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.images.lists import visible_entries
from digits.data.sources.affixes import is_of_another_task
from digits.data.sources.declared_splits import inner_root, split_folders, split_groups
from digits.data.sources.path_rules import AmbiguousPaths, match_names
from digits.data.sources.plan import ImageSource, SplitPlan, count_of, listed, show

# In lowercase.
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "inputs", "input", "jpegimages", "leftimg8bit")

# What such tools append or prepend in a folder that contains images and targets.
_WORD = r"(mask|label|seg|segmentation|gt|target|annotation|ground[_-]?truth|labelids)s?"
_TARGET = re.compile(rf"[_.-]{_WORD}([_-]?[0-9]+)?\Z|\A{_WORD}[_.-]|_L\Z", re.IGNORECASE)
_PHOTOS = (".jpg", ".jpeg")


@dataclass
class TargetImageSplit(SplitPlan):
    """A split whose targets are images as well, from ``target_images``."""

    target_images: ImageSource = field(kw_only=True)


@dataclass(frozen=True)
class Matches:
    """Images with the target of the same name, as ``names``, and the unpaired files, all sorted.

    ``note`` describes how different names were paired. ``unclear`` are several targets of one image whose names do
    not identify the right one.
    """

    names: list[tuple[str, str]]
    without_target: list[str]
    without_image: list[str]
    repeated: list[str]
    note: str = ""
    unclear: Sequence[str] = ()

    def remarks(self, target: str) -> list[str]:
        """Return warnings about the unpaired files; ``target`` is the word for a target image."""
        remarks = []
        if self.without_target:
            verb = "has" if len(self.without_target) == 1 else "have"
            images = count_of(len(self.without_target), "image")
            remarks.append(f"{images} {verb} no {target} and cannot be used: {listed(self.without_target)}.")
        if self.without_image:
            verb = "has" if len(self.without_image) == 1 else "have"
            targets = count_of(len(self.without_image), target)
            remarks.append(f"{targets} {verb} no image and will not be used: {listed(self.without_image)}.")
        if self.repeated:
            verb = "differs" if len(self.repeated) == 1 else "differ"
            files = count_of(len(self.repeated), "file")
            remarks.append(
                f"{files} ignored whose name {verb} from another only in its ending: {listed(self.repeated)}."
            )
        return remarks


def match(images: Collection[str], targets: Collection[str]) -> Matches:
    """Pair files whose paths differ only in the ending, or else by `digits.data.sources.path_rules.match_names`."""
    repeated: list[str] = []
    image_of = _by_stem(images, repeated)
    target_of = _by_stem(targets, repeated)
    unclear: Sequence[str] = ()
    target_names: dict[str, str] = {}
    try:
        found = match_names(list(target_of.values()), list(image_of.values()))
        target_names = {image: target for target, image in found.items()}
    except AmbiguousPaths as error:
        unclear = error.paths if len(error.paths) > 1 else error.images
    pairs = [(name, target_names[name]) for name in image_of.values() if name in target_names]
    different = (pair for pair in pairs if os.path.splitext(pair[0])[0] != os.path.splitext(pair[1])[0])
    note = ""
    used = set(target_names.values())
    if example := next(different, None):
        others = "" if len(pairs) == len(target_of) else " Other names are not used."
        note = f"Names are paired as {show(example[0])} and {show(example[1])}.{others}"
        used.update(name for name in target_of.values() if is_of_another_task(os.path.basename(name)))
    return Matches(
        pairs,
        [name for name in image_of.values() if name not in target_names],
        [name for name in target_of.values() if name not in used],
        repeated,
        note,
        unclear,
    )


def divide(names: Collection[str]) -> tuple[list[str], list[str]] | None:
    """Return the images and the targets among the ``names`` of one folder, or None if there are no pairs.

    Targets are those with a word such as ``mask`` before or after the name, or the PNG files with the names of JPEG
    files.
    """
    targets = [name for name in names if _TARGET.search(os.path.splitext(os.path.basename(name))[0])]
    if not targets:
        photos = {os.path.splitext(name)[0] for name in names if name.lower().endswith(_PHOTOS)}
        targets = [
            name for name in names if name.lower().endswith(".png") and os.path.splitext(name)[0] in photos
        ]
    chosen = set(targets)
    images = [name for name in names if name not in chosen]
    matches = match(images, targets) if images and targets else None
    return (images, targets) if matches and 2 * len(matches.names) >= len(images) else None


def find_folders(root: Path, targets: Collection[str]) -> tuple[Path, Path] | None:
    """Return the folders in ``root`` of images and of targets, if there is one each with a usual name.

    ``targets`` are the usual names of the latter, in lower case.
    """
    names = _folders_in(root)
    images = next((names[name] for name in IMAGE_FOLDERS if name in names), None)
    found = next((names[name] for name in targets if name in names), None)
    return (images, found) if images and found else None


def find_split_pairs(
    root: Path, folders: tuple[Path, Path] | None, targets: Collection[str]
) -> dict[str, tuple[Path, Path]]:
    """Return the folders of images and of targets of each split.

    Those of the splits are in the ``folders`` of images and of targets in ``root``, or beside each other and named like
    ``images_train`` and ``labels_train``. ``targets`` are the usual names of the latter, in lowercase.
    """
    if folders:
        images, found = map(split_folders, folders)
    else:
        groups = split_groups(inner_root(root))
        images = next((groups[name] for name in IMAGE_FOLDERS if name in groups), {})
        found = next((groups[name] for name in targets if name in groups), {})
        images = images or (groups.get("", {}) if found else {})
    return {split: (images[split], found[split]) for split in images if split in found}


def find_similar_folders(root: Path, targets: Collection[str]) -> dict[Path, Path]:
    """Return the folders in ``root`` with those of their targets, such as ``train`` with ``train_masks``.

    ``targets`` are the words for the latter, in lowercase. Of two folders, one of these words is enough.
    """
    names = _folders_in(root)
    folders: dict[Path, Path] = {}
    for name, path in names.items():
        base = re.sub(r"[_-]?(image|img)s?\Z", "", name)
        forms = [f"{base}{sign}{word}" for word in targets for sign in ("_", "", "-")]
        siblings = [names[form] for form in forms if base and form != name and form in names]
        if siblings:
            folders[path] = siblings[0]
    if not folders and len(names) == 2:
        words = {name: any(word in re.split(r"[^a-z]+", name) for word in targets) for name in names}
        one, other = sorted(names, key=words.__getitem__)
        if words[other] and not words[one]:
            folders[names[one]] = names[other]
    return folders


def _folders_in(root: Path) -> dict[str, Path]:
    """Return the folders in ``root`` by their names in lowercase; none if it cannot be read."""
    with contextlib.suppress(OSError):
        entries = visible_entries(str(root))
        return {entry.name.lower(): Path(entry.path) for entry in entries if entry.is_dir()}
    return {}


def _by_stem(names: Collection[str], repeated: list[str]) -> dict[str, str]:
    stems: dict[str, str] = {}
    for name in sorted(names, key=os.fsencode):
        stem = os.path.splitext(name)[0]
        if stem in stems:
            repeated.append(name)
        else:
            stems[stem] = name
    return stems
