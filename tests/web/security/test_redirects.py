"""Addresses of this site to which a browser is redirected."""

from __future__ import annotations

import pytest

from digits.web.security.redirects import site_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("//evil.example/x", "/evil.example/x"),
        ("/\\evil.example", "/%5Cevil.example"),
        ("///", "/"),
        ("/a b\r\n", "/a%20b%0D%0A"),
        ("/ä".encode().decode("latin-1"), "/%C3%A4"),
    ],
)
def test_own_url_is_safe_as_a_redirect(path: str, expected: str) -> None:
    assert site_path({"SCRIPT_NAME": "", "PATH_INFO": path}, "") == expected
