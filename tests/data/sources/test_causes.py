"""Messages about faults: each cause once, the most frequent first, with examples and a remedy."""

from __future__ import annotations

import pytest

from digits.data.sources import causes
from digits.data.sources.causes import Causes, advise_limit, enough_percent


def found(*faults: tuple[str, str]) -> Causes:
    collected = Causes()
    for place, reason in faults:
        collected.add(place, reason)
    return collected


def test_no_fault_says_nothing() -> None:
    assert (found().count, found().describe(), found().remedy) == (0, "", "")


def test_a_single_fault_keeps_its_words() -> None:
    collected = found(("line 2", "“0,5” is not a number (angle)"))
    assert collected.describe() == "line 2: “0,5” is not a number (angle)"
    assert collected.remedy == "Write numbers like 1.5."


def test_values_that_differ_are_with_their_places() -> None:
    collected = found(*((f"line {line}", f"“{line},5” is not a number (angle)") for line in range(2, 12)))
    assert collected.describe() == (
        "“…” is not a number (angle): line 2 (“2,5”), line 3 (“3,5”), line 4 (“4,5”) and 7 more"
    )


def test_the_most_frequent_cause_is_first() -> None:
    empty = [(f"{number}.png", "the file is empty") for number in range(4)]
    collected = found(("a.svg", "not an image (it looks like SVG)"), *empty)
    assert collected.describe() == (
        "the file is empty (4 times): 0.png, 1.png, 2.png and 1 more; a.svg: not an image (it looks like SVG)"
    )
    assert collected.remedy == "Copy these files again from where they came from."


def test_numbers_and_names_of_files_do_not_divide_a_cause() -> None:
    collected = found(
        ("", "b/2.png: the file is empty"),
        ("", "b/17.png: the file is empty"),
        ("x", "9000×8000 pixels is more than the limit of 50,000,000 pixels"),
        ("y", "9500×8000 pixels is more than the limit of 50,000,000 pixels"),
    )
    assert collected.describe() == (
        "…: the file is empty (2 times): b/2.png, b/17.png; "
        "… pixels is more than the limit of 50,000,000 pixels (2 times): x (9000×8000), y (9500×8000)"
    )


def test_a_value_that_repeats_the_place_is_not_said_again() -> None:
    collected = found(("a.xml", "a.xml has no objects"), ("b.xml", "b.xml has no objects"))
    assert collected.describe() == "… has no objects: a.xml, b.xml"


def test_a_place_within_a_file_is_no_part_of_the_cause() -> None:
    collected = found(("a.xml", "line 3: mismatched tag"), ("b.xml", "line 11: mismatched tag"))
    assert collected.describe() == "mismatched tag: a.xml, line 3; b.xml, line 11"


def test_long_values_are_clipped() -> None:
    collected = found(("line 1", f"“{'x' * 500}” is wrong"), ("line 2", "“y” is wrong"))
    assert len(collected.describe()) < 120 and "…”), line 2 (“y”)" in collected.describe()


def test_causes_beyond_the_first_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = [
        ("a", "one"),
        ("b", "two"),
        ("c", "three"),
        ("d", "four"),
        ("e", "five"),
        ("f", "six"),
        ("g", "seven"),
    ]
    assert found(*reasons).describe() == (
        "a: one; b: two; c: three; d: four; e: five; and 2 more for other reasons"
    )
    monkeypatch.setattr(causes, "MAX_CAUSES", 2)
    assert found(*reasons).describe() == "other reasons (5 times): c, d, e and 2 more; a: one; b: two"


@pytest.mark.parametrize(("count", "total", "percent"), [(1, 12, 9), (1, 100, 1), (1, 3, 34), (5, 5, 100)])
def test_the_limit_that_is_enough(count: int, total: int, percent: int) -> None:
    assert enough_percent(count, total) == percent
    assert count * 100 <= total * percent
    assert f"(max_unusable_percent) to {percent} to create the dataset" in advise_limit(percent)
