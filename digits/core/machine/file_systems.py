"""The file systems of folders: whether another machine stores their files."""

from __future__ import annotations

import os
from pathlib import Path

_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda fuse glusterfs gpfs lustre nfs nfs4 orangefs panfs pvfs2 smb3 virtiofs wekafs".split()
)
# Container images, which are local; other file systems in user space are usually remote, such as fuse.sshfs.
_LOCAL_FUSE = "fuse.fuse-overlayfs"


def type_of(path: Path) -> str:
    """Return the type of the file system that contains ``path``, such as nfs4; empty if it is unknown."""
    try:
        device = os.stat(path).st_dev
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts:
        # The number of optional fields before the dash varies.
        before, _, after = mount.partition(" - ")
        if before.split()[2:3] == [number] and after:
            return after.split()[0]
    return ""


def is_network(path: Path) -> bool:
    """Return whether ``path`` is on a network file system, judging by the type of the file system."""
    kind = type_of(path)
    return kind in _NETWORK or (kind.startswith("fuse.") and kind != _LOCAL_FUSE)
