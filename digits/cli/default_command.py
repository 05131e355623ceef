"""The command that may be omitted: ``digits -p 8080`` is ``digits serve -p 8080``. Imports nothing."""

from __future__ import annotations

from collections.abc import Sequence


def is_serving(words: Sequence[str]) -> bool:
    """Return whether ``words`` call ``serve``, which may be omitted."""
    return not words or words[0] == "serve" or _is_option_of_serve(words[0])


def _is_option_of_serve(word: str) -> bool:
    return word.startswith("-") and word not in ("-h", "--help", "--version")
