"""The documentation site, which the server shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site import Site

ROOT = Path(__file__).resolve().parents[3]


def test_pages_are_shown_with_a_policy_that_allows_only_the_script_of_the_theme(site: Site) -> None:
    answer = site.get("/docs/networks.html")
    assert answer.status_code == 200 and "<h1" in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert re.search(r"script-src 'self' 'sha256-[\w+/]+='; ", policy)
    assert site.get("/docs/_static/styles/furo.css").mimetype == "text/css"
    assert site.get("/docs/searchindex.js").status_code == 200


def test_the_footer_links_to_the_index_and_names_of_sources_lead_to_their_pages(site: Site) -> None:
    assert 'href="/docs/"' in site.get("/").text
    assert "networks.html" in site.get("/docs/").text
    assert site.get("/docs/networks.md").headers["Location"] == "/docs/networks.html"


@pytest.mark.parametrize("name", ["none.html", "..%2fvendor%2fuplot.js", "images"])
def test_other_files_are_not_shown(site: Site, name: str) -> None:
    assert site.get(f"/docs/{name}").status_code == 404


def test_all_links_of_pages_to_the_documentation_work(site: Site) -> None:
    sources = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "digits").rglob("templates/*.html")]
    links = {link for path in sources for link in re.findall(r"/docs/([\w-]+\.[\w#-]+)", path.read_text())}
    assert links
    for link in links:
        page, _, anchor = link.partition("#")
        answer = site.get(f"/docs/{page}", follow_redirects=True)
        assert answer.status_code == 200 and (not anchor or f'id="{anchor}"' in answer.text), link
