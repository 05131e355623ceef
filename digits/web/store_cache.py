"""The lists of models of model stores, kept for a day."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import gevent
from gevent.lock import BoundedSemaphore

from digits.core.errors import NotFound
from digits.data import model_store
from digits.data.model_store import Listing, StoredModel

CACHE_SECONDS = 24 * 3600
# A store with a problem is read again after this time.
RETRY_SECONDS = 60


class StoreCache:
    """The lists of models of ``stores``, read at most once a day."""

    def __init__(self, stores: Sequence[str]) -> None:
        self.stores = tuple(stores)
        self._listings: dict[str, tuple[float, Listing]] = {}
        self._locks = {store: BoundedSemaphore() for store in self.stores}

    def listings(self, refresh: bool = False) -> list[Listing]:
        """Return the listing of each store; with ``refresh``, read all of them now."""
        asked = time.monotonic()
        reading = [gevent.spawn(self._listing, store, asked if refresh else 0.0) for store in self.stores]
        return [greenlet.get() for greenlet in reading]

    def find(self, model_id: str) -> StoredModel:
        """Return the model with this ID. Raises NotFound."""
        models = (model for listing in self.listings() for model in listing.models)
        found = next((model for model in models if model.id == model_id), None)
        if found is None:
            raise NotFound("No model store contains this model.", "Refresh the list of models.")
        return found

    def _listing(self, store: str, not_before: float) -> Listing:
        with self._locks[store]:
            read_at, listing = self._listings.get(store, (0.0, Listing(store)))
            age = time.monotonic() - read_at
            if (
                read_at
                and read_at >= not_before
                and age < (RETRY_SECONDS if listing.problem else CACHE_SECONDS)
            ):
                return listing
            with TemporaryDirectory() as folder:
                listing = model_store.read(store, Path(folder))
            self._listings[store] = time.monotonic(), listing
            return listing
