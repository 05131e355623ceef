"""Entry point of the command ``digits``.

When serving, gevent patches the standard library before anything else is imported, so
this module imports the commands only when `main` runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; without a command, serve."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_serving(words):
        _patch_standard_library()
    from digits.cli.commands import digits

    digits.main(words, prog_name="digits")


def is_serving(words: Sequence[str]) -> bool:
    """Return whether ``words`` are a call of ``serve``, the command that may be omitted."""
    return not words or words[0] == "serve" or _is_option_of_serve(words[0])


def _is_option_of_serve(word: str) -> bool:
    return word.startswith("-") and word not in ("-h", "--help", "--version")


def _patch_standard_library() -> None:
    from gevent import monkey

    monkey.patch_all()
