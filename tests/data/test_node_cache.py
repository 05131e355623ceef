"""The folder with copies of shards: its limit, its contents, and what happens when it cannot be used."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from digits.core import file_systems
from digits.core.files import remove_tree
from digits.data import node_cache
from digits.data.node_cache import PART, BeingCopied, NodeCache, NoRoom

SIZES = (1, 3, 5, 8, 13)
CONTENTS = [bytes([number]) * size for number, size in enumerate(SIZES)]
DIGESTS = [hashlib.sha256(contents).hexdigest() for contents in CONTENTS]
LIMIT = 16
NUMBERS = st.integers(0, len(SIZES) - 1)


class Copies(RuleBasedStateMachine):
    """Several readers copy, open, close and damage files, and processes are killed while they copy."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.cache = NodeCache(self.place / "cache", LIMIT)
        self.source = self.place / "source"
        self.opened: list[tuple[int, BinaryIO]] = []
        self.recent: list[int] = []  # the numbers of the copies, the least recently used one first

    @rule(number=NUMBERS)
    def copy(self, number: int) -> None:
        expected = self.after_copy(number)
        self.source.write_bytes(CONTENTS[number])
        with open(self.source, "rb") as source:
            try:
                copy = self.cache.copy(source, DIGESTS[number], SIZES[number])
            except NoRoom:
                assert expected is None
                return
        assert copy and expected is not None
        self.recent = expected
        self.opened.append((number, copy))

    def after_copy(self, number: int) -> list[int] | None:
        """Return the copies that are left, in order, with the new one; None if there is no room for it."""
        if number in self.recent:
            return [*(other for other in self.recent if other != number), number]
        left, used = [*self.recent], {number for number, _ in self.opened}
        for other in self.recent:
            if sum(SIZES[each] for each in left) + SIZES[number] <= LIMIT:
                break
            if other not in used:
                left.remove(other)
        return [*left, number] if sum(SIZES[each] for each in left) + SIZES[number] <= LIMIT else None

    @rule(number=NUMBERS)
    def open(self, number: int) -> None:
        copy = self.cache.open(DIGESTS[number], SIZES[number])
        assert (copy is not None) == (number in self.recent)
        if copy:
            self.recent = [*(other for other in self.recent if other != number), number]
            self.opened.append((number, copy))

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def close(self, data: Any) -> None:
        place = data.draw(st.integers(0, len(self.opened) - 1))
        self.opened.pop(place)[1].close()

    @rule(number=NUMBERS, other=NUMBERS)
    def copy_changed_source(self, number: int, other: int) -> None:
        """The contents are not those of the manifest: nothing is copied, though room may have been made."""
        if number == other or number in self.recent:
            return
        expected = self.after_copy(number)
        self.source.write_bytes(CONTENTS[other])
        with open(self.source, "rb") as source:
            try:
                assert self.cache.copy(source, DIGESTS[number], SIZES[number]) is None
            except NoRoom:
                assert expected is None
                return
        assert expected is not None
        self.recent = expected[:-1]

    @precondition(lambda self: {number for number, _ in self.opened} != set(self.recent))
    @rule(data=st.data())
    def cut_off(self, data: Any) -> None:
        """The machine crashed before the end of a copy was on the disk."""
        used = {number for number, _ in self.opened}
        number = data.draw(st.sampled_from([number for number in self.recent if number not in used]))
        os.truncate(self.cache.folder / DIGESTS[number], 0)
        assert self.cache.open(DIGESTS[number], SIZES[number]) is None
        self.recent.remove(number)

    @rule(number=NUMBERS)
    def kill_a_copier(self, number: int) -> None:
        (self.cache.folder / f"{DIGESTS[number]}{PART}").write_bytes(b"incomplete")

    @invariant()
    def copies_are_right_and_within_the_limit(self) -> None:
        copies = [path for path in self.cache.folder.iterdir() if len(path.name) == 64]
        assert {path.name for path in copies} == {DIGESTS[number] for number in self.recent}
        assert sum(path.stat().st_size for path in copies) <= LIMIT
        for number, copy in self.opened:
            assert os.pread(copy.fileno(), 99, 0) == CONTENTS[number]

    def teardown(self) -> None:
        for _, copy in self.opened:
            copy.close()
        remove_tree(self.place)


