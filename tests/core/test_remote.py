"""Remote addresses, and which of them are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.core.errors import BadRequest, NotAllowed
from digits.core.remote import (
    Credentials,
    CredentialStore,
    RemotePolicy,
    is_address,
    parse,
    replace_texts,
    sources_in,
    take_credentials,
)
from digits.core.settings import SettingsError, read_settings


def test_addresses_differ_from_paths() -> None:
    assert (
        is_address("s3://bucket/images")
        and is_address(" https://host/")
        and is_address("simplecache::s3://x")
    )
    assert (
        not is_address("/data/images")
        and not is_address("~/data")
        and not is_address("")
        and not is_address(None)
    )


@pytest.mark.parametrize(
    "text",
    [
        "https://",
        "https:///etc",
        "https://user@host/",
        "https://host/?a=b",
        "https://host/#a",
        "https://host/a/../b",
        "https://host/a/%2e%2e/b",
        "https://host/a%2Fb",
        "https://host:99999/",
        "https://ho st/",
        "s3://buc ket/",
        "s3://bucket/a\nb",
        "zip::https://host/a.zip",
        "memory://x",
        "https://host/" + "a" * 2000,
    ],
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(BadRequest):
        parse(text)


def test_an_item_allows_what_is_below_it() -> None:
    policy = RemotePolicy(
        ["https://data.example/open", "s3://My-*", "http://lan:8080", "https://*.example.org"]
    )
    for text in (
        "https://DATA.example:443/open/a",
        "s3://my-images/a",
        "http://lan:8080/",
        "https://a.example.org",
    ):
        policy.check(text, need_driver=False)
    for text in (
        "https://data.example/opened",
        "https://data.example/",
        "https://data.example:8443/open",
        "http://data.example/open",
        "http://lan/",
        "https://example.org.evil",
    ):
        with pytest.raises(NotAllowed):
            policy.check(text, need_driver=False)
    assert policy.names("lan", 8080) and policy.names("data.example", 443)
    assert not policy.names("lan", 80) and not policy.names("a.example.org", 443)


def test_the_sources_in_a_recipe() -> None:
    recipe = {"a": ["https://h/t.csv", {"b": "https://h"}], "c": "https://h/unused-prefix"}
    found = sources_in(recipe, {"https://h/t.csv": "file", "https://other": "folder"})
    assert found == {"https://h": "folder", "https://h/t.csv": "file"}


def test_texts_are_replaced_at_every_depth() -> None:
    recipe = {"a": ["https://h", {"b": "https://h"}], "https://h": 1, "c": "https://h/below"}
    new = {"a": ["/copy", {"b": "/copy"}], "https://h": 1, "c": "https://h/below"}
    assert replace_texts(recipe, {"https://h": "/copy"}) == new


def test_credentials_are_read_once(tmp_path: Path) -> None:
    store = CredentialStore(tmp_path / "keys")
    credentials = Credentials(access_key="a", secret_key="b")
    path = store.save("job", credentials)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert take_credentials(str(path)) == credentials
    assert take_credentials(str(path)) is None
    kept = [store.save(name, credentials) for name in ("old", "new")]
    store.keep_only(["new"])
    assert [item.exists() for item in kept] == [False, True]
    assert "b" not in repr(credentials).removeprefix("Credentials")


def test_the_setting_is_checked() -> None:
    settings = read_settings({"DIGITS_REMOTE_ADDRESSES": "s3://*, https://data.example/"})
    assert settings.remote_addresses == ("s3://*", "https://data.example")
    for text in ("file:///", "data.example", "https://", "memory://x"):
        with pytest.raises(SettingsError, match="takes addresses such as"):
            read_settings({"DIGITS_REMOTE_ADDRESSES": text})
