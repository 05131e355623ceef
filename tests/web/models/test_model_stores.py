"""Model stores: their page and JSON, and the import of a model."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import odd_web_server
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site, site_settings
from tests.web.trained import Finished

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]


@dataclass
class Stores:
    """A site with three stores: a folder, its address, and an address that refuses access."""

    site: Site
    folder: Path
    address: str

    def models(self, **query: Any) -> Any:
        """Return the models of all stores after all have been read."""
        for store in self.site.services.model_stores.stores:
            self.site.get("/store/models", query_string={**query, "store": store})
        found = self.site.json("/store/models")
        assert not any("loading" in store for store in found.values())
        return found

    def id_of(self, store: str, name: str) -> str:
        (found,) = (item["id"] for item in self.models()[store]["model_list"] if item["dir_name"] == name)
        return str(found)


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, executor: SharedExecutor, finished: Finished
) -> Iterator[Stores]:
    place = tmp_path_factory.mktemp("stores")
    folder = place / "store"
    folder.mkdir()
    with odd_web_server.running(folder) as server:
        address = f"{server}/files"
        places = (str(folder), address, f"{server}/forbidden")
        site = open_site(site_settings(place, model_stores=places), executor)
        model = finished.model(site, finished.dataset(site), name="Bars", use_mean="pixel")
        archive = site.get(f"/models/{model}/download.tar.gz").data
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder / "bars", filter="data")
        (folder / "half").mkdir()
        info = json.loads((folder / "bars" / "info.json").read_text())
        (folder / "bars" / "pretrained").mkdir()
        (folder / "bars" / "pretrained" / "saved_model.pb").write_text("a model")
        with_model = {**info, "pretrained files": ["pretrained/saved_model.pb"]}
        (folder / "bars" / "info.json").write_text(json.dumps(with_model))
        (folder / "half" / "info.json").write_text(json.dumps({**info, "name": "Half"}))
        caffe = {"name": "<Caffe>", "framework": "caffe", "snapshot file": "s.caffemodel"}
        (folder / "caffe").mkdir()
        (folder / "caffe" / "info.json").write_text(json.dumps(caffe))
        master = {"msg": "Models of the lab", "children": ["bars", "half", "caffe"]}
        (folder / "master.json").write_text(json.dumps(master))
        yield Stores(site, folder, address)
        site.close()


def test_json_has_the_keys_of_digits_6(stores: Stores) -> None:
    found = stores.models()
    assert list(found) == [str(stores.folder), stores.address, stores.address.replace("files", "forbidden")]
    local = found[str(stores.folder)]
    assert local["base_url"] == str(stores.folder)
    assert local["welcome_msg"] == "Models of the lab"
    assert [item["dir_name"] for item in local["model_list"]] == ["bars", "half", "caffe"]
    assert local["model_list"][0]["info"]["snapshot file"] == "snapshot_1.ckpt"
    assert "error" not in local
    assert "403" in found[stores.address.replace("files", "forbidden")]["error"]


def test_lists_are_cached_until_they_are_refreshed(stores: Stores) -> None:
    stores.models()
    (stores.folder / "bars" / "aux.json").write_text('{"dataset": "bars", "license": "CC0"}')
    assert "aux" not in stores.models()[stores.address]["model_list"][0]
    assert stores.models(refresh=1)[stores.address]["model_list"][0]["aux"]["license"] == "CC0"


def test_the_page_lists_models_and_problems(stores: Stores) -> None:
    stores.models()
    page = stores.site.get("/store/list").text
    assert "Models of the lab" in page and "&lt;Caffe&gt;" in page
    assert page.count('action="/store/push"') == 4  # not for the Caffe model
    assert "was denied (403)" in page
    assert 'href="/store/list"' in stores.site.get("/pretrained_models/new").text


@pytest.mark.parametrize("is_local", [True, False])
def test_a_model_is_imported(stores: Stores, is_local: bool) -> None:
    store = str(stores.folder) if is_local else stores.address
    answer = stores.site.get("/store/push", query_string={"id": stores.id_of(store, "bars")})
    assert answer.status_code == 200, answer.text
    model = stores.site.json(f"/models/{answer.text}.json")
    assert (model["name"], model["snapshots"], model["status"]) == ("Bars", [1], "Done")
    copied = stores.site.services.store.folder / answer.text / "pretrained" / "saved_model.pb"
    assert copied.read_text() == "a model"


def test_the_page_imports_with_post(stores: Stores) -> None:
    model_id = stores.id_of(str(stores.folder), "bars")
    answer = stores.site.post("/store/push", id=model_id)
    assert answer.status_code == 302 and "/models/" in answer.location
    assert stores.site.post("/store/push.json", id=model_id).get_json()["name"] == "Bars"


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize(("name", "message"), [("half", "network.py"), ("caffe", "is a Caffe model")])
def test_a_model_that_cannot_be_imported_is_refused(
    stores: Stores, is_local: bool, name: str, message: str
) -> None:
    jobs = len(stores.site.json("/index.json")["models"])
    model_id = stores.id_of(str(stores.folder) if is_local else stores.address, name)
    answer = stores.site.post("/store/push.json", id=model_id)
    assert answer.status_code == 400 and message in answer.get_json()["error"]["message"]
    assert len(stores.site.json("/index.json")["models"]) == jobs


def test_one_store_is_listed(stores: Stores) -> None:
    query = {"store": str(stores.folder)}
    assert list(stores.site.get("/store/models", query_string=query).get_json()) == [str(stores.folder)]
    page = stores.site.get("/store/list", query_string=query).text
    assert "Models of the lab" in page and stores.address not in page
    answer = stores.site.get("/store/models", query_string={"store": "http://127.0.0.1/other"})
    assert answer.status_code == 404 and "http://127.0.0.1/other" in answer.text


def test_an_unknown_model_is_not_found(stores: Stores) -> None:
    answer = stores.site.post("/store/push.json", id="nothing")
    assert answer.status_code == 404 and "Refresh" in answer.get_json()["error"]["hint"]


def test_other_sites_cannot_import(stores: Stores) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    query = {"id": stores.id_of(str(stores.folder), "bars")}
    assert stores.site.get("/store/push", query_string=query, headers=headers).status_code == 403


def test_a_server_without_stores_explains_how_to_add_one(tmp_path: Path, executor: SharedExecutor) -> None:
    site = open_site(site_settings(tmp_path), executor)
    try:
        assert "--model-store" in site.get("/store/list").text
        assert site.json("/store/models") == {}
        assert "/store/list" not in site.get("/pretrained_models/new").text
    finally:
        site.close()
