"""The lists of models of model stores, kept for a day."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import gevent
from gevent import Greenlet

from digits.core.errors import NotFound
from digits.core.remote import is_address
from digits.data import model_store
from digits.data.model_store import Listing, StoredModel

CACHE_SECONDS = 24 * 3600
# A store with a problem is read again after this time.
RETRY_SECONDS = 60


@dataclass(frozen=True)
class StoreState:
    """The latest ``listing`` of a store, empty before the first; with ``is_loading``, the store is being read."""

    listing: Listing
    is_loading: bool


class StoreCache:
    """The lists of models of ``stores``, read at most once a day, each on its own in the background."""

    def __init__(self, stores: Sequence[str]) -> None:
        self.stores = tuple(stores)
        self._listings: dict[str, tuple[float, Listing]] = {}
        self._readers: dict[str, Greenlet] = {}

    def states(self, refresh: bool = False) -> list[StoreState]:
        """Return the state of each store without waiting for a server; with ``refresh``, start reading all of them."""
        for store in self.stores:
            self._start(store, refresh)
        return [self._state(store) for store in self.stores]

    def load(self, store: str, refresh: bool = False) -> StoreState:
        """Return the state of ``store`` when it has been read; with ``refresh``, read it now. Raises NotFound."""
        if store not in self.stores:
            raise NotFound(f"There is no model store {store!r}.", "Choose a store from the list.")
        self._start(store, refresh)
        if reader := self._readers.get(store):
            reader.join()
        return self._state(store)

    def find(self, model_id: str) -> StoredModel:
        """Return the model with this ID; wait only for stores that may contain it. Raises NotFound."""
        known = [state.listing for state in self.states()]
        loading = gevent.iwait(list(self._readers.values()))
        listing: Listing
        for listing in itertools.chain(known, (reader.get() for reader in loading)):
            for model in listing.models:
                if model.id == model_id:
                    return model
        raise NotFound("No model store contains this model.", "Refresh the list of models.")

    def close(self) -> None:
        """Stop reading stores."""
        gevent.killall(list(self._readers.values()))

    def _state(self, store: str) -> StoreState:
        _, listing = self._listings.get(store, (0.0, Listing(store)))
        return StoreState(listing, store in self._readers)

    def _start(self, store: str, refresh: bool) -> None:
        """Start reading a store if it is due or ``refresh`` is set, unless it is being read; read a folder at once."""
        if store in self._readers or not (refresh or self._is_due(store)):
            return
        self._readers[store] = reader = gevent.spawn(self._read, store)
        if not is_address(store):
            reader.join()

    def _is_due(self, store: str) -> bool:
        if store not in self._listings:
            return True
        read_at, listing = self._listings[store]
        return time.monotonic() - read_at >= (RETRY_SECONDS if listing.problem else CACHE_SECONDS)

    def _read(self, store: str) -> Listing:
        try:
            with TemporaryDirectory() as folder:
                listing = model_store.read(store, Path(folder))
            self._listings[store] = time.monotonic(), listing
            return listing
        finally:
            del self._readers[store]
