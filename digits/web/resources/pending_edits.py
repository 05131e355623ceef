"""The pending changes of a dataset's records, as programs see them."""

from __future__ import annotations

from msgspec import Struct

from digits.kinds.versions.pending_edits import Change


class PendingEdits(Struct):
    """The ``changes`` by record, such as ``train/7``, and in ``words``, such as *3 images excluded*."""

    changes: dict[str, Change]
    words: str
