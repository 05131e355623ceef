"""The claim to a jobs folder that several machines share. A machine is a boot id here, and locks are not passed on."""

from __future__ import annotations

import errno
import fcntl
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digits.runtime import lease
from digits.runtime.lease import Lease, StoreInUse
from tests.waiting import wait_until

Machine = Callable[[str], None]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"RENEW": 0.05, "STALE": 0.2, "WATCH": 0.02, "SETTLE": 0.1}
    for name, seconds in times.items():
        monkeypatch.setattr(lease, f"{name}_SECONDS", seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Continue on the machine with this name. The locks of another machine have no effect."""
    lock = fcntl.flock

    def go(name: str) -> None:
        monkeypatch.setattr(lease, "boot_id", lambda: name)
        monkeypatch.setattr(fcntl, "flock", lock if name == "one" else lambda *_: None)

    go("one")
    return go


def owner(folder: Path) -> Any:
    text = (folder / ".lock").read_text()
    return json.loads(text)["boot"] if text else None


def maintained(held: Lease) -> None:
    """Renew ``held`` like the rounds of the task runner."""
    held.maintain()
    if held._worker is not None:
        held._worker.join()


def test_a_claim_is_renewed_only_when_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "WATCH_SECONDS", 60.0)
    held = Lease(tmp_path)
    before = (tmp_path / ".lock").read_text()
    maintained(held)
    assert (tmp_path / ".lock").read_text() == before
    held._due = 0.0
    maintained(held)
    assert (tmp_path / ".lock").read_text() != before
    held.close()


def test_another_machine_does_not_claim_a_folder_whose_server_lives(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "STALE_SECONDS", 30.0)  # a busy machine may renew late
    held = Lease(tmp_path)
    is_over = threading.Event()

    def live() -> None:
        while not is_over.wait(0.05):
            assert held._renew()

    thread = threading.Thread(target=live)
    thread.start()
    machine("two")
    with pytest.raises(StoreInUse, match=f"Another DIGITS server on {held._me.host}"):
        Lease(tmp_path)
    is_over.set()
    thread.join()
    assert held.is_held and owner(tmp_path) == "one"
    held.close()


def test_another_machine_takes_the_folder_of_a_silent_server_over(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    cut_off = Lease(tmp_path)
    machine("two")
    began = time.monotonic()
    held = Lease(tmp_path)
    assert time.monotonic() - began >= lease.STALE_SECONDS
    assert owner(tmp_path) == "two" and "taking over" in caplog.text
    assert held.is_held and not cut_off.is_held
    cut_off.close()  # it does not touch the file of the new owner
    assert held.is_held and owner(tmp_path) == "two"
    held.close()


def test_a_folder_that_was_given_up_is_claimed_at_once(tmp_path: Path, machine: Machine) -> None:
    Lease(tmp_path).close()
    machine("two")
    held = Lease(tmp_path, waits=False)
    assert owner(tmp_path) == "two"
    held.close()


def test_a_killed_server_of_this_machine_is_replaced_at_once(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / ".lock").write_text('{"host": "here", "boot": "one", "pid": 1, "beat": 3}')
    held = Lease(tmp_path, waits=False)
    with pytest.raises(StoreInUse):
        Lease(tmp_path)
    held.close()


def test_of_two_machines_that_claim_at_the_same_moment_one_keeps_the_folder(
    tmp_path: Path, machine: Machine
) -> None:
    first = Lease(tmp_path)
    (tmp_path / ".lock").write_text("")  # as the second machine read it, before the first one wrote
    machine("two")
    second = Lease(tmp_path)
    time.sleep(lease.WATCH_SECONDS)
    maintained(first)
    maintained(second)
    assert second.is_held and not first.is_held
    first.close()
    assert second.is_held
    second.close()


def test_the_claim_is_renewed(tmp_path: Path) -> None:
    held = Lease(tmp_path)
    before = (tmp_path / ".lock").read_text()
    wait_until(lambda: maintained(held) or (tmp_path / ".lock").read_text() != before)
    held.close()
    assert (tmp_path / ".lock").read_text() == ""


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_server_that_cannot_renew_its_claim_does_not_own_the_folder_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    held = Lease(tmp_path)

    def fail(*arguments: Any) -> None:
        raise OSError(number, "failed")

    monkeypatch.setattr(lease, "_write", fail)
    assert held.is_held
    wait_until(lambda: not held.is_held)
    assert caplog.text.count("could not be renewed") == 1
    monkeypatch.undo()
    assert held.is_held  # nobody else has claimed it
    held.close()


def test_a_file_system_without_locks_is_watched_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    first = Lease(tmp_path)
    with pytest.raises(StoreInUse):
        Lease(tmp_path, waits=False)
    second = Lease(tmp_path)
    assert second.is_held and not first.is_held
    first.close()
    second.close()


def test_a_damaged_lock_file_is_that_of_an_unknown_machine(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(b"\0\0\0")
    with pytest.raises(StoreInUse):
        Lease(tmp_path, waits=False)
    held = Lease(tmp_path)
    assert held.is_held
    held.close()


def test_a_server_starts_and_continues_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(lease, "_write", fail)
        held = Lease(tmp_path)
        assert owner(tmp_path) is None
        time.sleep(lease.STALE_SECONDS)
        assert held.is_held and not caplog.records
    wait_until(lambda: maintained(held) or owner(tmp_path))
    held.close()
