"""Unexpected errors and debug mode."""

from __future__ import annotations

import _thread
from pathlib import Path

import jinja2
import pytest

from tests.site import Site, open_idle_site, open_site, site_settings


def fail() -> str:
    raise RuntimeError("a fault of the server")


@pytest.mark.parametrize("debug", [False, True])
def test_tracebacks_are_shown_only_in_debug_mode(tmp_path: Path, debug: bool) -> None:
    site: Site = open_site(site_settings(tmp_path, debug=debug))
    try:
        site.app.add_url_rule("/fail", view_func=fail)
        page = site.get("/fail", headers={"Accept": "text/html"})
        body = site.get("/fail", headers={"Accept": "application/json"})
    finally:
        site.close()
    assert page.status_code == body.status_code == 500
    assert "The details are in the server" in page.text
    for text in (page.text, body.get_json()["error"].get("details", "")):
        assert ("RuntimeError: a fault of the server" in text) is debug
        assert ("in fail" in text) is debug


@pytest.mark.parametrize("debug", [False, True])
def test_changed_files_are_reloaded_only_in_debug_mode(tmp_path: Path, debug: bool) -> None:
    site: Site = open_site(site_settings(tmp_path, debug=debug))
    try:
        assert site.app.jinja_env.auto_reload is debug
    finally:
        site.close()


def test_templates_are_compiled_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    compile_template = jinja2.Environment.compile

    def compile_here(*arguments: object, **keywords: object) -> object:
        threads.append(_thread.get_ident())
        return compile_template(*arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(jinja2.Environment, "compile", compile_here)
    site = open_idle_site(site_settings(tmp_path))
    try:
        assert site.get("/login").status_code == 200
    finally:
        site.services.stop()
    assert threads and _thread.get_ident() not in threads
