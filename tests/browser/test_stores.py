"""The page of model stores: each store appears when it has been read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests import odd_web_server
from tests.browser.conftest import ServerProcess


def publish(folder: Path, name: str) -> None:
    """Add a Caffe model, which is listed but cannot be imported, to the store ``folder``."""
    info = {"name": name, "framework": "caffe", "snapshot file": "s.caffemodel", "network file": "n.prototxt"}
    (folder / name).mkdir(parents=True)
    (folder / name / "info.json").write_text(json.dumps(info))


def models(server: ServerProcess) -> Any:
    with urlopen(server / "store/models", timeout=60) as answer:
        return json.load(answer)


@dataclass
class Stores:
    """Two folders, of which one is ``empty``, and an address that answers after ``release`` is requested."""

    local: str
    empty: str
    held: str
    release: str


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("stores")
    publish(folder / "local", "CaffeNet")
    publish(folder / "published", "AlexNet")
    (folder / "empty").mkdir()
    with odd_web_server.running(folder / "published") as address:
        yield Stores(str(folder / "local"), str(folder / "empty"), f"{address}/held", f"{address}/release")


@pytest.fixture(scope="session")
def server(start_server: Callable[..., ServerProcess], stores: Stores) -> ServerProcess:
    """A server with the stores."""
    options = (f"--model-store={store}" for store in (stores.held, stores.local, stores.empty))
    return start_server("--no-standby", *options, module="tests.browser.patient_server")


def test_each_store_is_loaded_on_its_own(
    page: Page,
    server: ServerProcess,
    stores: Stores,
    page_faults: object,
    check_accessibility: Callable[[Page], None],
) -> None:
    page.goto("/store/list")
    held, local, empty = (
        page.get_by_role("region", name=store, exact=True)
        for store in (stores.held, stores.local, stores.empty)
    )
    expect(held.get_by_text("Loading…")).to_be_visible()
    expect(local.get_by_role("row", name="CaffeNet")).to_be_visible()
    expect(local.get_by_text("1 model", exact=True)).to_be_visible()
    check_accessibility(page)

    # Programs get the stores that are known, and can import their models.
    found = models(server)
    assert found[stores.held] == {
        "base_url": stores.held,
        "welcome_msg": "",
        "model_list": [],
        "loading": True,
    }
    (listed,) = found[stores.local]["model_list"]
    with pytest.raises(HTTPError) as refused:
        urlopen(server / "store/push.json", urlencode({"id": listed["id"]}).encode(), timeout=60)
    with refused.value as answer:
        assert "Caffe" in json.load(answer)["error"]["message"]

    expect(empty.get_by_role("alert")).to_have_text("This store contains no models.")
    publish(Path(stores.empty), "GoogLeNet")
    empty.get_by_role("link", name="Try again").click()
    expect(empty.get_by_role("row", name="GoogLeNet")).to_be_visible()
    expect(empty.get_by_role("alert")).to_be_hidden()

    page.get_by_label("Filter models").fill("alex")
    expect(page.get_by_role("row", name="GoogLeNet")).to_be_hidden()
    urlopen(stores.release, timeout=60).close()
    expect(held.get_by_role("row", name="AlexNet")).to_be_visible()
    expect(held.get_by_text("Loading…")).to_be_hidden()
    assert "loading" not in models(server)[stores.held]
    page.get_by_label("Filter models").fill("goog")
    expect(page.get_by_role("row", name="GoogLeNet")).to_be_visible()
    expect(page.get_by_role("row", name="AlexNet")).to_be_hidden()
    check_accessibility(page)
