"""The program of a TensorBoard process, run as a script and never imported by the server.

It reads one line of JSON from standard input (``logdir`` and ``path_prefix``, which
other users of the machine must not see), prints the port it listens on,
and exits when standard input is closed, that is, when the server exits.

TensorBoard follows links and reads any file named in a log. Here it can access only the
regular files below the log folder.
"""

from __future__ import annotations

import io
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

PORT_LINE = "answers on port "


def main() -> None:
    # TensorBoard's own switch: it then works without TensorFlow, and starts in a tenth of the time.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    # A job's log must not refer to remote paths such as s3://.
    sys.modules["boto3"] = sys.modules["fsspec"] = None  # type: ignore[assignment]
    settings = json.loads(sys.stdin.readline())
    logdir = Path(settings["logdir"])
    # Links above the folder are trusted.
    logdir = Path(os.path.realpath(logdir.parent)) / logdir.name
    _see_only(logdir)
    port = _start(str(logdir), settings["path_prefix"])
    sys.stdout.write(f"{PORT_LINE}{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # Exit immediately: a normal exit would wait for TensorBoard's threads.
    os._exit(0)


def _see_only(folder: Path) -> None:
    """Restrict TensorBoard's file system to the regular files below ``folder``."""
    # At the end of the path, because some modules of the package are named like libraries.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from tensorboard.compat.tensorflow_stub import compat, errors
    from tensorboard.compat.tensorflow_stub.io import gfile

    from digits.core.files import UnreadableFile, exists, is_folder, open_plain

    def path_of(name: Any) -> Path:
        return Path(os.path.abspath(compat.as_str_any(name)))

    def open_file(name: Any) -> Any:
        try:
            return open_plain(path_of(name), below=folder)
        except UnreadableFile as error:
            raise errors.NotFoundError(None, None, f"Not Found: {error}") from error

    class PlainFiles(gfile.LocalFileSystem):  # type: ignore[misc]
        def exists(self, filename: Any) -> bool:
            try:
                return self.isdir(filename) or exists(path_of(filename), below=folder)
            except UnreadableFile:
                return False

        def read(
            self, filename: Any, binary_mode: bool = False, size: int | None = None, continue_from: Any = None
        ) -> tuple[Any, Any]:
            opened = open_file(filename)
            with opened if binary_mode else io.TextIOWrapper(opened, encoding="utf-8") as file:
                if continue_from is not None:
                    file.seek(continue_from["opaque_offset"])
                data = file.read(size)
                return data, {"opaque_offset": file.tell()}

        def _write(self, filename: Any, file_content: Any, mode: str) -> None:
            raise errors.PermissionDeniedError(None, None, "TensorBoard may not write here")

        def glob(self, filename: Any) -> list[str]:
            return [path for path in super().glob(filename) if self.exists(path)]

        def isdir(self, dirname: Any) -> bool:
            return is_folder(path_of(dirname), below=folder)

        def listdir(self, dirname: Any) -> list[str]:
            if not self.isdir(dirname):
                raise errors.NotFoundError(None, None, "Could not find directory")
            with os.scandir(path_of(dirname)) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                ]

        def makedirs(self, path: Any) -> None:
            raise errors.PermissionDeniedError(None, None, "TensorBoard may not write here")

        def stat(self, filename: Any) -> Any:
            with open_file(filename) as file:
                return gfile.StatData(os.fstat(file.fileno()).st_size)

    gfile.register_filesystem("", PlainFiles())


def _start(logdir: str, path_prefix: str) -> int:
    from urllib.parse import urlsplit

    from tensorboard import default, main_lib, program
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin

    main_lib.global_init()
    # Only TensorBoard's own plugins: installed ones may access the network. The projector is one of its own, but loaded
    # like an installed one.
    plugins: Any = [*default.get_static_plugins(), ProjectorPlugin]
    board = program.TensorBoard(plugins=plugins)
    board.configure(
        argv=["tensorboard"],
        logdir=logdir,
        host="127.0.0.1",
        port=0,
        path_prefix=path_prefix,
        # The fast loader is a separate server that opens another port and follows links.
        load_fast="false",
    )
    return urlsplit(board.launch()).port or 0


if __name__ == "__main__":
    main()
