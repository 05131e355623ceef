"""Run numbered pieces of work in forked processes and stream their messages.

Forked processes share the input (such as a list of a million names) without copying it.

`concurrent.futures.ProcessPoolExecutor` detects dead workers too, but it reports neither
their signal nor their exit code, cannot kill its workers before Python 3.14, and leaves
them running when the parent is killed. It also has no messages within a piece of work,
and no final call in each worker to collect a sum.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

QUIET_SECONDS = 0.25

Send = Callable[[Any], None]

# glibc returns freed blocks above a threshold to the system and requests them again,
# page by page. Freeing one large block raises the threshold permanently, which makes
# decoding and encoding many small images several times faster.
_LARGE_BLOCK_BYTES = 30 << 20


class ProcessDied(Exception):
    """A process ended before its work was done. ``code`` is its exit code, or negative for a signal."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"a process ended early ({self.reason})")

    @property
    def reason(self) -> str:
        """The cause, such as ``signal 9, SIGKILL`` or ``exit code 3``."""
        if self.code >= 0:
            return f"exit code {self.code}"
        return f"signal {-self.code}, {signal.Signals(-self.code).name}"


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run(
    work: Callable[[int, Send], None],
    pieces: int,
    *,
    processes: int | None = None,
    finish: Callable[[Send], None] | None = None,
) -> Generator[Any, None, None]:
    """Call ``work(piece, send)`` for each piece in forked processes; yield the messages they send.

    Yields None after `QUIET_SECONDS` without messages, so that the caller can report
    progress. Pieces are assigned in order, to the next free process. ``finish(send)`` runs
    once in each process when no piece is left. Exceptions of a process are raised here,
    and ProcessDied if a process was killed. Close the iterator to stop early. No process
    is left when it ends, regardless of the reason.
    """
    pool = _Pool(work, finish)
    try:
        for _ in range(max(1, min(processes or available_cores(), pieces))):
            pool.start_process()
        yield from pool.messages(deque(range(pieces)))
    finally:
        pool.close()


class _Idle:
    """A process is ready for the next piece."""


class _Finished:
    """A process has no more work and exits."""


class _Raised:
    """The work raised ``error``; ``trace`` is the traceback as text."""

    def __init__(self, error: BaseException, trace: str) -> None:
        self.error = error
        self.trace = trace


class _Pool:
    """Owns the processes and the connections to them."""

    def __init__(self, work: Callable[[int, Send], None], finish: Callable[[Send], None] | None) -> None:
        self._work = work
        self._finish = finish
        self._processes: dict[Connection, BaseProcess] = {}

    def start_process(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._serve, args=(ours, theirs), daemon=True)
        # A stop signal between the fork and the next line would leave a child that we do not know.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        try:
            process.start()
            self._processes[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def messages(self, pieces: deque[int]) -> Iterator[Any]:
        working = set(self._processes)
        for connection in working:
            self._assign(connection, pieces)
        while working:
            ready = wait(list(working), timeout=QUIET_SECONDS)
            if not ready:
                yield None
            for connection in [connection for connection in working if connection in ready]:
                message = self._receive(connection)
                if isinstance(message, _Finished):
                    working.discard(connection)
                elif isinstance(message, _Idle):
                    self._assign(connection, pieces)
                else:
                    yield message

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for connection, process in self._processes.items():
            process.join()
            connection.close()
        self._processes.clear()

    def _assign(self, connection: Connection, pieces: deque[int]) -> None:
        try:
            connection.send(pieces.popleft() if pieces else None)
        except BrokenPipeError:
            pass  # the end of the process is detected when we wait for its messages

    def _receive(self, connection: Connection) -> Any:
        try:
            message = connection.recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[connection]
            process.join()
            raise ProcessDied(process.exitcode or 0) from None
        if isinstance(message, _Raised):
            message.error.add_note(message.trace)
            raise message.error
        return message

    def _serve(self, ours: Connection, theirs: Connection) -> None:
        """Run in the process: work on pieces until there are none."""
        # Do not inherit the parent's signal handlers and wakeup descriptor.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        # Close all copies of the parent's ends, so that the process detects when the parent is gone.
        for connection in (ours, *self._processes):
            connection.close()
        np.empty(_LARGE_BLOCK_BYTES, np.uint8)
        # Collections would visit the objects of the parent, which copies their pages.
        gc.freeze()
        try:
            while (piece := theirs.recv()) is not None:
                self._work(piece, theirs.send)
                theirs.send(_Idle())
            if self._finish is not None:
                self._finish(theirs.send)
            theirs.send(_Finished())
        except BaseException as error:
            try:
                theirs.send(_portable(error))
            except OSError:
                os._exit(1)  # the parent is gone
            sys.exit(1)


def _portable(error: BaseException) -> _Raised:
    raised = _Raised(error, traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(raised))  # noqa: S301 - pickled in this line
    except Exception:  # pickling an exception may fail in any way
        return _Raised(RuntimeError(f"{type(error).__name__}: {error}"), raised.trace)
    return raised
