"""The fork server: imports TensorFlow and the tasks' programs once, and forks a process for each task.

A forked task starts with everything imported, in about 30 ms instead of seconds. Forking is safe only while this
process has a single thread and has never run an operation; `main` checks the first, and nothing in this module does
the second.

Requests and answers are JSON lines on standard input and output:

    {"folder": task folder, "environment": {name: value}}  →  {"pid": of the supervisor}

The server exits at the end of standard input; tasks keep running.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digits.core.files import remove_tree
from digits.worker import run

SUPERVISOR = str(Path(__file__).resolve().parents[1] / "runtime" / "supervisor.py")


def main() -> int:
    """Serve until standard input ends. Returns 2 when this process cannot be forked safely."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # Output of libraries must not be mistaken for an answer.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    run.import_programs()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        _answer(answers, {"error": f"{threads} threads after importing TensorFlow"})
        return 2
    gc.collect()
    gc.freeze()  # Keeps the garbage collector of the children from copying shared pages.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Supervisors are reaped by the kernel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Blocked until the supervisor can handle it; supervisors and tasks unblock it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = os.getppid()
    _answer(answers, {"ready": True})
    for line in requests:
        if os.getppid() != server:
            break  # The server was killed after this request; another one may start the task.
        request = json.loads(line)
        _answer(answers, {"pid": _fork(request, (requests.fileno(), answers.fileno()))})
    return 0


def _fork(request: dict[str, Any], private: tuple[int, ...]) -> int:
    """Fork the supervisor, which forks the task and then becomes `digits.runtime.supervisor`."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        os.environ.update(request.get("environment", {}))
        reading, writing = os.pipe()
        task = os.fork()
        if task == 0:
            os.close(reading)
            _run_task(Path(request["folder"]), writing)
        os.close(writing)
        os.set_inheritable(reading, True)
        adopt = [request["folder"], "--adopt", str(task), "--pipe", str(reading)]
        os.execv(sys.executable, [sys.executable, "-I", "-S", SUPERVISOR, *adopt])
    finally:
        os._exit(127)


def _run_task(folder: Path, output: int) -> None:
    code = 1
    try:
        from digits.runtime.supervisor import prepare_child

        prepare_child(output)
        run.keep_output_open()
        os.close(output)
        os.chdir(folder)
        with temporary_files(folder):
            code = run.run_task(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the task may have closed it
                stream.flush()
        os._exit(code)


@contextlib.contextmanager
def temporary_files(folder: Path) -> Iterator[None]:
    """Create temporary files in a subfolder of ``folder`` that is deleted with the task or, after SIGKILL, with the
    job.

    Libraries delete their temporary files when the interpreter exits, which never happens in a forked process.
    AutoGraph creates one for each function that it converts.
    """
    made = tempfile.mkdtemp(prefix="tmp-", dir=folder)
    try:
        tempfile.tempdir = os.environ["TMPDIR"] = made
        yield
    finally:
        remove_tree(Path(made), ignore_errors=True)


def _answer(stream: Any, body: dict[str, Any]) -> None:
    stream.write(json.dumps(body).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
