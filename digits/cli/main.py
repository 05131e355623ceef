"""Entry point of the command ``digits``.

When serving, gevent patches the standard library before anything else is imported, so
this module imports the commands only when `main` runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from digits.cli.default_command import is_serving


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; without a command, serve."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_serving(words):
        patch_standard_library()
    from digits.cli.commands import digits

    digits.main(words, prog_name="digits")


def patch_standard_library() -> None:
    """Make the standard library cooperate with gevent's event loop, except for `os.close`.

    gevent would leave closing a folder or pipe to the event loop of the calling thread, but only that of the main
    thread runs.
    """
    import os

    from gevent import events, monkey

    # For each patched module, gevent would read the metadata of all installed packages twice, in search of its plugins.
    events.notify_and_call_entry_points = events.notify
    monkey.patch_all()
    os.close = monkey.get_original("os", "close")
