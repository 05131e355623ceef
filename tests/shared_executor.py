"""A fork server that all sites of a test process share, because importing TensorFlow takes seconds."""

from __future__ import annotations

import copy
import functools
import time
from pathlib import Path

from digits.core.job import DeviceRequest
from digits.core.task import Handle
from digits.runtime.devices import Devices, Driver
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Placement
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import limits

PATIENCE_SECONDS = 120
# Asking starts a program.
ask_driver_once = functools.cache(Driver().ask)
ON_CPU = Placement(DeviceRequest("training"), ("cpu",))


class SharedExecutor(LocalExecutor):
    """Forks tasks as in production. The first task starts the fork server, and only `close_shared` stops it."""

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        self.wait_until_warm()
        return super().start(folder, placement, run=run, owned=owned)

    def for_site(self) -> SharedExecutor:
        """Return an executor with a ledger of its own, which uses the same fork server."""
        executor = copy.copy(self)
        executor.ledger = DeviceLedger(limits(), Devices(ask_driver_once).gpus)
        return executor

    def wait_until_warm(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.is_warm():
            super().warm_up()
            assert time.monotonic() < deadline, "the fork server did not start"
            time.sleep(0.02)

    def warm_up(self) -> None:
        """Do nothing, because most sites run no task."""

    def close(self) -> None:
        """Do nothing, because other sites use the fork server as well."""

    def close_shared(self) -> None:
        super().close()
