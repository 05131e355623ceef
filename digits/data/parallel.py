"""Numbered pieces of work spread over forked processes, with news from them as they come.

Made for work that is too large for threads and too plain for a framework. The
processes are forked, so what the work reads (lists of a million names) is shared
and never copied. A process that is killed is noticed at once.
"""

from __future__ import annotations

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

QUIET_SECONDS = 0.25

Send = Callable[[Any], None]

# glibc returns freed blocks above a threshold to the system and asks for them again,
# page by page. Freeing one large block raises the threshold for good, which makes
# coding many small images several times faster.
_LARGE_BLOCK_BYTES = 30 << 20


class ProcessDied(Exception):
    """A process ended without having finished its work; ``code`` is negative for a signal."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"a process ended early ({self.reason})")

    @property
    def reason(self) -> str:
        """Such as ``signal 9, SIGKILL`` or ``exit code 3``."""
        if self.code >= 0:
            return f"exit code {self.code}"
        return f"signal {-self.code}, {signal.Signals(-self.code).name}"


def available_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run(
    work: Callable[[int, Send], None],
    pieces: int,
    *,
    processes: int | None = None,
    finish: Callable[[Send], None] | None = None,
) -> Generator[Any, None, None]:
    """Call ``work(piece, send)`` for each piece in forked processes; yields what they send.

    Yields None after `QUIET_SECONDS` without news, so that the caller can look
    around. Pieces are handed out in order, to whoever is free. ``finish(send)`` runs
    once in each process when no piece is left. What a process raises is raised here;
    ProcessDied tells of one that was killed. Close the iterator to stop early: no
    process is left when it ends, whatever the reason.
    """
    crew = _Crew(work, finish)
    try:
        for _ in range(max(1, min(processes or available_cores(), pieces))):
            crew.hire()
        yield from crew.news(deque(range(pieces)))
    finally:
        crew.dismiss()


class _Done:
    """A process is free for the next piece."""


class _Left:
    """A process finished and ends."""


class _Raised:
    """The work of a process raised ``error``; ``trace`` is its traceback as text."""

    def __init__(self, error: BaseException, trace: str) -> None:
        self.error = error
        self.trace = trace


class _Crew:
    """The processes and the connections to them."""

    def __init__(self, work: Callable[[int, Send], None], finish: Callable[[Send], None] | None) -> None:
        self._work = work
        self._finish = finish
        self._members: dict[Connection, BaseProcess] = {}

    def hire(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._serve, args=(ours, theirs), daemon=True)
        # A stop signal between the fork and the next line would leave the child unknown to us.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        try:
            process.start()
            self._members[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def news(self, pieces: deque[int]) -> Iterator[Any]:
        working = set(self._members)
        for connection in working:
            self._hand_out(connection, pieces)
        while working:
            ready = wait(list(working), timeout=QUIET_SECONDS)
            if not ready:
                yield None
            for connection in [member for member in working if member in ready]:
                message = self._receive(connection)
                if isinstance(message, _Left):
                    working.discard(connection)
                elif isinstance(message, _Done):
                    self._hand_out(connection, pieces)
                else:
                    yield message

    def dismiss(self) -> None:
        for process in self._members.values():
            process.kill()
        for connection, process in self._members.items():
            process.join()
            connection.close()
        self._members.clear()

    def _hand_out(self, connection: Connection, pieces: deque[int]) -> None:
        try:
            connection.send(pieces.popleft() if pieces else None)
        except BrokenPipeError:
            pass  # its end is noticed when we wait for its news

    def _receive(self, connection: Connection) -> Any:
        try:
            message = connection.recv()
        except (EOFError, ConnectionResetError):
            process = self._members[connection]
            process.join()
            raise ProcessDied(process.exitcode or 0) from None
        if isinstance(message, _Raised):
            message.error.add_note(message.trace)
            raise message.error
        return message

    def _serve(self, ours: Connection, theirs: Connection) -> None:
        """What a process does: pieces until there are none."""
        # The parent's handlers, and the descriptor that wakes it, are not for its children.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        # With no other copy of the parent's ends, a child notices when the parent is gone.
        for connection in (ours, *self._members):
            connection.close()
        bytearray(_LARGE_BLOCK_BYTES)
        try:
            while (piece := theirs.recv()) is not None:
                self._work(piece, theirs.send)
                theirs.send(_Done())
            if self._finish is not None:
                self._finish(theirs.send)
            theirs.send(_Left())
        except (EOFError, BrokenPipeError):
            os._exit(1)  # the parent is gone
        except BaseException as error:
            theirs.send(_portable(error))
            sys.exit(1)


def _portable(error: BaseException) -> _Raised:
    raised = _Raised(error, traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(raised))  # noqa: S301 - what this process has just made
    except Exception:  # an exception may refuse in any way
        return _Raised(RuntimeError(f"{type(error).__name__}: {error}"), raised.trace)
    return raised
