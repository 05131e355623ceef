"""Image lists and batch prediction files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.data.models import predictions
from digits.data.models.predictions import BatchPrediction, ListedImage, Problem


@given(st.text(max_size=300), st.integers(0, 5))
def test_any_text_can_be_parsed_as_a_list(text: str, classes: int):
    found, problems = predictions.parse_list(io.StringIO(text), classes)
    # Like a file: a name may contain the other characters at which str.splitlines splits.
    lines = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
    assert len(found) + sum("null" in problem.message for problem in problems) == len(lines)
    for path, truth in found:
        assert path == path.strip() != ""
        assert truth is None or 0 <= truth < classes


@given(st.lists(st.tuples(st.from_regex(r"[\w./ -]*[\w/]", fullmatch=True), st.integers(0, 9)), max_size=20))
def test_the_last_space_separates_path_and_class(lines: list[tuple[str, int]]):
    text = "\r\n".join(f"{path} {number}" for path, number in lines)
    found, problems = predictions.parse_list(io.StringIO(text), 10)
    assert not problems
    assert found == [(path.strip(), number) for path, number in lines]


def test_a_class_out_of_range_is_reported_with_its_line():
    found, problems = predictions.parse_list(
        io.StringIO("\ufeffa.png 1\n\nb c.png -1\nd.png 3\n7\ne\0.png\n"), 3
    )
    assert found == [("a.png", 1), ("b c.png", None), ("d.png", None), ("7", None)]
    assert [problem.line for problem in problems] == [3, 4, 6]
    assert problems[1] == Problem(4, "The class 3 is not between 0 and 2.")


def test_a_batch_prediction_is_read_as_it_was_written(tmp_path: Path):
    about = BatchPrediction(
        id=predictions.new_id(), title="two", snapshot="snapshot_1.ckpt", epoch=1, at=0, total=2
    )
    folder = predictions.folder_of(tmp_path, about.id)
    folder.mkdir(parents=True)
    listed = [ListedImage("/a.png", "a.png", 1), ListedImage("/b.png", "b.png")]
    predictions.write(folder, about, listed)
    assert predictions.load_all(tmp_path) == [about]
    assert predictions.load_list(folder) == listed
    with pytest.raises(UnreadableFile):
        predictions.load(tmp_path, "../elsewhere")


def test_the_list_is_read_up_to_the_limit():
    lines = iter(["\n", "a.png\n", "\0\n", "b" * 20_000, *["c.png\n"] * 10])
    found, problems = predictions.parse_list(lines, 0, limit=4)
    assert found == [("a.png", None), ("c.png", None)]
    assert [problem.line for problem in problems] == [3, 4]
    assert len(list(lines)) == 9