TestCopies = Copies.TestCase
TestCopies.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def sources_in(folder: Path, count: int, size: int) -> dict[str, Path]:
    """Write files, and return their paths by their hashes."""
    found = {}
    for number in range(count):
        contents = random.Random(number).randbytes(size)
        path = folder / f"source-{number}"
        path.write_bytes(contents)
        found[hashlib.sha256(contents).hexdigest()] = path
    return found


def test_processes_share_a_cache(tmp_path: Path) -> None:
    size, count = 200_000, 8
    sources = sources_in(tmp_path, count, size)
    NodeCache(tmp_path / "cache")
    context = multiprocessing.get_context("fork")
    arguments = [(tmp_path / "cache", sources, size, seed) for seed in range(4)]
    processes = [context.Process(target=_use, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    names = [path.name for path in (tmp_path / "cache").iterdir()]
    assert not [name for name in names if name.endswith(PART)] and len(names) > 1


def _use(folder: Path, sources: dict[str, Path], size: int, seed: int) -> None:
    """Use a cache that has room for three copies; every reader holds one."""
    cache, choose = NodeCache(folder, 3 * size), random.Random(seed)
    for _ in range(60):
        digest, path = choose.choice([*sources.items()])
        try:
            with open(path, "rb") as source:
                copy = cache.copy(source, digest, size)
        except (NoRoom, BeingCopied):
            continue
        assert copy is not None
        with copy:
            contents = os.pread(copy.fileno(), size + 1, 0)
            assert hashlib.sha256(contents).hexdigest() == digest
            assert os.fstat(copy.fileno()).st_nlink == 1  # not removed while in use
        with cache._locked():
            assert sum(entry.stat().st_size for entry in folder.iterdir()) <= 3 * size


def test_a_copy_in_progress_counts_and_is_not_made_twice(tmp_path: Path) -> None:
    ours, theirs = sources_in(tmp_path, 2, 100).items()
    cache = NodeCache(tmp_path / "cache", 150)

    def interrupt() -> bool:
        with open(ours[1], "rb") as source, pytest.raises(BeingCopied):
            cache.copy(source, ours[0], 100)
        with open(theirs[1], "rb") as source, pytest.raises(NoRoom):
            cache.copy(source, theirs[0], 100)
        return True

    with open(ours[1], "rb") as source:
        assert cache.copy(source, ours[0], 100, interrupt) is None
    assert [path.name for path in cache.folder.iterdir()] == [node_cache.LOCK_FILE]


def test_a_part_is_locked_until_it_is_removed(tmp_path: Path, monkeypatch: Any) -> None:
    """Otherwise, the part that is removed could be that of another process."""
    ((digest, path),) = sources_in(tmp_path, 1, 100).items()
    cache, unlink, removed = NodeCache(tmp_path / "cache"), os.unlink, []

    def check_lock(part: str) -> None:
        assert node_cache._lock_unused(Path(part)) is None
        removed.append(Path(part).name)
        unlink(part)

    monkeypatch.setattr(os, "unlink", check_lock)
    with open(path, "rb") as source:
        assert cache.copy(source, digest, 100, lambda: True) is None
        cache.copy(source, digest, 100).close()
    assert removed == [f"{digest}{PART}"]  # not after it has become a copy


def test_by_default_half_of_the_space_may_be_used(tmp_path: Path, monkeypatch: Any) -> None:
    space = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    cache = NodeCache(tmp_path / "cache")
    free = space.f_bavail * space.f_frsize
    assert cache.limit() == free // 2
    ((digest, path),) = sources_in(tmp_path, 1, 8192).items()
    with open(path, "rb") as source:
        cache.copy(source, digest, 8192).close()
    assert cache.limit() == (free + 8192) // 2


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("open", "link"):
        with pytest.raises(PermissionError):
            NodeCache(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        NodeCache(tmp_path / "missing" / "cache")


def test_a_lock_that_is_held_for_long_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(node_cache, "LOCK_SECONDS", 0.05)
    cache = NodeCache(tmp_path / "cache")
    with cache._locked(), pytest.raises(TimeoutError):
        cache.open(DIGESTS[0], SIZES[0])


FULL_DISK = """
    import hashlib, sys
    from pathlib import Path
    from digits.core.files import is_disk_full
    from digits.data.node_cache import NodeCache

    disk, path, size, fills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "full"
    cache, contents = NodeCache(disk / "cache", 10**9), b"x" * size
    cache.remove("0")  # creates the lock file
    if fills:
        try:
            (disk / "other").write_bytes(bytes(2 << 20))
        except OSError:
            pass
    path.write_bytes(contents)
    with open(path, "rb") as source:
        try:
            cache.copy(source, hashlib.sha256(contents).hexdigest(), len(contents))
        except OSError as error:
            assert is_disk_full(error), error
            print("full", [path.name for path in cache.folder.iterdir()])
"""


@pytest.mark.parametrize(("size", "state"), [(2 << 20, "empty"), (4000, "full")])
def test_nothing_is_left_of_a_copy_for_which_the_disk_is_too_small(
    tmp_path: Path, size: int, state: str
) -> None:
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4" "$5" "$6"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    arguments = [
        tmp_path / "disk",
        sys.executable,
        textwrap.dedent(FULL_DISK),
        tmp_path / "source",
        size,
        state,
    ]
    found = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    if "full" not in found.stdout and ("unshare" in found.stderr or "mount" in found.stderr):
        pytest.skip(f"no file system of its own: {found.stderr}")
    assert found.stdout == "full ['.lock']\n", found.stderr


@pytest.fixture
def on_network(monkeypatch: Any, tmp_path: Path) -> Path:
    """A folder whose files seem to be on another machine."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(file_systems, "is_network", lambda path: path.is_relative_to(folder))
    node_cache._cache_in.cache_clear()
    return folder


def test_the_setting_decides_where_copies_are(on_network: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("DIGITS_NODE_CACHE", f"{tmp_path},5MB")
    cache = node_cache.cache_for(on_network / "job")
    assert cache and cache.folder == tmp_path / f"digits-cache-{os.geteuid()}" and cache.limit() == 5_000_000
    assert node_cache.cache_for(on_network / "other job") is cache
    assert node_cache.cache_for(tmp_path) is None  # local
    monkeypatch.setenv("DIGITS_NODE_CACHE", "off")
    assert node_cache.cache_for(on_network) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{}/missing", "Records are not copied to .*: No such file or directory"),
        ("{}/shared", "Records are not copied to .*: it is on a network file system"),
        ("5 boxes", "There is no cache of records. DIGITS_NODE_CACHE: takes a size"),
    ],
)
def test_an_unusable_setting_is_logged(
    on_network: Path, tmp_path: Path, monkeypatch: Any, caplog: Any, value: str, message: str
) -> None:
    monkeypatch.setenv("DIGITS_NODE_CACHE", value.format(tmp_path))
    assert node_cache.cache_for(on_network) is None
    (record,) = caplog.records
    assert re.search(message, record.getMessage())


def test_copies_are_by_default_with_temporary_files(
    on_network: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.delenv("DIGITS_NODE_CACHE", raising=False)
    monkeypatch.setenv("TMPDIR", str(on_network))
    (tmp_path / "slurm").mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "slurm"))
    cache = node_cache.cache_for(on_network)
    assert cache and cache.folder.parent == tmp_path / "slurm"
    monkeypatch.setattr(file_systems, "is_in_memory", lambda path: path.is_relative_to(tmp_path))
    assert node_cache._default_place() in (Path("/tmp"), Path("/var/tmp"))
    monkeypatch.setattr(file_systems, "is_in_memory", lambda path: True)
    assert node_cache.cache_for(on_network) is None
