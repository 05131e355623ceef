"""Workers that meet by files and add arrays, here as threads of one process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.worker.failure import PartnerLost
from digits.worker.gang import rendezvous
from digits.worker.gang.rendezvous import Rendezvous
from digits.worker.gang.ring import OutOfStep, Ring, connect
from digits.worker.gang.share import Share, bounds


def together(folder: Path, workers: int, work: Callable[[Ring], Any]) -> list[Any]:
    """Return the results of ``work`` of all ``workers``, which meet in ``folder``; an exception counts as a result."""

    def run(rank: int) -> Any:
        ring = connect(Rendezvous(folder, rank, workers))
        try:
            return work(ring)
        except OSError as error:
            return error
        finally:
            ring.close()

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 5, 400_000])
def test_all_workers_get_the_same_sum(tmp_path: Path, workers: int, size: int) -> None:
    given = np.random.default_rng(1).normal(size=(workers, size)).astype(np.float32)
    sums = together(tmp_path, workers, lambda ring: ring.reduce(given[ring.rank]))
    assert all(np.array_equal(found, sums[0]) for found in sums)
    np.testing.assert_allclose(sums[0], given.sum(0), atol=1e-5)


def test_arrays_of_any_type_and_shape_are_combined(tmp_path: Path) -> None:
    def work(ring: Ring) -> tuple[Any, Any, Any]:
        own = np.full((2, 3), ring.rank + 1, np.int64)
        most = ring.reduce(np.array([ring.rank, -ring.rank], np.float64), np.maximum)
        return ring.reduce(own), most, own

    for total, most, own in together(tmp_path, 3, work):
        assert total.tolist() == [[6] * 3] * 2
        assert most.tolist() == [2, 0]
        assert own[0, 0] in (1, 2, 3)  # the array itself is unchanged


def test_arrays_in_column_order_are_combined(tmp_path: Path) -> None:
    given = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    for total in together(tmp_path, 2, lambda ring: ring.reduce(given)):
        assert total.tolist() == (2 * given).tolist()


def test_different_calls_are_an_error_instead_of_nonsense(tmp_path: Path) -> None:
    found = together(tmp_path, 2, lambda ring: ring.reduce(np.zeros(10 + ring.rank, np.float32)))
    assert [type(item) for item in found] == [OutOfStep, OutOfStep]


def test_a_lost_worker_is_noticed_at_once(tmp_path: Path) -> None:
    def work(ring: Ring) -> Any:
        if ring.rank == 1:
            return None
        return ring.reduce(np.ones(1_000_000, np.float32))

    lost = together(tmp_path, 3, work)
    assert lost[1] is None and isinstance(lost[0], OSError) and isinstance(lost[2], OSError)


def test_nothing_listens_once_the_workers_are_connected_and_strangers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger connects to worker 1 before worker 0 does, and sends anything."""
    strangers: list[tuple[socket.socket, tuple[str, int]]] = []
    exchange = Rendezvous.exchange

    def exchange_and_intrude(self: Rendezvous, name: str, value: str, deadline: float) -> list[str]:
        values = exchange(self, name, value, deadline)
        if (self.rank, name) == (0, "address"):
            host, port, _ = values[1].split()
            assert host == rendezvous.LOOPBACK
            stranger = socket.create_connection((host, int(port)))
            stranger.sendall(b"x" * 32)
            strangers.append((stranger, (host, int(port))))
        return values

    monkeypatch.setattr(Rendezvous, "exchange", exchange_and_intrude)
    assert together(tmp_path, 2, lambda ring: ring.reduce(np.ones(3)).tolist()) == [[2, 2, 2]] * 2
    [(stranger, address)] = strangers
    stranger.close()
    with pytest.raises(ConnectionError):
        socket.create_connection(address)


def test_a_stranger_that_answers_slowly_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "DEADLINE_SECONDS", 3.0)
    exchange, is_over = Rendezvous.exchange, threading.Event()
    dribbling: list[threading.Thread] = []

    def dribble(host: str, port: str) -> None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"x")
            while not is_over.wait(0.5):
                stranger.sendall(b"x")

    def exchange_and_intrude(self: Rendezvous, name: str, value: str, deadline: float) -> list[str]:
        values = exchange(self, name, value, deadline)
        if (self.rank, name) == (0, "address"):
            for _ in range(3):
                dribbling.append(threading.Thread(target=dribble, args=values[1].split()[:2]))
                dribbling[-1].start()
            time.sleep(0.2)
        return values

    monkeypatch.setattr(Rendezvous, "exchange", exchange_and_intrude)
    try:
        assert together(tmp_path, 2, lambda ring: ring.reduce(np.ones(3)).tolist()) == [[2, 2, 2]] * 2
    finally:
        is_over.set()
        for thread in dribbling:
            thread.join()


@pytest.mark.parametrize("answer", [b"", b"n" * 32, b"n" * 64])
def test_a_stranger_at_the_address_of_a_worker_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(rendezvous, "DEADLINE_SECONDS", 1.0)
    exchange = Rendezvous.exchange
    stranger = socket.create_server((rendezvous.LOOPBACK, 0))
    guests: list[socket.socket] = []

    def answer_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                guests.append(stranger.accept()[0])
                guests[-1].sendall(answer)

    def exchange_and_redirect(self: Rendezvous, name: str, value: str, deadline: float) -> list[str]:
        values = exchange(self, name, value, deadline)
        if (self.rank, name) == (0, "address"):
            values[1] = f"{rendezvous.LOOPBACK} {stranger.getsockname()[1]} {values[1].split()[2]}"
        return values

    monkeypatch.setattr(Rendezvous, "exchange", exchange_and_redirect)
    answering = threading.Thread(target=answer_all)
    answering.start()
    try:
        with pytest.raises(PartnerLost, match="cannot be reached"):
            together(tmp_path, 2, lambda ring: None)
    finally:
        stranger.shutdown(socket.SHUT_RDWR)
        stranger.close()
        answering.join()
        for guest in guests:
            guest.close()


def test_a_worker_may_see_the_addresses_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system: until then, the worker after it can only answer, not accept."""
    exchange = Rendezvous.exchange

    def exchange_late(self: Rendezvous, name: str, value: str, deadline: float) -> list[str]:
        values = exchange(self, name, value, deadline)
        if (self.rank, name) == (3, "address"):
            time.sleep(0.5)
        return values

    monkeypatch.setattr(Rendezvous, "exchange", exchange_late)
    assert together(tmp_path, 4, lambda ring: ring.reduce(np.ones(3)).tolist()) == [[4, 4, 4]] * 4


def test_missing_workers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "DEADLINE_SECONDS", 0.2)
    with pytest.raises(PartnerLost, match=r"Only 1 of 3 workers started .* Missing: 0, 2\."):
        connect(Rendezvous(tmp_path, 1, 3))


@pytest.mark.parametrize(("count", "workers"), [(8, 2), (7, 3), (3, 3), (64, 5)])
def test_shares_divide_everything_in_order(count: int, workers: int) -> None:
    parts = [bounds(count, rank, workers) for rank in range(workers)]
    assert [place for first, last in parts for place in range(first, last)] == list(range(count))
    sizes = [last - first for first, last in parts]
    assert max(sizes) - min(sizes) <= 1


def test_blended_images_need_the_one_before() -> None:
    assert Share(0, 2, 6, blends=True).positions.tolist() == [5, 0, 1]
    assert Share(2, 6, 6, blends=True).positions.tolist() == [1, 2, 3, 4, 5]
    assert Share(2, 6, 6).positions.tolist() == [2, 3, 4, 5]
