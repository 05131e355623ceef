"""Names in zip archives that do not state their encoding."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib

import pytest

from digits.core.errors import BadRequest
from digits.data.archives.zip_names import Names, UnclearNames, decode_names, encoding_named


def member(raw: bytes, flags: int = 0, extra: bytes = b"") -> zipfile.ZipInfo:
    """An entry as it is read from an archive whose directory contains ``raw``."""
    place = (20, 20, flags, 0, 0, 33, 0, 0, 0, len(raw), len(extra), 0, 0, 0, 0, 0)
    central = struct.pack("<4s6H3L5H2L", b"PK\1\2", *place) + raw + extra
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(central), 0, 0)
    return zipfile.ZipFile(io.BytesIO(central + end)).infolist()[0]


def unicode_path(raw: bytes, name: str, version: int = 1) -> bytes:
    body = struct.pack("<BL", version, zlib.crc32(raw)) + name.encode()
    return struct.pack("<2H", 0x5455, 5) + b"times" + struct.pack("<2H", 0x7075, len(body)) + body


def decoded(names: list[str], encoding: str, chosen: str = "") -> Names:
    return decode_names([member(name.encode(encoding)) for name in names], chosen)


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("utf-8", ["模型/猫.png", "Käfer.png"]),
        ("cp437", ["Käfer/1.png", "Weiß/2.png"]),
        ("cp437", ["Öl", "Ä1", "été", "CaféRouge"]),
        ("ascii", ["train\\cat\\1.png"]),
    ],
)
def test_usual_names_are_read_without_a_note(encoding: str, names: list[str]) -> None:
    assert decoded(names, encoding) == Names(names)


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("gbk", ["data/猫/猫0.png", "data/狗/狗1.png"]),
        ("gbk", ["A类/1.png", "B类/2.png"]),
        ("gbk", ["新建文件夹/照片（1）.jpg"]),
        ("big5", ["貓/1.png", "狗/2.png"]),
        ("cp932", ["猫/1.png", "犬/2.png"]),
        ("cp932", ["表/ソ.png", "画像１.png"]),  # with backslashes among their bytes
        ("cp1252", ["Käfer", "Größe"]),
        ("cp1252", ["pájaro"]),
        ("cp1252", ["dog’s – copy.png"]),
        ("cp850", ["São Paulo", "À la carte"]),
        ("cp866", ["кошка", "собака"]),
        ("cp866", ["КОШКА"]),
        ("cp1251", ["кошка", "Собака"]),
    ],
)
def test_the_only_plausible_encoding_is_used_and_noted(encoding: str, names: list[str]) -> None:
    found = decoded(names, encoding)
    assert found.texts == names
    assert names[0] in found.note
    assert encoding in found.note or encoding in ("gbk", "big5", "cp932")


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("cp949", ["고양이", "강아지", "자동차"]),  # also Chinese
        ("cp932", ["人"]),  # also “Él”
    ],
)
def test_several_plausible_encodings_are_named(encoding: str, names: list[str]) -> None:
    with pytest.raises(UnclearNames, match=re.escape(f"{encoding} (“{names[0]}”)")):
        decoded(names, encoding)
    assert decoded(names, encoding, encoding).texts == names


def test_a_chosen_encoding_must_decode_all_names() -> None:
    with pytest.raises(UnclearNames, match="not encoded in cp1252") as error:
        decoded(["Á", "\x81"], "latin-1", "cp1252")
    assert "cp1252 (" not in str(error.value)


def test_the_field_with_the_unicode_name_is_used_if_it_belongs_to_the_name() -> None:
    raw = "猫".encode("gbk")
    assert decode_names([member(raw, extra=unicode_path(raw, "Katze"))]) == Names(["Katze"])
    renamed = decode_names([member(raw, extra=unicode_path(b"old", "Katze")), member("狗".encode("gbk"))])
    assert renamed.texts == ["猫", "狗"]
    later = unicode_path(raw, "Katze", version=2)
    assert decode_names([member(raw, extra=later), member("狗".encode("gbk"))]).texts == ["猫", "狗"]


def test_names_with_the_flag_are_not_part_of_the_guess() -> None:
    names = decode_names(
        [member("Käfer".encode(), 0x800), member("猫".encode("gbk")), member("狗".encode("gbk"))]
    )
    assert names.texts == ["Käfer", "猫", "狗"]


def test_encodings_have_their_usual_names() -> None:
    assert [encoding_named(name) for name in ("Shift_JIS", "sjis", "GB2312", "utf8", "latin1", "cp437")] == [
        "cp932", "cp932", "gbk", "utf-8", "cp1252", "cp437"
    ]  # fmt: skip
    assert encoding_named("") == ""
    for name in ("utf-7", "none", "none\0"):
        with pytest.raises(BadRequest):
            encoding_named(name)
