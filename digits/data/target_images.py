"""Folders of images and of target images, such as masks, with matching names."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.image_lists import visible_entries
from digits.data.sources import ImageSource, SplitPlan, count_of, listed

# In lowercase.
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "inputs", "input", "jpegimages")

# Suffixes that tools append to the name of an image to name its target.
_SUFFIX = re.compile(r"[_-](mask|label|seg|segmentation|gt|target)s?\Z", re.IGNORECASE)


@dataclass
class TargetImageSplit(SplitPlan):
    """A split whose targets are images as well, from ``target_images``."""

    target_images: ImageSource = field(kw_only=True)


@dataclass(frozen=True)
class Matches:
    """Images with the target of the same name, as ``names``, and the unpaired files, all sorted."""

    names: list[tuple[str, str]]
    without_target: list[str]
    without_image: list[str]
    repeated: list[str]

    def remarks(self, target: str) -> list[str]:
        """Return warnings about the unpaired files; ``target`` is the word for a target image."""
        found = []
        if self.without_target:
            verb = "has" if len(self.without_target) == 1 else "have"
            images = count_of(len(self.without_target), "image")
            found.append(f"{images} {verb} no {target} and cannot be used: {listed(self.without_target)}.")
        if self.without_image:
            verb = "has" if len(self.without_image) == 1 else "have"
            targets = count_of(len(self.without_image), target)
            found.append(f"{targets} {verb} no image and will not be used: {listed(self.without_image)}.")
        if self.repeated:
            verb = "differs" if len(self.repeated) == 1 else "differ"
            files = count_of(len(self.repeated), "file")
            found.append(
                f"{files} ignored whose name {verb} from another only in its ending: {listed(self.repeated)}."
            )
        return found


def match(images: Collection[str], targets: Collection[str]) -> Matches:
    """Pair files whose paths are the same except for the ending, or for a suffix such as ``_mask`` of the target."""
    repeated: list[str] = []
    image_of = _by_stem(images, repeated)
    target_of = _by_stem(targets, repeated)
    for stem in [stem for stem in target_of if stem not in image_of]:
        plain = _SUFFIX.sub("", stem)
        if plain in image_of and plain not in target_of:
            target_of[plain] = target_of.pop(stem)
    return Matches(
        [(name, target_of[stem]) for stem, name in image_of.items() if stem in target_of],
        [name for stem, name in image_of.items() if stem not in target_of],
        [name for stem, name in target_of.items() if stem not in image_of],
        repeated,
    )


def find_folders(root: Path, targets: Collection[str]) -> tuple[Path, Path] | None:
    """Return the folders in ``root`` of images and of targets, if there is one each with a usual name.

    ``targets`` are the usual names of the latter, in lower case.
    """
    try:
        names = {
            entry.name.lower(): Path(entry.path) for entry in visible_entries(str(root)) if entry.is_dir()
        }
    except OSError:
        return None
    images = next((names[name] for name in IMAGE_FOLDERS if name in names), None)
    found = next((names[name] for name in targets if name in names), None)
    return (images, found) if images and found else None


def _by_stem(names: Collection[str], repeated: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(names, key=os.fsencode):
        stem = os.path.splitext(name)[0]
        if stem in found:
            repeated.append(name)
        else:
            found[stem] = name
    return found
