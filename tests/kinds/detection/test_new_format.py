"""A format of annotations is one module and its entry in the table: everything else follows from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import digits.kinds.detection
from digits.kinds.detection.recipe import CreateDetection

MODULE = '''
"""Corners: a file with the name of an image, the edges of a box and its class per line."""

from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.sources.shapes import Rectangle, Shape


def _open(source: Source) -> Annotations:
    rows = (line.split() for line in source.labels.read_text().splitlines())
    return Annotations(
        AnnotatedImage(name, [Shape(label, Rectangle(*map(float, edges)), name)]) for name, *edges, label in rows
    )


FORMAT = Format("corners", "Corners", _open, (".corners",), words="Corners (plain text)")
'''
# Runs in a process of its own: `digits.kinds.detection` is the copy with the new module.
SCRIPT = """
import json, sys
from pathlib import Path

import digits.kinds

folder = Path(sys.argv[1])
digits.kinds.__path__.insert(0, str(folder))
from flask import Flask
from werkzeug.datastructures import MultiDict

from digits.data.data_roots import Roots
from digits.data.sources.plan import Progress
from digits.kinds.detection import form, reader, views
from digits.kinds.detection.formats.formats import find_format
from digits.kinds.forms.previews import summarize

values = {"train_image_folder": str(folder / "images"), "train_label_folder": str(folder / "a.corners")}
values |= {"pct_val": "0", "resize_width": "80", "resize_height": "40"}
Flask("digits").app_context().push()
meta = {"data_roots": Roots([folder]), "csrf": False, "job_folder": None}
filled = form.DatasetForm(MultiDict(values), meta=meta)
summary = summarize(filled)
found = reader.read(filled.recipe(), Progress())
print(json.dumps({
    "choices": [choice.label for choice in filled.format.choices],
    "texts": [filled.annotations_help, views.Views.invitation],
    "detected": find_format(folder / "a.corners").name,
    "summary": summary.facts,
    "boxes": found.splits["train"].targets[0].tolist(),
}))
"""


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A folder with the package of the kind and one more format, and with annotations in it."""
    package = tmp_path / "detection"
    shutil.copytree(Path(digits.kinds.detection.__path__[0]), package)
    (package / "formats" / "corners.py").write_text(MODULE)
    table = package / "formats" / "formats.py"
    text = table.read_text()
    assert text.count("    coco,\n") == text.count("        coco.FORMAT,\n") == 1
    text = text.replace("    coco,\n", "    coco,\n    corners,\n")
    table.write_text(
        text.replace("        coco.FORMAT,\n", "        coco.FORMAT,\n        corners.FORMAT,\n")
    )
    (tmp_path / "images").mkdir()
    Image.new("L", (80, 40)).save(tmp_path / "images" / "a.png")
    (tmp_path / "a.corners").write_text("a.png 10 5 30 25 cat\n")
    return tmp_path


def test_a_new_format_is_in_the_form_and_is_detected_and_read(extended: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(extended)], stdout=subprocess.PIPE, text=True, check=True
    )
    seen = json.loads(child.stdout)
    assert "Corners (plain text)" in seen["choices"]
    assert ["Corners (.corners)" in seen["texts"][0], "Corners" in seen["texts"][1]] == [True, True]
    assert seen["detected"] == "corners"
    assert seen["summary"][0] == "Corners annotations: 1 image with 1 object of 1 class."
    assert seen["boxes"] == [[10, 5, 30, 25, 0]]


def test_recipes_with_unknown_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="format of annotations “corners” is unknown"):
        CreateDetection(images="/a", labels="/b", format="corners")
