"""The cache of the lists of models: no store waits for another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from digits.core.errors import NotFound
from digits.data import model_store
from digits.data.model_store import Listing, StoredModel
from digits.web.services import model_lists as store_cache
from digits.web.services.model_lists import StoreCache, StoreState

HELD, QUICK = "http://held.example", "http://quick.example"


class Servers:
    """Stores with one model each, of which HELD waits until it is ``released``; ``started`` lists the stores read."""

    def __init__(self) -> None:
        self.released = Event()
        self.started: list[str] = []
        self.problem = ""

    def read(self, store: str, scratch: Path) -> Listing:
        self.started.append(store)
        if store == HELD:
            self.released.wait()
        return Listing(store, models=[model(store)], problem=self.problem)


def model(store: str) -> StoredModel:
    return StoredModel(store, "lenet", {"framework": "tensorflow"}, {})


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    servers = Servers()
    monkeypatch.setattr(model_store, "read", servers.read)
    return servers


@pytest.fixture
def cache(servers: Servers) -> Iterator[StoreCache]:
    cache = StoreCache([HELD, QUICK, "/srv/models"])
    yield cache
    cache.close()


def loaded(store: str) -> StoreState:
    return StoreState(Listing(store, models=[model(store)]), is_loading=False)


def test_a_stalling_store_does_not_delay_the_others(servers: Servers, cache: StoreCache) -> None:
    loading = StoreState(Listing(HELD), is_loading=True)
    assert [cache.states()[number] for number in (0, 2)] == [loading, loaded("/srv/models")]
    assert cache.load(QUICK) == loaded(QUICK)
    assert cache.states() == [loading, loaded(QUICK), loaded("/srv/models")]
    waiting = gevent.spawn(cache.load, HELD)
    servers.released.set()
    assert waiting.get() == loaded(HELD)
    assert [state.is_loading for state in cache.states()] == [False] * 3
    assert sorted(servers.started) == ["/srv/models", HELD, QUICK]


@pytest.mark.parametrize("store", [QUICK, "/srv/models"])
def test_a_model_is_found_while_another_store_stalls(cache: StoreCache, store: str) -> None:
    assert cache.find(model(store).id) == model(store)
    assert cache.states()[0].is_loading


def test_a_model_of_a_slow_store_is_found(servers: Servers, cache: StoreCache) -> None:
    finding, missing = gevent.spawn(cache.find, model(HELD).id), gevent.spawn(cache.find, "unknown")
    gevent.idle()
    assert not finding.ready() and not missing.ready()
    servers.released.set()
    assert finding.get() == model(HELD)
    missing.join()
    assert isinstance(missing.exception, NotFound)


def test_the_earlier_list_is_shown_while_a_store_is_read_again(servers: Servers, cache: StoreCache) -> None:
    servers.released.set()
    assert cache.load(HELD) == loaded(HELD)
    servers.released.clear()
    assert cache.states(refresh=True)[0] == StoreState(loaded(HELD).listing, is_loading=True)


def test_a_store_with_a_problem_is_read_again_after_a_while(
    servers: Servers, cache: StoreCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.problem = "It is broken."
    assert [cache.load(QUICK).listing.problem for _ in range(2)] == ["It is broken."] * 2
    assert servers.started == [QUICK]
    monkeypatch.setattr(store_cache, "RETRY_SECONDS", 0)
    servers.problem = ""
    assert cache.load(QUICK) == loaded(QUICK)
    assert servers.started == [QUICK, QUICK]


def test_closing_ends_the_requests_that_wait_for_a_store(cache: StoreCache) -> None:
    waiting = gevent.spawn(cache.load, HELD)
    gevent.idle()
    cache.close()
    assert waiting.get() == StoreState(Listing(HELD), is_loading=False)


def test_a_store_that_is_not_configured_is_not_read(servers: Servers, cache: StoreCache) -> None:
    with pytest.raises(NotFound, match=r"other\.example"):
        cache.load("http://other.example")
    assert servers.started == []
