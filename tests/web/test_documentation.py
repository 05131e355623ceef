"""Documentation pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site import Site

PAGES = sorted(path.name for path in (Path(__file__).resolve().parents[2] / "docs").glob("*.md"))


def test_every_page_is_shown_and_its_links_work(site: Site) -> None:
    shown = {name: site.get(f"/docs/{name}", follow_redirects=True) for name in PAGES}
    assert {answer.status_code for answer in shown.values()} == {200}
    anchors = {name: set(re.findall(r'id="([^"]+)"', answer.text)) for name, answer in shown.items()}
    for name, answer in shown.items():
        for target, anchor in re.findall(r'href="([\w-]+\.md)?(?:#([^"]+))?"', answer.text):
            if target or anchor:
                page = target or name
                assert page in shown and (not anchor or anchor in anchors[page]), (name, target, anchor)


def test_the_footer_links_to_the_index(site: Site) -> None:
    assert 'href="/docs/"' in site.get("/").text
    assert "<h1" in site.get("/docs/").text and "networks.md" in site.get("/docs/").text


@pytest.mark.parametrize("name", ["none.md", "..%2fsetup.py", "images", "settings.py", ".hidden.md"])
def test_other_files_are_not_shown(site: Site, name: str) -> None:
    assert site.get(f"/docs/{name}").status_code == 404


def test_the_editor_links_to_existing_examples(site: Site) -> None:
    job_id = site.dataset()
    form = site.get("/models/images/classification/new").text
    anchor = re.search(r"/docs/networks\.md#([\w-]+)", form)
    assert anchor and f'id="{anchor[1]}"' in site.get("/docs/networks.md").text
    site.wait_for_end(job_id)
