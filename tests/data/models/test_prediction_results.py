from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from digits.core.files import UnreadableFile
from digits.data.models.prediction_results import PredictionResults
from digits.data.models.predictions import ROWS_FILE, Row

LABELS = list("abcdefg")


def row(name: str, truth: int | None, *predicted: str, **more: Any) -> bytes:
    predictions = [[label, 10.0] for label in predicted] or None
    return msgspec.json.encode(Row(name, truth, predictions=predictions, **more)) + b"\n"


def names(results: PredictionResults, places: Any) -> list[str]:
    return [row.name for row in results.read(places)]


def test_sums_follow_the_rows_that_are_appended(tmp_path: Path) -> None:
    results = PredictionResults(tmp_path, LABELS)
    results.update()
    assert (len(results), results.accuracy(), results.matrix()) == (0, None, None)
    lines = [
        row("right", 0, "a", "b"),
        row("second", 1, "a", "b"),
        row("wrong", 6, "a", "b", "c", "d", "e", "g"),
        row("broken", 2, error="not an image"),
        row("unknown", None, "c"),
    ]
    path = tmp_path / ROWS_FILE
    for number, line in enumerate(lines):
        with open(path, "ab") as file:
            file.write(line[:9])
            file.flush()
            results.update()
            assert len(results) == number
            file.write(line[9:])
        results.update()
        assert names(results, [number]) == [msgspec.json.decode(line)["name"]]
    assert (results.judged, list(results.wrong), list(results.unreadable)) == (3, [1, 2], [3])
    assert (results.accuracy(), results.accuracy(5)) == (1 / 3, 2 / 3)
    matrix = results.matrix()
    assert matrix is not None and matrix.sum() == 3 and matrix[6, 0] == matrix[0, 0] == matrix[1, 0] == 1
    assert names(results, range(1, 5, 3)) == ["second", "unknown"]

    path.write_bytes(lines[4])  # started again
    results.update()
    assert (len(results), results.judged, names(results, [0])) == (1, 0, ["unknown"])


def test_damaged_rows_and_files_are_refused(tmp_path: Path) -> None:
    results = PredictionResults(tmp_path)
    path = tmp_path / ROWS_FILE
    path.write_bytes(row("good", None, "a") + b"[]\n")
    for _ in range(2):
        with pytest.raises(UnreadableFile, match=r"rows\.jsonl is damaged"):
            results.update()
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UnreadableFile):
        results.update()
