"""Addresses of static files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from digits.web.responses.assets import Assets
from tests.site import Site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of static files, in which the modules a, b and c import each other in this order."""
    (tmp_path / "js").mkdir()
    (tmp_path / "vendor").mkdir()
    (tmp_path / "js/page.js").write_text("import { b } from './b.js';\n")
    (tmp_path / "js/a.js").write_text("import {\n  b,\n} from './b.js';\nimport '../vendor/x.js';\nb(1);\n")
    (tmp_path / "js/b.js").write_text("export { c } from './c.js';\nimport { a } from './a.js';\n")
    (tmp_path / "js/c.js").write_text("const text = `\n  from './missing.js';`;\n")
    (tmp_path / "js/alone.js").write_text("import { x } from '../vendor/x.js';\nx();\n")
    (tmp_path / "vendor/x.js").write_text("export const x = 1;\n")
    return tmp_path


def open_assets(folder: Path, *, watch: bool = False) -> tuple[Assets, FlaskClient]:
    app = Flask("digits", static_folder=str(folder), static_url_path="/static")
    return Assets(app, "/digits", watch=watch), app.test_client()


def test_browsers_keep_a_file_until_any_file_changes(folder: Path) -> None:
    assets, client = open_assets(folder)
    address = assets.url("js/c.js").removeprefix("/digits")
    assert re.fullmatch(r"/static/v-[0-9a-f]{12}/js/c\.js", address)
    assert "immutable" in client.get(address, buffered=True).headers["Cache-Control"]
    # Without its digest, a file may be of another version.
    for other in ("/static/js/c.js", address.replace("/v-", "/v-0")):
        assert client.get(other, buffered=True).headers["Cache-Control"] == "no-cache"
    (folder / "vendor/x.js").write_text("export const x = 2;\n")
    assert assets.url("js/c.js").endswith(address)
    assert not open_assets(folder)[0].url("js/c.js").endswith(address)


def test_files_are_watched_during_development(folder: Path) -> None:
    assets, _ = open_assets(folder, watch=True)
    before = assets.url("js/c.js")
    (folder / "js/new.js").touch()
    assert assets.url("js/c.js") != before


def test_a_missing_file_is_not_found(folder: Path) -> None:
    assets, client = open_assets(folder)
    for name in ("js/none.js", "../secret", "js"):
        address = assets.url(name).removeprefix("/digits")
        assert client.get(address).status_code == 404


def test_a_script_preloads_the_modules_below_it(folder: Path) -> None:
    assets, _ = open_assets(folder)

    def preloaded(name: str) -> list[str]:
        *links, script = str(assets.script(name)).splitlines()
        assert script.strip() == f'<script type="module" src="{assets.url(name)}"></script>'
        assert all("modulepreload" in link for link in links)
        return re.findall(r'/v-\w+/([^"]+)"', "".join(links))

    assert preloaded("js/page.js") == ["js/a.js", "js/b.js", "js/c.js", "vendor/x.js"]
    # The script of every page has already loaded the others.
    assert preloaded("js/alone.js") == []


def test_pages_load_each_module_once(site: Site) -> None:
    text = site.client.get("/").text
    addresses = re.findall(r'(?:href|src)="(/static/[^"]+)"', text)
    assert "js/home_page.js" in {address.split("/", 3)[3] for address in addresses}
    assert len(addresses) == len(set(addresses))
    for address in addresses:
        answer = site.client.get(address, buffered=True)
        assert answer.status_code == 200 and "immutable" in answer.headers["Cache-Control"]
