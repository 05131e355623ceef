"""Memory that trainings of this machine are about to use for decoded images.

The kernel reports memory as free until it is used. Trainings that start together would therefore all count on the
same memory, so each claims its share first. A claim is a socket whose name in the kernel's abstract namespace contains
the size: all processes can list it, whichever server started them, and it ends with its process, however that ends.
Other local users could make false claims; trainings would then only read their images from disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

NAMESPACE = "digits-memory"


class Claim:
    """A claim of ``size`` bytes by this process. It ends when the memory has been allocated, or with the process."""

    def __init__(self, size: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            self._socket.bind(f"\0{NAMESPACE}/{os.getpid()}/{id(self)}/{size}")

    def end(self) -> None:
        self._socket.close()


def claimed_by_others() -> int:
    """Return the bytes that other processes have claimed; 0 if that is unknown."""
    try:
        sockets = Path("/proc/net/unix").read_text(errors="replace")
    except OSError:
        return 0
    claims = re.findall(rf"@{re.escape(NAMESPACE)}/(\d+)/\d+/(\d{{1,18}})$", sockets, re.MULTILINE)
    return sum(int(size) for pid, size in claims if int(pid) != os.getpid())


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Let no other process list and make claims during the block."""
    with open(__file__, "rb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
