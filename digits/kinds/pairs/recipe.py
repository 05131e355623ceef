"""The recipe of a dataset of pairs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from digits.core.recipe import Encoding
from digits.core.splits import Split
from digits.data.sources.shares import CreateWithShares

Pairs = Annotated[int, Meta(ge=2, le=10_000_000)]


class CreatePairs(CreateWithShares, kw_only=True):
    """Pair images: those that a CSV file lists, or random ones of a folder with a sub-folder per class.

    The paths in the CSV file ``source`` are relative to ``folder``. From a folder, ``pairs`` pairs are drawn, half of
    them of the same class. ``val_source`` and ``test_source`` are separate CSV files or folders, with paths relative to
    ``val_folder`` and ``test_folder``, by default ``folder``; without them, the pairs of a CSV file or the images of
    each class are divided. The records have twice as many channels as the images.
    """

    kind: str = "image-pairs"
    encoding: Encoding = "none"
    source: str
    folder: str
    val_source: str | None = None
    val_folder: str | None = None
    test_source: str | None = None
    test_folder: str | None = None
    pairs: Pairs = 10_000

    def sources(self) -> dict[Split, tuple[str, str]]:
        """Return the source of each split that has one, train first, and the folder that its paths are relative to."""
        folders: dict[Split, tuple[str | None, str | None]] = {
            "train": (self.source, self.folder),
            "val": (self.val_source, self.val_folder),
            "test": (self.test_source, self.test_folder),
        }
        return {
            split: (source, folder or self.folder) for split, (source, folder) in folders.items() if source
        }


Recipe = CreatePairs
