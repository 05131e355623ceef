"""Folders of images and of target images, such as masks, with matching names."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.affixes import find_pairs, is_of_another_task
from digits.data.image_lists import visible_entries
from digits.data.sources import ImageSource, SplitPlan, count_of, listed, show

# In lowercase.
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "inputs", "input", "jpegimages", "leftimg8bit")

# Suffixes that tools append to the name of an image to name its target.
_SUFFIX = re.compile(r"[_-](mask|label|seg|segmentation|gt|target)s?\Z", re.IGNORECASE)
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
    """Pair files whose paths are the same except for the ending, or for a suffix such as ``_mask`` of the target.

    If these are few, names may also differ by another prefix or suffix, the same for all files, or by their folders.
    """
    repeated: list[str] = []
    image_of = _by_stem(images, repeated)
    target_of = _by_stem(targets, repeated)
    paired = {stem: stem for stem in image_of if stem in target_of}
    for stem in target_of:
        plain = _SUFFIX.sub("", stem)
        if plain in image_of and stem not in image_of:
            paired.setdefault(plain, stem)
    note = ""
    unclear: list[str] = []
    if 2 * len(paired) < min(len(image_of), len(target_of)):
        pairs, unclear = _match_loosely(list(image_of), list(target_of))
        if len(pairs) > len(paired):
            paired = pairs
            image, target = min(paired.items())
            others = "" if len(pairs) == len(target_of) else " Other names are not used."
            note = f"Names are paired as {show(image_of[image])} and {show(target_of[target])}.{others}"
    used = set(paired.values())
    if note:
        used.update(stem for stem in target_of if is_of_another_task(os.path.basename(stem)))
    return Matches(
        [(name, target_of[paired[stem]]) for stem, name in image_of.items() if stem in paired],
        [name for stem, name in image_of.items() if stem not in paired],
        [name for stem, name in target_of.items() if stem not in used],
        repeated,
        note,
        [] if paired else [target_of[stem] for stem in unclear],
    )


def _match_loosely(images: list[str], targets: list[str]) -> tuple[dict[str, str], list[str]]:
    """Pair paths without endings by `find_pairs`, or else their last parts, if these are unique."""
    pairs, unclear = find_pairs(images, targets)
    if pairs or unclear:
        return pairs, unclear
    of_images, of_targets = ({_plain(stem): stem for stem in stems} for stems in (images, targets))
    if len(of_images) < len(images) or len(of_targets) < len(targets):
        return {}, []
    same = {name: name for name in of_images if name in of_targets}
    if not same:
        same, unclear = find_pairs(list(of_images), list(of_targets))
    return (
        {of_images[name]: of_targets[target] for name, target in same.items()},
        [of_targets[name] for name in unclear],
    )


def _plain(stem: str) -> str:
    """Return the last part of a path for comparisons: in lowercase, and in one form of Unicode."""
    return unicodedata.normalize("NFC", os.path.basename(stem)).casefold()


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
