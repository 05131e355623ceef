"""XML in any encoding becomes UTF-8: the declared encoding, unless the text shows that it is another one."""

from __future__ import annotations

import pytest

from digits.data.xml_text import to_utf8


def xml(encoding: str, text: str) -> str:
    declared = f' encoding="{encoding}"' if encoding else ""
    return f'<?xml version="1.0"{declared}?>\n<a>{text}</a>'


@pytest.mark.parametrize(
    ("declared", "text", "encoding"),
    [
        ("gb2312", "方", "gbk"),
        ("gb2312", "方", "utf-8"),
        ("GBK", "猫", "gbk"),  # these bytes are è in UTF-8
        ("GB2312", "镕㐀", "gb18030"),  # not in GB2312
        ("gb2312", "方形", "utf-8"),  # these bytes are three characters in GBK
        ("big5", "貓", "big5"),
        ("Shift_JIS", "猫①", "cp932"),
        ("x-sjis", "ねこ", "cp932"),
        ("euc-jp", "猫", "euc_jp"),
        ("iso-2022-jp", "猫", "iso2022_jp"),
        ("EUC-KR", "고양이", "euc_kr"),
        ("ks_c_5601-1987", "똠", "cp949"),
        ("windows-1251", "кот", "cp1251"),
        ("windows-1251", "кот", "utf-8"),
        ("iso-8859-1", "chaîne", "latin-1"),
        ("utf-16", "猫", "utf-16"),
        ("utf-16", "猫", "utf-8"),
        ("utf-16", "cat", "utf-16-le"),
        ("utf-8", "猫", "utf-8-sig"),
        ("no-such", "猫", "utf-8"),
        ("", "猫", "utf-8"),
    ],
)
def test_the_text_of_any_encoding_is_read(declared: str, text: str, encoding: str) -> None:
    data = xml(declared, text).encode(encoding)
    assert to_utf8(data).decode() == xml(declared, text)


@pytest.mark.parametrize(
    ("declared", "data", "message"),
    [
        ("", "方".encode("gbk"), "line 2: not UTF-8 text; save the file as UTF-8, or declare its encoding"),
        ("utf-8", "猫".encode("cp932"), "line 2: not UTF-8 text"),
        ("gb2312", b"\xff", "line 2: not text in gb18030; save the file as UTF-8"),
        ("no-such", b"\xff", "the encoding “no-such” is unknown; save the file as UTF-8"),
        ("base64", b"\xff", "the encoding “base64” is unknown"),
        ("punycode", b"\xff", "the encoding “punycode” is unknown"),
    ],
)
def test_text_that_is_in_no_known_encoding_is_refused(declared: str, data: bytes, message: str) -> None:
    before, after = xml(declared, "|").encode().split(b"|")
    with pytest.raises(ValueError, match=message):
        to_utf8(before + data + after)
