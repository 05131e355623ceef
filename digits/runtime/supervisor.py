"""The small process that supervises a task's process, or its gang of processes, and outlives the server.

It owns the task's output and all processes the task starts: those left when the
task ends are killed, and ``exit.json`` records how the task ended. It is a
standalone program that requires only the standard library:

    python -I -S supervisor.py FOLDER -- PROGRAM ARGUMENT…       start a program and supervise it, once per rank
    python -I -S supervisor.py FOLDER --adopt PID --pipe FD      supervise a child forked before exec

SIGTERM asks it to stop the task: the task gets SIGTERM, and SIGKILL after
`GRACE_SECONDS`, or later if it wrote a longer time to `STOP_SECONDS_FILE`.
The same happens when the owner ends: the process that `OWNER_VARIABLE` names, if any.

When a rank of a gang fails, the others are stopped, and the record is that of the rank that failed first. On a
cluster, each rank has a supervisor of its own, on the node that `NODE_VARIABLE` numbers: then the record is
``exit.NODE.json``, which whoever started them combines, the output of all nodes but the first is ``rank-NODE.log``, and
the exit code is 1 if the rank failed by itself.

It works on a full disk as well: space for ``exit.json`` is reserved before the task starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import resource
import select
import signal
import sys
import time

HEAD_BYTES = 4 * 1024 * 1024
SEGMENT_BYTES = 2 * 1024 * 1024
KEPT_SEGMENTS = 2
GRACE_SECONDS = 5.0
# The same as in `digits.core.task`. Limited, because the task may write anything.
STOP_SECONDS_FILE = "stop_seconds"
MAX_GRACE_SECONDS = 600.0
MAX_LINE_BYTES = 64 * 1024
OUTPUT_FILE = "output.log"
EXIT_FILE = "exit.json"
# In the name of a file: one disk block of reserved space, renamed once the record is written.
RESERVED = ".reserved"
RESERVED_BYTES = 4096
# The same as in `digits.core.task`: the number of the run, which its exit record contains.
RUN_VARIABLE = "DIGITS_RUN"
# The process that the task must not outlive, as written by `owner_id`; empty for none.
OWNER_VARIABLE = "DIGITS_OWNER"
# The same as in `digits.core.task`: the rank of a process, and the number of processes, which is set only for a gang.
RANK_VARIABLE = "DIGITS_RANK"
WORKERS_VARIABLE = "DIGITS_WORKERS"
_GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
# The number of this node, from 0, of a run on a cluster; unset otherwise.
NODE_VARIABLE = "DIGITS_NODE"
# The same as in `digits.core.task`: set if the run was interrupted and starts again, which continues its output.
RESTARTED_VARIABLE = "DIGITS_RESTARTED"
# Interval for checking that the owner is running.
OWNER_SECONDS = 0.25
# Files of the server and its tasks are readable only by their user.
PRIVATE_UMASK = 0o077

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Output:
    """The task's output on disk: its beginning and its end.

    ``output.log`` holds the first 4 MiB; the rest goes to segments of 2 MiB
    named by their starting offset, ``output.<offset>.log``, of which the last
    ones are kept. So excessive output cannot fill the disk, and its end remains available.

    The task may change these files, and the disk may be full. Neither ends the task, because the
    output is informational only. If the current file is removed, a new segment is started.

    ``name`` replaces ``output.log``. With ``continues``, new output follows that of an earlier run in a segment of its
    own; otherwise it replaces it.
    """

    def __init__(self, folder: str, name: str = OUTPUT_FILE, *, continues: bool = False) -> None:
        self.is_disk_full = False
        self._folder = folder
        self._stem = name.removesuffix(".log")
        self._name = name
        self._offset = 0
        self._segments: list[str] = []
        self._room = HEAD_BYTES
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._follow(self._sizes(), continues)
        self.write(b"", create=True)

    def _follow(self, earlier: dict[int, int], continues: bool) -> None:
        """Remove or continue the segments of an ``earlier`` run, given as sizes by offset."""
        names = [self._segment(offset) for offset in sorted(earlier) if offset]
        if not continues:
            for name in names:
                self._remove(name)
        elif any(earlier.values()):
            self._segments = names
            self._offset = max(offset + size for offset, size in earlier.items())
            self._next_segment()

    def _sizes(self) -> dict[int, int]:
        pattern = re.compile(rf"{re.escape(self._stem)}(?:\.(\d+))?\.log")
        found = ((name, pattern.fullmatch(name)) for name in os.listdir(self._folder))
        return {
            int(match[1] or 0): os.lstat(os.path.join(self._folder, name)).st_size
            for name, match in found
            if match
        }

    def _segment(self, offset: int) -> str:
        return f"{self._stem}.{offset}.log" if offset else f"{self._stem}.log"

    def write(self, data: bytes, *, create: bool = False) -> None:
        while data or create:
            if not self._room or self._is_removed():
                self._next_segment()
            piece = data[: self._room]
            try:
                self._write_piece(piece)
            except OSError as error:
                self.is_disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            else:
                self.is_disk_full = False
            self._room -= len(piece)
            self._offset += len(piece)
            data = data[len(piece) :]
            create = False

    def _write_piece(self, piece: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = self._open()
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]

    def _is_removed(self) -> bool:
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0

    def _next_segment(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._name = self._segment(self._offset)
        self._room = SEGMENT_BYTES
        if self._offset:
            self._segments.append(self._name)
        if len(self._segments) > KEPT_SEGMENTS:
            self._remove(self._segments.pop(0))

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, name))

    def _open(self) -> int:
        path = os.path.join(self._folder, self._name)
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
            self._remove(self._name)
        return os.open(path, _NEW_FILE, 0o600)


def reserve_exit(folder: str, name: str = EXIT_FILE) -> int:
    """Reserve disk space for ``exit.json`` or ``name`` in ``folder``; return the open file. Raises OSError."""
    path = os.path.join(folder, name + RESERVED)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        missing = RESERVED_BYTES - os.fstat(descriptor).st_size
        if missing > 0:
            if os.write(descriptor, b" " * missing) < missing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return descriptor


class Supervisor:
    """Waits for its children, one for each rank, saves their output, and kills leftover processes.

    ``children`` maps their process ids to the pipes with their output, in the order of the ranks. On a cluster, the
    only child is the rank with the number of the ``node``.
    """

    def __init__(self, folder: str, children: dict[int, int], node: int | None = None) -> None:
        self._folder = folder
        self._exit_file = EXIT_FILE if node is None else f"exit.{node}.json"
        self._ranks = list(children)
        self._running = set(children)
        self._pipes = list(children.values())
        self._line_starts: dict[int, bytes] = {}
        self._failed: tuple[int, int] | None = None  # rank and status of the first one
        self._max_memory = 0
        try:
            self._reserved: int | None = reserve_exit(folder, self._exit_file)
        except OSError:
            self._reserved = None
        self._output = Output(
            folder, f"rank-{node}.log" if node else OUTPUT_FILE, continues=RESTARTED_VARIABLE in os.environ
        )
        self._owner = os.environ.get(OWNER_VARIABLE, "")
        self._stop_at: float | None = None
        self._stopped = False
        self._oom_before = _oom_kills()
        self._began = time.monotonic()

    def run(self) -> int:
        """Supervise the children until they have ended; return 1 if one failed without being stopped, else 0."""
        wake_up, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
        readable = [wake_up, *self._pipes]
        while True:
            self._reap()
            if not self._running:
                break
            ready, _, _ = select.select(readable, [], [], self._patience())
            if wake_up in ready:
                os.read(wake_up, 4096)
            for pipe in self._pipes:
                if pipe in ready and not self._copy_output(pipe):
                    readable.remove(pipe)  # The process closed its output and continues.
            if self._owner and self._stop_at is None and not _is_running(self._owner):
                self._ask_to_stop()
            self._insist()
        orphans = self._kill_descendants()
        for pipe in self._pipes:
            while self._copy_output(pipe):
                pass
            self._output.write(self._line_starts.pop(pipe, b""))  # an orphan keeps the pipe open
        self._write_exit(orphans)
        return int(self._failed is not None and not self._stopped)

    def _ask_to_stop(self, *_: object) -> None:
        if self._stop_at is None:
            self._stopped = True
            self._stop_children()

    def _stop_children(self) -> None:
        self._stop_at = time.monotonic() + grace_seconds(self._folder)
        for child in self._running:
            _signal(child, signal.SIGTERM)
            _signal(child, signal.SIGCONT)

    def _patience(self) -> float | None:
        if self._stop_at is None:
            return OWNER_SECONDS if self._owner else None
        return max(0.05, self._stop_at - time.monotonic())

    def _insist(self) -> None:
        if self._stop_at is not None and time.monotonic() >= self._stop_at:
            for child in self._running:
                _signal(child, signal.SIGKILL)

    def _copy_output(self, pipe: int) -> bool:
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            # No data at the moment, or, at the end, no more data because all writers are dead.
            return select.select([pipe], [], [], 0)[0] != []
        self._output.write(self._whole_lines(pipe, data) if len(self._ranks) > 1 else data)
        return bool(data)

    def _whole_lines(self, pipe: int, data: bytes) -> bytes:
        """Return the complete lines in the output of a rank, so that the ranks do not write into each other's lines.

        A line without an end is returned when it is too long, and at the end of the output.
        """
        text = self._line_starts.pop(pipe, b"") + data
        end = text.rfind(b"\n") + 1
        if not data or len(text) - end > MAX_LINE_BYTES:
            return text
        self._line_starts[pipe] = text[end:]
        return text[:end]

    def _reap(self) -> None:
        """Collect ended processes. The first rank that fails ends all others."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._running:
                continue
            self._running.remove(pid)
            self._max_memory = max(self._max_memory, usage.ru_maxrss * 1024)
            if status and self._failed is None:
                self._failed = self._ranks.index(pid), status
                if self._stop_at is None:
                    self._stop_children()

    def _kill_descendants(self) -> int:
        killed: set[int] = set()
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            alive = _children_of(os.getpid())
            for pid in alive:
                _signal(pid, signal.SIGKILL)
                killed.add(pid)
            self._reap()
            if not alive:
                break
            time.sleep(0.01)
        return len(killed)

    def _write_exit(self, orphans: int) -> None:
        rank, status = self._failed or (None, 0)
        signaled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        killed_by_kernel = (
            signaled == signal.SIGKILL and not self._stopped and _oom_kills() > self._oom_before
        )
        body = {
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": signaled,
            "rank": rank if len(self._ranks) > 1 else None,
            "stopped": self._stopped,
            "out_of_memory": killed_by_kernel,
            "disk_full": self._output.is_disk_full,
            "max_memory_bytes": self._max_memory,
            "seconds": round(time.monotonic() - self._began, 3),
            "orphans_killed": orphans,
            "at": time.time(),
            "run": int(os.environ.get(RUN_VARIABLE, "1")),
        }
        data = json.dumps(body).encode() + b"\n"
        try:
            self._write_reserved(data)
        except OSError:
            self._write_file(data)  # the reserved file was removed

    def _write_reserved(self, data: bytes) -> None:
        path = os.path.join(self._folder, self._exit_file + RESERVED)
        if self._reserved is None or not os.path.samestat(os.fstat(self._reserved), os.lstat(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        # JSON allows whitespace around a value.
        os.pwrite(self._reserved, data.rjust(RESERVED_BYTES), 0)
        os.fsync(self._reserved)
        os.replace(path, os.path.join(self._folder, self._exit_file))

    def _write_file(self, data: bytes) -> None:
        path = os.path.join(self._folder, self._exit_file)
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def grace_seconds(folder: str) -> float:
    """Return the time that the task in ``folder`` gets to stop by itself."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(os.path.join(folder, STOP_SECONDS_FILE), flags)
    except OSError:
        return GRACE_SECONDS
    try:
        needed = float(os.read(descriptor, 32))
    except (OSError, ValueError):
        return GRACE_SECONDS
    finally:
        os.close(descriptor)
    # The task ends itself first. Written so that NaN means the usual time.
    return min(needed + 1, MAX_GRACE_SECONDS) if needed + 1 > GRACE_SECONDS else GRACE_SECONDS


def prepare_child(pipe: int) -> None:
    """Turn this freshly forked process into the task's: its group, output, limits and death.

    ``pipe`` is the writing end that becomes standard output and error.
    """
    os.setpgid(0, 0)  # Stay in the supervisor's session, which identifies the task's processes.
    os.umask(PRIVATE_UMASK)
    end_with_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        # If memory runs out, the kernel should kill the task rather than the server.
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        os.nice(5)
    except OSError:
        pass


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def owner_id(pid: int) -> str:
    """Identifies the process ``pid`` by its id and start time; empty if it is not running."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in (b"Z", b"X") else f"{pid}:{int(fields[19])}"


def _is_running(owner: str) -> bool:
    try:
        return owner_id(int(owner.partition(":")[0])) == owner
    except (OSError, ValueError, IndexError):
        return True  # unknown, for example with too many open files


def _start(folder: str, arguments: list[str], rank: int, workers: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            prepare_child(writing)
            os.close(writing)
            os.chdir(folder)
            if workers > 1:
                os.environ.update(_rank_environment(rank, workers))
            os.execv(arguments[0], arguments)
        except OSError as error:
            os.write(2, f"{arguments[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    os.close(writing)
    return child, reading


def _rank_environment(rank: int, workers: int) -> dict[str, str]:
    """Return the variables of one rank of a gang, which gets an equal part of the GPUs of this machine."""
    if NODE_VARIABLE in os.environ:
        return {RANK_VARIABLE: str(rank)}
    gpus = list(filter(None, os.environ.get(_GPUS_VARIABLE, "").split(",")))
    each = len(gpus) // workers
    return {RANK_VARIABLE: str(rank), _GPUS_VARIABLE: ",".join(gpus[rank * each : (rank + 1) * each])}


def contents_of_all(file: str) -> list[tuple[int, bytes]]:
    """Return every readable process with its ``file``, words that end with NUL: ``cmdline`` or ``environ``."""
    contents = []
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/{file}", "rb") as opened:
                contents.append((pid, opened.read()))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return contents


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _children_of(parent: int) -> list[int]:
    return [pid for pid in _processes() if _parent_of(pid) == parent]


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _oom_kills() -> int:
    try:
        with open("/proc/vmstat", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"oom_kill "))
    except (OSError, StopIteration, ValueError):
        return 0


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Supervise the task that the arguments describe; return the exit code."""
    folder, mode, *rest = arguments
    os.umask(PRIVATE_UMASK)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    node: int | None = None
    if mode == "--adopt":
        child, pipe = int(rest[0]), int(rest[2])
        os.set_inheritable(pipe, False)
        children = {child: pipe}
    else:
        workers = int(os.environ.get(WORKERS_VARIABLE, "1"))
        node = int(os.environ[NODE_VARIABLE]) if NODE_VARIABLE in os.environ else None
        ranks = range(workers) if node is None else [node]
        children = dict(_start(folder, rest, rank, workers) for rank in ranks)
    has_failed = Supervisor(folder, children, node).run()
    return has_failed if node is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
