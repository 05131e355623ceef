"""The program of the check of a cluster, which runs on a node: reads and writes files, and imports TensorFlow.

The argument is a folder. Each answer is a file there, written once it is complete. `digits.runtime.executors.probe`
sends the text of this module along, because DIGITS may be missing on the node, which the check reports.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
from typing import Any


def main(folder: str) -> None:
    """Answer the question in ``folder``, then whether DIGITS and TensorFlow can be imported."""
    with open(f"{folder}/question") as file:
        _answer(folder, "files", text=file.read(), node=socket.gethostname(), at=time.time())
    try:
        importlib.import_module("digits.core.task")
        import tensorflow as tf

        gpus = len(tf.config.list_physical_devices("GPU"))
        _answer(folder, "tensorflow", version=tf.__version__, gpus=gpus)
    except BaseException as error:
        _answer(folder, "tensorflow", error=f"{type(error).__name__}: {error}")


def _answer(folder: str, name: str, **body: Any) -> None:
    with open(f"{folder}/{name}.tmp", "w") as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{folder}/{name}.tmp", f"{folder}/{name}")


if __name__ == "__main__":
    main(sys.argv[1])
