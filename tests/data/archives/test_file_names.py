"""File names made from texts of users."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from digits.data.archives.file_names import (
    MAX_NAME_BYTES,
    numbered_name,
    safe_name,
    unique_names,
    uploaded_name,
)


@given(st.lists(st.text(max_size=300)))
def test_names_are_valid_and_unique(texts: list[str]) -> None:
    names = unique_names(texts)
    assert len({name.casefold() for name in names}) == len(texts)
    for name in names:
        assert 0 < len(name.encode()) <= 255
        assert not set(name) & set('/\\:*?"<>|\0\n') and name not in (".", "..")


def test_ordinary_names_stay_the_same() -> None:
    names = ["cat", "Siberian Husky", "猫", "école", "a.b"]
    assert unique_names(names) == names
    assert safe_name("nul.txt") == "_nul.txt"


@given(st.text(), st.sampled_from([".keras", ".weights.h5", ".tar.gz"]))
def test_names_of_uploads_keep_their_ending(stem: str, ending: str) -> None:
    name = uploaded_name(f"C:\\models/{stem}{ending}")
    assert name.endswith(ending.rpartition(".")[2]) and len(name.encode()) <= MAX_NAME_BYTES + 1
    assert uploaded_name(f"{40 * '权'}{40 * '重'}{ending}").endswith(f".{ending.rpartition('.')[2]}")


def test_names_of_uploads_in_any_script() -> None:
    for name in ("веса.keras", "权重.h5", "وزن.zip", "a b.tar.gz"):
        assert uploaded_name(f"folder/{name}") == name
    assert uploaded_name("") == uploaded_name("/") == "upload"


@given(st.binary(max_size=300))
def test_the_name_of_a_source_follows_its_number(path: bytes) -> None:
    name = numbered_name(12, path)
    assert name.startswith("000012") and "/" not in name and len(name.encode()) <= 200
