"""Atomic writes, and folders of any shape: walked and deleted without recursion or following links."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core import files
from tests.deep_folder import deep_folder

# Counts how often a file is missing, until standard input ends.
WATCH = """
import os, select, sys
missing = 0
print("watching", flush=True)
while not select.select([0], [], [], 0)[0]:
    for _ in range(1000):
        missing += not os.path.exists(sys.argv[1])
print(missing)
"""


def write(folder: Path, number: int) -> Path:
    folder.mkdir()
    (folder / "number").write_text(str(number))
    (folder / f"only in {number}").touch()
    return folder


def test_a_published_folder_is_never_missing(tmp_path: Path) -> None:
    target = tmp_path / "results" / "result"
    files.publish_folder(write(tmp_path / "new", 0), target)
    command = [sys.executable, "-I", "-S", "-c", WATCH, str(target / "number")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout and watcher.stdout.readline() == "watching\n"
        for number in range(1, 101):
            files.publish_folder(write(tmp_path / "new", number), target)
        assert watcher.communicate()[0] == "0\n"
    assert sorted(path.name for path in target.iterdir()) == ["number", "only in 100"]
    assert (target / "number").read_text() == "100"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_folder_is_published_without_an_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    for number in range(3):
        files.publish_folder(write(tmp_path / "new", number), tmp_path / "result")
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["number", "only in 2"]
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_folder_that_cannot_be_published_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        files.publish_folder(write(tmp_path / "new", 1), tmp_path / "file" / "result")
    assert (tmp_path / "new" / "number").read_text() == "1"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Permit only a few more open files than there are."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_descriptors")
def test_a_folder_of_any_depth_and_width_is_deleted(tmp_path: Path) -> None:
    with deep_folder(tmp_path / "folder") as folder:
        for number in range(20):
            (folder / f"{number}" / "inner").mkdir(parents=True)
        files.remove_tree(folder)
        assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("few_descriptors")
def test_a_folder_of_any_depth_is_walked(tmp_path: Path) -> None:
    with deep_folder(tmp_path / "folder", "f") as folder:
        (folder / ".hidden").mkdir()
        (folder / ".hidden" / "file").write_bytes(b"123")
        (folder / "link").symlink_to(folder / ".hidden")
        assert files.tree_bytes(folder) == 3
        assert len(files.files_below(folder)) == 2
        assert sum(len(names) for _, names in files.walk(folder, skips_hidden=True)) == 1


def test_a_folder_is_walked_in_order(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a/1", "c", "a/z/1"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    walked = [(os.path.relpath(folder, tmp_path), names) for folder, names in files.walk(tmp_path)]
    assert walked == [(".", ["c"]), ("a", ["1"]), ("a/z", ["1"]), ("b", ["1", "2"])]


def test_links_are_deleted_and_not_followed(tmp_path: Path) -> None:
    kept, doomed = tmp_path / "kept", tmp_path / "doomed"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").touch()
    doomed.mkdir()
    (doomed / "folder").symlink_to(kept)
    (doomed / "dangling").symlink_to("nowhere")
    files.remove_tree(doomed)
    (tmp_path / "link").symlink_to(kept)
    files.remove_tree(tmp_path / "link")
    files.remove_tree(tmp_path / "missing")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "kept",
        "kept/inner",
        "kept/inner/file",
    ]


def test_folders_without_permissions_are_deleted(tmp_path: Path) -> None:
    """By an ordinary user: root needs no permissions."""
    user = os.getuid() or 65534
    doomed = tmp_path / "doomed"
    (doomed / "closed" / "inner").mkdir(parents=True)
    (doomed / "closed" / "inner" / "file").touch()
    for folder, mode in ((doomed / "closed" / "inner", 0o000), (doomed / "closed", 0o100), (doomed, 0o000)):
        folder.chmod(mode)
        os.chown(folder, user, -1)
    os.chown(tmp_path, user, -1)
    child = os.fork()
    if not child:
        try:
            os.chdir(tmp_path)  # the folders above may be closed to the user
            os.setuid(user)
            files.remove_tree(Path("doomed"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.listdir(tmp_path) == []


def test_what_can_be_deleted_is_deleted_before_a_problem_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "doomed" / name).mkdir(parents=True)
        (tmp_path / "doomed" / name / f"{name}.png").touch()
    unlink = os.unlink

    def unlink_others(path: str, **arguments: int) -> None:
        if path == "b.png":
            raise PermissionError(1, "not permitted", path)
        unlink(path, **arguments)

    monkeypatch.setattr(os, "unlink", unlink_others)
    with pytest.raises(PermissionError):
        files.remove_tree(tmp_path / "doomed")
    files.remove_tree(tmp_path / "doomed", ignore_errors=True)
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["doomed", "b", "b.png"]


def test_waiting_for_a_lock_is_reported_and_ends(tmp_path: Path) -> None:
    waits = []
    path = tmp_path / "lock"
    path.touch(0o644)  # of an earlier version
    with files.locked(path, 10.0, lambda: waits.append("first")):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(TimeoutError), files.locked(path, 0.05, lambda: waits.append("second")):
            pass
    assert waits == ["second"]
    with files.locked(path, 0.0):
        pass


def test_only_a_regular_file_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.exists(tmp_path / "file") and not files.exists(tmp_path / "missing")
    for name in ("link", "."):
        with pytest.raises(files.UnreadableFile):
            files.exists(tmp_path / name)
