"""Read the records of an LMDB file (``data.mdb``) in the order of their keys.

The file is untrusted, and LMDB itself is not made for that: it maps the file into memory, so that a truncated or
damaged one ends the process with a signal. Here, every page is read and checked, nothing is mapped, locked or written,
and memory holds a few pages. The format is that of LMDB 0.9 on 64-bit little-endian machines; see ``mdb.c`` of
OpenLDAP.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from digits.core.files import UnreadableFile, open_plain
from digits.data.databases.stored import Stored, parse
from digits.data.sources.plan import UnusableSource, show

DATA_FILE = "data.mdb"
LMDB_ENDINGS = (".mdb", ".lmdb")
MAX_VALUE_BYTES = 512_000_000

_MAGIC = 0xBEEFC0DE
_VERSION = 1
# Number, padding, flags, end of the places of nodes, start of the nodes.
_PAGE_HEADER = struct.Struct("<QHHHH")
_OVERFLOW_COUNT = struct.Struct("<I")
_OVERFLOW_COUNT_PLACE = 12
# Of a meta page: magic, version, address, size of the map.
_META = struct.Struct("<IIQQ")
# Of a database: page size in the first one, flags, depth, counts of branch, leaf and overflow pages, entries, root.
_DATABASE = struct.Struct("<IHHQQQQQ")
_META_END = struct.Struct("<QQ")  # last page, transaction
_META_BYTES = _PAGE_HEADER.size + _META.size + 2 * _DATABASE.size + _META_END.size
_NODE = struct.Struct("<HHHH")  # low and high half of the size or page, flags, size of the key
_PAGE_NUMBER = struct.Struct("<Q")

_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_KIND = _BRANCH | _LEAF | _OVERFLOW | _META_PAGE
_BIG, _SUB_DATABASE, _DUPLICATES = 1, 2, 4
_REVERSED, _SORTED_DUPLICATES, _INTEGER_KEYS = 2, 4, 8
_NO_PAGE = 2**64 - 1
_MAX_DEPTH = 32
_PAGE_SIZES = tuple(1 << power for power in range(8, 17))


class UnusableDatabase(ValueError):
    """A database cannot be read; the message is for users and has no period."""


class _Page:
    """A page of the tree: its nodes are at the offsets ``places``."""

    __slots__ = ("data", "is_leaf", "places")

    def __init__(self, number: int, data: bytes) -> None:
        own_number, _, flags, lower, upper = _PAGE_HEADER.unpack_from(data)
        kind = flags & _KIND
        count, odd = divmod(lower - _PAGE_HEADER.size, 2)
        is_whole = lower <= upper <= len(data) and not odd and count >= 0
        if own_number != number or kind not in (_BRANCH, _LEAF) or not is_whole:
            raise UnusableDatabase(f"page {number} is damaged")
        self.data = data
        self.is_leaf = kind == _LEAF
        self.places: tuple[int, ...] = struct.unpack_from(f"<{count}H", data, _PAGE_HEADER.size)
        last = len(data) - _NODE.size
        if not all(upper <= place <= last for place in self.places):
            raise UnusableDatabase(f"page {number} is damaged")

    def node(self, place: int) -> tuple[int, int, bytes, int]:
        """Return the size or the page, the flags, the key, and the offset of the value of the node at ``place``."""
        low, high, flags, key_bytes = _NODE.unpack_from(self.data, place)
        start = place + _NODE.size
        end = start + key_bytes
        if end > len(self.data):
            raise UnusableDatabase("the key of a record is damaged")
        return low | high << 16, flags, self.data[start:end], end

    def child(self, place: int) -> int:
        """Return the page below the node at ``place`` of a branch."""
        low, flags, _, _ = self.node(place)
        return low | flags << 32


class LmdbFile:
    """The records of the file ``path``; ``count`` is their number.

    Raises UnusableDatabase and OSError here and later: also if the file is changed after it was opened. Use it in a
    ``with`` block.
    """

    def __init__(self, path: Path, below: Path | None = None) -> None:
        try:
            self._file = open_plain(path, below=below)
        except UnreadableFile as error:
            raise UnusableDatabase(str(error)) from error
        self._state = self._stat()
        self.count: int
        try:
            self._read_meta()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys with their values, in the order of the keys."""
        if self._root == _NO_PAGE:
            return
        last_key = b""
        count = 0
        # Damaged pages can form cycles.
        pages_left = self._state[1] // self._page_bytes
        waiting = [(self._root, 1)]
        while waiting:
            number, depth = waiting.pop()
            pages_left -= 1
            if depth > _MAX_DEPTH or pages_left < 0:
                raise UnusableDatabase("its pages are damaged")
            page = _Page(number, self._read(number * self._page_bytes, self._page_bytes))
            if not page.is_leaf:
                waiting += [(page.child(place), depth + 1) for place in reversed(page.places)]
                continue
            for place in page.places:
                size, flags, key, start = page.node(place)
                count += 1
                if (count > 1 and key <= last_key) or count > self.count:
                    raise UnusableDatabase("its records are damaged")
                last_key = key
                yield key, self._value(page, size, flags, start)
        if count < self.count:
            raise UnusableDatabase(f"only {count:,} of its {self.count:,} records are present")

    def _read_meta(self) -> None:
        """Use the newer of the two meta pages, which refers to the last completed transaction."""
        size = self._state[1]
        head = os.pread(self._file.fileno(), _META_BYTES, 0)
        if not size:
            raise UnusableDatabase("the file is empty")
        if len(head) < _META_BYTES or _META.unpack_from(head, _PAGE_HEADER.size)[0] != _MAGIC:
            raise UnusableDatabase("it is not an LMDB file")
        version = _META.unpack_from(head, _PAGE_HEADER.size)[1]
        if version != _VERSION:
            raise UnusableDatabase(f"version {version} of the LMDB format is not supported")
        first = _DATABASE.unpack_from(head, _PAGE_HEADER.size + _META.size)
        self._page_bytes: int = first[0]
        if self._page_bytes not in _PAGE_SIZES:
            raise UnusableDatabase(f"it has pages of {self._page_bytes:,} bytes")
        second = os.pread(self._file.fileno(), _META_BYTES, self._page_bytes)
        if len(second) < _META_BYTES:
            raise UnusableDatabase("the file is truncated")
        metas = [head]
        if _META.unpack_from(second, _PAGE_HEADER.size)[:2] == (_MAGIC, _VERSION):
            metas.append(second)
        newest = max(metas, key=_transaction)
        last_page, _ = _META_END.unpack_from(newest, _META_BYTES - _META_END.size)
        if (last_page + 1) * self._page_bytes > size:
            raise UnusableDatabase(
                f"the file is truncated: it contains {size:,} of {(last_page + 1) * self._page_bytes:,} bytes"
            )
        main = _PAGE_HEADER.size + _META.size + _DATABASE.size
        _, flags, _, _, _, _, self.count, self._root = _DATABASE.unpack_from(newest, main)
        if flags & (_REVERSED | _SORTED_DUPLICATES | _INTEGER_KEYS):
            raise UnusableDatabase("its keys are not sorted as in databases from Caffe and DIGITS")

    def _value(self, page: _Page, size: int, flags: int, start: int) -> bytes:
        if flags & (_SUB_DATABASE | _DUPLICATES):
            raise UnusableDatabase("it contains several named databases, which Caffe and DIGITS do not use")
        if not flags & _BIG:
            value = page.data[start : start + size]
            if len(value) < size:
                raise UnusableDatabase("the value of a record is damaged")
            return value
        if start + _PAGE_NUMBER.size > len(page.data):
            raise UnusableDatabase("the value of a record is damaged")
        (number,) = _PAGE_NUMBER.unpack_from(page.data, start)
        whole = self._read(number * self._page_bytes, _PAGE_HEADER.size + size)
        own_number, _, page_flags, _, _ = _PAGE_HEADER.unpack_from(whole)
        (pages,) = _OVERFLOW_COUNT.unpack_from(whole, _OVERFLOW_COUNT_PLACE)
        if own_number != number or page_flags & _KIND != _OVERFLOW or len(whole) > pages * self._page_bytes:
            raise UnusableDatabase(f"page {number} is damaged")
        return whole[_PAGE_HEADER.size :]

    def _read(self, offset: int, size: int) -> bytes:
        if size > MAX_VALUE_BYTES or offset + size > self._state[1]:
            raise UnusableDatabase("a record is damaged: it extends beyond the file")
        data = os.pread(self._file.fileno(), size, offset)
        # After reading, because a writer may have reused the pages in between.
        if self._stat() != self._state or len(data) < size:
            raise UnusableDatabase("it was changed while it was read")
        return data

    def _stat(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_mtime_ns, status.st_size


def _transaction(meta: bytes) -> int:
    _, transaction = _META_END.unpack_from(meta, _META_BYTES - _META_END.size)
    return int(transaction)


class LmdbDatabase:
    """The records of the database ``path``, a folder with ``data.mdb``, or such a file; their names are the keys.

    Raises UnusableSource.
    """

    format = "LMDB"

    def __init__(self, path: Path, below: Path | None = None) -> None:
        self.path, self._below = path, below
        with self._opened() as file:
            self.count = file.count

    def records(self) -> Iterator[Stored]:
        """Yield the records in the order of their keys; raises UnusableSource if the database is damaged."""
        with self._opened() as file:
            for key, value in file.records():
                yield parse(os.fsdecode(key), value)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[LmdbFile]:
        path = self.path / DATA_FILE if self.path.is_dir() else self.path
        try:
            with LmdbFile(path, self._below) as file:
                yield file
        except (UnusableDatabase, OSError) as error:
            raise UnusableSource(
                f"The database {show(str(self.path))} cannot be read: {error}.",
                "Copy the complete database again.",
            ) from error
