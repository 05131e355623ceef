"""Reading the lists of model stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.core.errors import BadRequest, Unavailable
from digits.data import model_store
from digits.data.model_store import StoredModel
from tests import odd_web_server

INFO = {
    "name": "Digits",
    "framework": "tensorflow",
    "snapshot file": "snapshot_3.ckpt",
    "network file": "network.py",
    "image dimensions": [28, 28, 1],
}


def publish(folder: Path, info: Any = INFO, aux: Any = None) -> None:
    """Write a model without its weights to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "info.json").write_text(info if isinstance(info, str) else json.dumps(info))
    (folder / "network.py").write_text("class UserModel(Tower): pass")
    if aux is not None:
        (folder / "aux.json").write_text(json.dumps(aux))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    publish(folder / "a model", aux={"license": "CC0"})
    publish(folder / "caffe", {**INFO, "name": "Old", "framework": "caffe"})
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def address(store: Path) -> Iterator[str]:
    with odd_web_server.running(store) as address:
        yield f"{address}/files"


def test_a_folder_without_master_json_lists_its_subfolders(store: Path, tmp_path: Path) -> None:
    listing = model_store.read(str(store), tmp_path)
    assert (listing.message, listing.problem) == ("", "")
    assert [(model.folder, model.name, model.is_importable) for model in listing.models] == [
        ("a model", "Digits", True),
        ("caffe", "Old", False),
    ]
    assert listing.models[0].aux == {"license": "CC0"}
    assert listing.models[0].input == "28×28×1"
    assert listing.models[0].local_folder == store / "a model"
    again = model_store.read(str(store), tmp_path)  # with the same ids
    assert [model.id for model in again.models] == [model.id for model in listing.models]
    assert len({model.id for model in listing.models}) == 2


def test_master_json_has_the_message_and_the_order(store: Path, tmp_path: Path) -> None:
    (store / "master.json").write_text(json.dumps({"msg": "Welcome", "children": ["caffe/", "a model"]}))
    listing = model_store.read(str(store), tmp_path)
    assert listing.message == "Welcome"
    assert [model.folder for model in listing.models] == ["caffe", "a model"]


@pytest.mark.parametrize("child", ["../outside", "/etc", "..", "a/b", ""])
def test_names_that_lead_out_of_the_store_are_left_out(store: Path, tmp_path: Path, child: str) -> None:
    publish(tmp_path / "outside")
    (store / "master.json").write_text(json.dumps({"children": [child, "caffe"]}))
    assert [model.folder for model in model_store.read(str(store), tmp_path).models] == ["caffe"]


@pytest.mark.parametrize(
    ("master", "problem"),
    [("[]", "master.json"), ("{", "not valid JSON"), ('{"children": []}', "contains no models")],
)
def test_a_store_with_a_bad_list_has_a_problem(
    store: Path, tmp_path: Path, master: str, problem: str
) -> None:
    (store / "master.json").write_text(master)
    listing = model_store.read(str(store), tmp_path)
    assert not listing.models and problem in listing.problem


def test_damaged_models_are_named_and_others_listed(store: Path, tmp_path: Path) -> None:
    publish(store / "damaged", "{")
    listing = model_store.read(str(store), tmp_path)
    assert [model.folder for model in listing.models] == ["a model", "caffe"]
    assert "“damaged”" in listing.problem
    listing = model_store.read(str(tmp_path / "none"), tmp_path)
    assert not listing.models and "none" in listing.problem


@pytest.mark.integration
@pytest.mark.parametrize("has_master", [True, False])
def test_a_store_at_an_address(address: str, store: Path, tmp_path: Path, has_master: bool) -> None:
    if has_master:
        master = {"msg": "Welcome", "children": ["a model", "caffe", "missing"]}
        (store / "master.json").write_text(json.dumps(master))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    listing = model_store.read(address, scratch)
    assert [(model.folder, model.name) for model in listing.models] == [
        ("a model", "Digits"),
        ("caffe", "Old"),
    ]
    assert listing.models[0].aux == {"license": "CC0"} and listing.models[0].local_folder is None
    assert listing.message == ("Welcome" if has_master else "")
    assert ("“missing”" in listing.problem) == has_master
    downloaded = {path.name for path in scratch.rglob("*") if path.is_file()}
    assert downloaded == {"info.json", "aux.json"} | ({"master.json"} if has_master else set())


@pytest.mark.integration
def test_an_address_that_is_no_store_is_a_problem(address: str, tmp_path: Path) -> None:
    listing = model_store.read(address.replace("files", "missing"), tmp_path)
    assert not listing.models and listing.problem
    other = address.replace("files", odd_web_server.redirect_to("http://127.0.0.2:9/"))
    listing = model_store.read(other, tmp_path)
    assert not listing.models and "not allowed" in listing.problem


@pytest.mark.integration
def test_the_files_of_a_model_are_downloaded(address: str, tmp_path: Path) -> None:
    model = StoredModel(address, "a model", INFO, {})
    folder = tmp_path / "download"
    *_, last = model_store.download(model, folder, 10**6)
    assert sorted(path.name for path in folder.iterdir()) == ["info.json", "network.py"]
    assert last.files == 2 and last.bytes > 0
    with pytest.raises(Unavailable, match="“Digits” could not be downloaded"):
        list(model_store.download(model, tmp_path / "too large", 10))


@pytest.mark.parametrize(
    "change", [{"network file": "../network.py"}, {"snapshot file": "a/b"}, {"snapshot file": None}]
)
def test_a_model_with_invalid_file_names_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"info\.json of “Digits” is invalid"):
        next(model_store.download(StoredModel("http://store", "a", {**INFO, **change}, {}), tmp_path, 1))
