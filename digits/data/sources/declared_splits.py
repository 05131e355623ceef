"""Find the splits that the folders of a source declare, such as ``train``, ``valid`` and ``test``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.images.lists import visible_entries
from digits.data.sources.plan import listed, show

# Words that identify the files and folders of a split, in lower case.
SPLIT_NAMES = {
    "train": ("train", "training", "trn", "trainval", "train_val"),
    "val": (
        *("val", "valid", "validation", "validate", "validating", "dev", "devel", "development"),
        *("eval", "evaluation", "publictest"),
    ),
    # Kaggle has test1.zip.
    "test": ("test", "testing", "test1", "tst", "privatetest", "holdout"),
}
SPLIT_OF = {word: split for split, words in SPLIT_NAMES.items() for word in words}
# Words beside that of the split that say nothing more, in lower case.
_PLAIN = ("", "set", "data", "dataset", "split", "folder", "subset", "part", "samples")
_SEPARATORS = re.compile(r"[-_. ]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
PICTURES = ("", "images", "image", "imgs", "img", "photos", "pictures")
# The endings of texts about a set, in lower case.
TEXTS = (".txt", ".md", ".rst", ".pdf", ".html", ".yaml", ".yml", ".rtf")
MAX_LEVELS = 3
# Some sets append their year, as in COCO's train2017.
_YEAR = re.compile(r"[-_]?(?:19|20)\d\d\Z")


def split_named(name: str) -> str | None:
    """Return the split that ``name`` stands for in any case, as in ``Training`` or ``val2017``, or None."""
    return SPLIT_OF.get(_YEAR.sub("", name.strip().lower()))


def split_in(name: str) -> tuple[str, str] | None:
    """Return the split in ``name`` and what else it contains, in lower case, as in ``train_set`` or ``imagesVal``.

    The latter is empty if it says nothing. Return None if the name contains no split, or several.
    """
    if split := split_named(name):
        return split, ""
    text = _YEAR.sub("", _CAMEL_CASE.sub("_", name.strip())).lower()
    words = [word for word in _SEPARATORS.split(text) if word]
    splits = [SPLIT_OF[word] for word in words if word in SPLIT_OF]
    if len(set(splits)) == 1:
        rest = "".join(word for word in words if word not in SPLIT_OF and not word.isdecimal())
        return splits[0], "" if rest in _PLAIN else rest
    if splits:
        return None
    for word in sorted(SPLIT_OF, key=len, reverse=True):
        for rest in (text.removeprefix(word), text.removesuffix(word)):
            if rest != text:
                return SPLIT_OF[word], "" if rest in _PLAIN else rest
    return None


def affixed_splits(names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the ``names`` of each split by what they contain besides, as in ``train_a``, ``val_a``, and ``train_b``.

    Only those count that have names for training and for another split, such as all folders of ``train_images`` and
    ``test``.
    """
    found: dict[str, dict[str, list[str]]] = {}
    names = list(names)
    parts = {name: part for name in names if (part := split_in(name))}
    for name, (split, affix) in parts.items():
        found.setdefault(affix, {}).setdefault(split, []).append(name)
    declared = {affix: splits for affix, splits in found.items() if "train" in splits and len(splits) > 1}
    if not declared and len(parts) == len(names) and set(found) <= set(PICTURES):
        whole = {split: [name] for name, (split, _) in parts.items()}
        if len(whole) == len(names) > 1 and "train" in whole:
            return {"": whole}
    return declared


def split_of(path: Path) -> str:
    """Return the split that the name of a file or of its folder contains, by default train."""
    splits = map(split_named, [*re.split(r"[-_.]", path.name), path.parent.name])
    return next(filter(None, splits), "train")


def declares_splits(names: Iterable[str]) -> bool:
    """Return whether some of ``names`` stand for the training split and another one."""
    return bool(affixed_splits(names))


def split_folders(root: Path | str) -> dict[str, Path]:
    """Return the folders in ``root`` that are named after a split, if one is for training and another is not.

    Their names can contain more, if it is the same for all: see `affixed_splits`. If several have the same meaning, the
    first one in the order of `SPLIT_NAMES` counts. See `inner_root` for folders in folders. Empty if ``root`` cannot be
    read.
    """
    return named_splits(inner_root(root))


def named_splits(folder: Path | str) -> dict[str, Path]:
    """Return the folders of splits directly in ``folder``, like `split_folders`."""
    groups = split_groups(folder)
    return groups.get("") or (next(iter(groups.values())) if len(groups) == 1 else {})


def split_groups(folder: Path | str) -> dict[str, dict[str, Path]]:
    """Return the folders of splits in ``folder`` by what their names contain besides, as in ``images_train``."""
    folders = {entry.name: Path(entry.path) for entry in _entries(folder) if entry.is_dir()}
    return {
        affix: {split: folders[min(splits[split], key=_rank)] for split in SPLITS if split in splits}
        for affix, splits in affixed_splits(sorted(folders)).items()
    }


def roots_of_training(path: Path) -> list[Path]:
    """Return the folders that may contain all splits if ``path``, or the folder around it, is named for training."""
    for folder in (path, path.parent):
        if (part := split_in(folder.name)) and part[0] == "train":
            return [folder.parent, folder.parent.parent]
    return []


def inner_root(root: Path | str) -> Path:
    """Return the folder to search in the place of ``root``.

    It is ``root`` unless that contains nothing but one other folder and texts, at most `MAX_LEVELS` times, and the last
    one contains several folders: so are many unpacked archives, such as ``VOCdevkit/VOC2012``.
    """
    inner = Path(root)
    for _ in range(MAX_LEVELS):
        inner = only_folder(inner) or inner
    folders = [entry for entry in _entries(inner) if entry.is_dir()]
    return inner if len(folders) > 1 else Path(root)


def describe_splits(paths: Mapping[str, Path], named: Collection[Path] = ()) -> str:
    """Return a note about the declared splits at ``paths``, which are used, and about further folders of splits.

    Those that are ``named`` elsewhere are left out.
    """
    root = os.path.commonpath(paths.values())
    used = {split: os.path.relpath(path, root) for split, path in paths.items()}
    uses = [f"{show(path)} for {SPLIT_TITLES[split].lower()}" for split, path in used.items()]
    folders = {path.split(os.sep)[0] for path in used.values()} | {path.name for path in named}
    groups = affixed_splits(entry.name for entry in _entries(root) if entry.is_dir()).values()
    names = [[name for each in group.values() for name in each] for group in groups]
    others = [name for own in names if not folders.isdisjoint(own) for name in own if name not in folders]
    note = f"The splits of the source are used: {', '.join(uses)}."
    return f"{note} Not used: {listed(sorted(others))}." if others else note


def _rank(name: str) -> tuple[int, str]:
    words = list(SPLIT_OF)
    return (words.index(name.lower()) if name.lower() in SPLIT_OF else len(words), name)


def only_folder(root: Path | str) -> Path | None:
    """Return the folder in ``root`` if there is one and nothing else but texts, as in many archives."""
    entries = _entries(root)
    folders = [Path(entry.path) for entry in entries if entry.is_dir()]
    others = (entry.name.lower() for entry in entries if not entry.is_dir())
    return folders[0] if len(folders) == 1 and all(name.endswith(TEXTS) for name in others) else None


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        return visible_entries(str(folder))
    except OSError:
        return []
