"""Documentation pages."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import gevent
import markdown
import pytest

from digits.web.pages.documentation import Pages
from tests.site import Site

PAGES = sorted(path.name for path in (Path(__file__).resolve().parents[3] / "docs").glob("*.md"))


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


def test_a_page_is_rendered_once_and_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    render = markdown.markdown

    def slow(*arguments: Any, **keywords: Any) -> str:
        threads.append(threading.get_ident())
        time.sleep(0.02)
        return render(*arguments, **keywords)

    monkeypatch.setattr(markdown, "markdown", slow)
    (tmp_path / "page.md").write_text("# A title\n\nA text.\n")
    pages = Pages(tmp_path)
    requests = [gevent.spawn(pages.get, "page.md") for _ in range(3)]
    gevent.joinall(requests, raise_error=True)
    assert {request.value[0] for request in requests} == {"A title"}
    assert pages.get("page.md") == requests[0].value
    assert len(threads) == 1 and threading.get_ident() not in threads
