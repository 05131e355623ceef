"""Files are images by their endings or their first bytes; those in formats that cannot be read are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from digits.data import image_endings
from digits.data.image_endings import LeftOut
from digits.data.image_lists import list_images, need_an_image
from digits.data.sources import UnusableSource
from tests.kinds.forms import Forms

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)


pytestmark = pytest.mark.skipif(image_endings.READS_HEIF, reason="pillow-heif is installed")


def save(path: Path, value: int, format: str = "JPEG", **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), (value, 255 - value, value)).save(path, format, **options)


def left_out(*names: str) -> list[str]:
    found = LeftOut()
    for name in names:
        found.add(name)
    return found.remarks()


def test_unreadable_formats_are_counted_by_ending_with_their_remedy() -> None:
    names = [
        *(f"{n}.HEIC" for n in range(8)),
        "a.heif",
        "b.psd",
        "c.nii.gz",
        "d.CR2",
        "e.nef",
        "f.png",
        "g.txt",
    ]
    assert left_out(*names) == [
        "8 files .heic and 1 file .heif are not read: install digits[heif], or export them as JPEG.",
        "1 file .psd is not read: export it as PNG.",
        "1 file .nii.gz is not read: convert it to 16-bit PNG.",
        "1 file .cr2 and 1 file .nef are not read: export them as JPEG.",
    ]
    assert left_out("a.png", "b.txt") == []


def test_endings_of_telephones_and_files_without_a_known_ending_are_images(tmp_path: Path) -> None:
    names = ["a.jfif", "b.JPE", "c.pjpeg", "d", "e.jpg_large", "f.2021", "g.img"]
    for name in names:
        save(tmp_path / name, 9)
    save(tmp_path / "h.MPO", 9, "MPO", save_all=True, append_images=[Image.new("RGB", (16, 12))])
    save(tmp_path / "i.webp_", 9, "WEBP")
    for name, content in {"notes": b"text", "x.txt": b"\xff\xd8\xff", "y.pdf": b"%PDF", "z.db": b""}.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    assert list_images(tmp_path).files == [*names, "h.MPO", "i.webp_"]


def test_a_folder_of_unreadable_images_says_so(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.dng").touch()
    with pytest.raises(UnusableSource) as error:
        need_an_image(tmp_path)
    assert error.value.hint == "3 files .dng are not read: export them as JPEG."


def test_photos_of_telephones_become_a_dataset_and_a_class_without_images_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number, label in enumerate(("cup", "plate")):
        for n in range(4):
            save(data / label / f"{n}.jfif", 90 * number + n)
            save(data / label / f"png{n}.jpg", 90 * number + n + 20, "PNG")  # by its content
            other = [Image.new("RGB", (16, 12), (n, n, n))]
            save(data / label / f"m{n}.JPG", 90 * number + n + 40, "MPO", save_all=True, append_images=other)
            (data / label / f"h{n}.HEIC").write_bytes(HEIC)
    for n in range(3):
        (data / "spoon").mkdir(exist_ok=True)
        (data / "spoon" / f"{n}.heic").write_bytes(HEIC)
    forms = Forms("image-classification", data)
    remark = "11 files .heic are not read: install digits[heif], or export them as JPEG."
    excluded = "spoon (0, besides 3 files .heic)"
    problems = forms.summary(folder_train=data).problems
    assert remark in problems and any(excluded in text for text in problems)
    made = forms.create(folder_train=data, resize_width=16, resize_height=12, folder_pct_val=25)
    assert remark in made.remarks and any(excluded in text for text in made.remarks)
    assert made.manifest.target.labels == ["cup", "plate"]
    assert made.counts == {"train": 18, "val": 6} and made.manifest.skipped == 0
    values = {round(float(record.as_array()[0, 0, 0])) for record in made.records()}
    assert values <= set(range(140)) and len(values) > 6
