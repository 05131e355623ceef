"""The program of one TensorBoard: run as a file of its own, never imported by the server.

It reads one line of JSON from standard input (``logdir`` and ``path_prefix``, so
that no other user of the machine sees the prefix), prints the port it answers on,
and ends as soon as standard input does: when the server is gone, so is this.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

PORT_LINE = "answers on port "


def main() -> None:
    # TensorBoard's own switch: it then works without TensorFlow, and starts in a tenth of the time.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    settings = json.loads(sys.stdin.readline())
    port = _start(settings["logdir"], settings["path_prefix"])
    sys.stdout.write(f"{PORT_LINE}{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # At once: TensorBoard's threads would be waited for.
    os._exit(0)


def _start(logdir: str, path_prefix: str) -> int:
    from urllib.parse import urlsplit

    from tensorboard import default, main_lib, program

    main_lib.global_init()
    # The static plugins only: others that happen to be installed may reach out to the network.
    plugins: Any = default.get_static_plugins()
    board = program.TensorBoard(plugins=plugins)
    board.configure(
        argv=["tensorboard"],
        logdir=logdir,
        host="127.0.0.1",
        port=0,
        path_prefix=path_prefix,
        # The faster loader is a server of its own: on an open port, with the folder among its arguments.
        load_fast="false",
    )
    return urlsplit(board.launch()).port or 0


if __name__ == "__main__":
    main()
