"""CSV files of texts: classes, positions, quoting, and errors with line numbers."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.tables.text_rows import read_rows
from digits.kinds.text import reader
from digits.kinds.text.characters import DEFAULT_ALPHABET, Encoding
from digits.kinds.text.lines import TextFile
from digits.kinds.text.recipe import CreateText
from tests.kinds.tables import write


def plan(table: Path, **options: object) -> Plan:
    return reader.read(CreateText(**{"table": str(table), "pct_val": 0.0, "width": 24} | options), Progress())


def contents(plan: Plan, split: str = "train") -> dict[str, tuple[str, str]]:
    """Return the class and the text of each record of a split by the name of its line."""
    part = plan.splits[split]
    source = part.images
    assert isinstance(source, TextFile)
    return {
        name: (plan.target.names[part.targets[place]], source.text(name))
        for place, name in enumerate(part.files)
    }


@pytest.mark.parametrize(
    "text",
    [
        'a,one\nb,"two, three"\n',
        'a,one\r\nb,"two, three"\r\n',
        '\N{BYTE ORDER MARK}a,one\nb,"two, three"',
        "class,text\na,one\n\nb,two,three\n",
        'Label,title,text\na, one \nb,"two,",three\n',
        "a\tone\nb\ttwo, three\n",
        "a;one\nb;two, three\n",
        '"a"|one\n"b"|"two, three"\n',
        'a,one\nb,"two,\nthree"\n',
    ],
)
def test_the_layouts_of_texts(tmp_path: Path, text: str) -> None:
    found = sorted(contents(plan(write(tmp_path, text))).values())
    assert [(label, words.replace(",", "")) for label, words in found] == [("a", "one"), ("b", "two three")]


def test_the_delimiter_and_the_header_can_be_given(tmp_path: Path) -> None:
    table = write(tmp_path, "kind^words\na^one\nb^two, three\n")
    found = contents(plan(table, delimiter="^", header="yes"))
    assert found == {"line 2": ("a", "one"), "line 3": ("b", "two, three")}
    assert len(contents(plan(table, delimiter="^", header="no"))) == 3
    table = write(tmp_path, "label,one\nb,two\n")
    assert sorted(contents(plan(table, header="no")).values()) == [("b", "two"), ("label", "one")]


def test_a_record_has_the_numbers_of_its_characters(tmp_path: Path) -> None:
    made = plan(write(tmp_path, "1,Ab?é\0z\n2,b\n"), alphabet="abz?", width=8)
    part = made.splits["train"]
    place = list(part.files).index("line 1")
    picture = Image.open(io.BytesIO(part.images.read("line 1")))
    assert picture.size == (8, 1)
    assert np.asarray(picture).tolist() == [[1, 2, 4, 0, 0, 3, 0, 0]]
    assert made.target.names[part.targets[place]] == "1"
    assert Encoding("aB", 3).encode("Abcd")[0, :, 0].tolist() == [1, 2, 0]


def test_classes_are_sorted_as_numbers_if_they_are(tmp_path: Path) -> None:
    assert plan(write(tmp_path, "10,x\n9,y\n")).target.names == ["9", "10"]
    assert plan(write(tmp_path, "b,x\na,y\nb,z\n")).target.names == ["a", "b"]


def test_a_list_of_classes_gives_numbers_names(tmp_path: Path) -> None:
    labels = write(tmp_path, "animal\nvillage\nfilm\n", "classes.txt")
    made = plan(write(tmp_path, "2,x\n1,y\nvillage,z\n"), labels_file=str(labels))
    assert sorted(contents(made).values()) == [("animal", "y"), ("village", "x"), ("village", "z")]
    assert made.warnings == ["Classes without training texts: film."]
    with pytest.raises(
        UnusableSource, match=r"2 lines .*: unknown class “…”: line 2 \(“4”\), line 3 \(“0”\)"
    ):
        plan(write(tmp_path, "2,x\n4,y\n0,z\n"), labels_file=str(labels))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a,x\nb\nc,\n,z\n",
            r"3 lines of .*: the text is missing \(2 times\): line 2, line 3; line 4: the class",
        ),
        (b"a,x\nb,\xff\n", "line 2: not UTF-8 text"),
        ('a,x\nb,"y' + "\nz" * 70_000, "line 2: the row cannot be read .*field limit"),
        ("a,x\nb," + "y" * (1 << 20), "line 2: the line is longer than 1 MiB"),
        ('a,x\nb,"y\nc,z\n', "line 2: the row cannot be read .*unexpected end"),
        ("a,x\ra,y\r", "line 1: the row cannot be read"),
        ("class,text\n", "has no rows"),
        ("", "has no rows"),
        ("a,x\na,y\n", "All texts have the same class"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UnusableSource, match=words):
        plan(write(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "nothing.csv"}, "No such file"),
        ({"alphabet": "aba"}, "more than once"),
        ({"labels_file": "latin.txt"}, "line 2, is not UTF-8"),
        ({"labels_file": "labels.txt"}, "lists classes more than once: a"),
        ({"val_table": "val.csv"}, r"val.csv .*line 2: unknown class “c”"),
    ],
)
def test_missing_files_and_invalid_settings_are_explained(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    write(tmp_path, b"a\n\xff\n", "latin.txt")
    write(tmp_path, "a\nb\na\n", "labels.txt")
    write(tmp_path, "a,x\nc,y\n", "val.csv")
    files = {name: value if name == "alphabet" else str(tmp_path / value) for name, value in options.items()}
    table = files.pop("table", str(write(tmp_path, "a,x\nb,y\n")))
    with pytest.raises(UnusableSource, match=words):
        plan(Path(table), **files)


def test_a_separate_table_replaces_the_split(tmp_path: Path) -> None:
    table = write(tmp_path, "".join(f"{number % 3},text {number}\n" for number in range(40)))
    val = write(tmp_path, "0,x\n2,y\n", "val.csv")
    separate = plan(table, val_table=str(val), pct_val=50.0)
    assert len(separate.splits["train"]) == 40
    assert sorted(contents(separate, "val").values()) == [("0", "x"), ("2", "y")]
    assert np.array(separate.counts(separate.splits["val"], range(2))).tolist() == [1, 0, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from("xyz"), st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1)
        ),
        min_size=1,
    )
)
def test_every_written_text_is_found_at_its_position(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    rows = [("w", "first"), *((label, words) for label, words in rows if words.split())]
    table = tmp_path / "texts.csv"
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    expected = [(label, " ".join(words.split())) for label, words in rows]
    assert [(row.label, row.text) for row in read_rows(table)] == expected
    if len({label for label, _ in rows}) > 1:
        assert sorted(contents(plan(table)).values()) == sorted(expected)


@pytest.mark.slow
def test_texts_are_not_kept_in_memory(tmp_path: Path) -> None:
    count = 20_000
    table = write(tmp_path, "".join(f"{number % 2},{number} {'word ' * 60}\n" for number in range(count)))
    assert table.stat().st_size > 6_000_000
    tracemalloc.start()
    try:
        made = plan(table, alphabet=DEFAULT_ALPHABET)
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made.splits["train"]) == count
    assert used < 60 * count and peak < 200 * count
