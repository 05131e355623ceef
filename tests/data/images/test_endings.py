"""Files are images by their endings or their first bytes; those in formats that cannot be read are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from digits.data.images import endings as image_endings
from digits.data.images import images
from digits.data.images.endings import LeftOut
from digits.data.images.lists import list_images, need_an_image
from digits.data.sources.plan import UnusableSource
from digits.kinds.classification import reader
from tests.kinds.dataset_forms import Forms

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)


reports_heif = pytest.mark.skipif(image_endings.READS_HEIF, reason="pillow-heif is installed")


def save(path: Path, value: int, format: str = "JPEG", **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), (value, 255 - value, value)).save(path, format, **options)


def left_out(*names: str) -> list[str]:
    found = LeftOut()
    for name in names:
        found.add(name)
    return found.remarks()


@reports_heif
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


@reports_heif
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


def test_heic_photos_are_read_with_the_package(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    save(tmp_path / "a.HEIC", 200, "HEIF")
    assert list_images(tmp_path).files == ["a.HEIC"]
    picture = images.open_picture(tmp_path / "a.HEIC", 3)
    assert (
        picture.size == (16, 12) == images.upright_size_and_turn(tmp_path / "a.HEIC")[0] and not picture.plain
    )
    assert abs(picture.pixels.astype(int) - [200, 55, 200]).max() < 6


@pytest.mark.skipif(not image_endings.READS_AVIF, reason="this Pillow does not read AVIF")
def test_avif_photos_are_read_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "a.avif", 200, "AVIF", exif=exif)
    assert list_images(tmp_path).files == ["a.avif"]
    assert images.open_picture(tmp_path / "a.avif", 3).size == (12, 16)


@reports_heif
def test_a_heic_file_with_another_ending_says_what_to_do() -> None:
    with pytest.raises(images.UnusableImage) as error:
        images.load(HEIC, 3)
    assert error.value.reason == (
        "not an image (it looks like HEIC: install digits[heif], or export it as JPEG)"
    )


def test_a_damaged_avif_file_says_so() -> None:
    with pytest.raises(images.UnusableImage, match="AVIF"):
        images.load(HEIC.replace(b"heic", b"avif"), 3)


@pytest.mark.parametrize("by_name", [True, False])
def test_unreadable_images_are_counted_in_class_folders_and_outside(tmp_path: Path, by_name: bool) -> None:
    for name in ("cat.1.png", "dog.1.png", "cat.2.psd", "more/dog.2.psd", "more/dog.3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = reader.scan(tmp_path, by_name=by_name)
    assert str(found.unread) == "2 files .psd" and found.seen == 5


def test_other_kinds_report_unreadable_images_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for n in range(8):
        save(data / "images" / f"{n}.JPE", 10 * n)
        (data / "labels").mkdir(exist_ok=True)
        (data / "labels" / f"{n}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (data / "images" / "8.nef").write_bytes(b"raw")
    forms = Forms("image-object-detection", data)
    fields = {"train_image_folder": data / "images", "train_label_folder": data / "labels", "pct_val": 25}
    remark = "1 file .nef is not read: export it as JPEG."
    assert any(remark in text for text in forms.summary(**fields).problems)
    assert any(remark in text for text in forms.plan(**fields).warnings)


def test_images_of_all_color_modes_are_used_and_a_cut_file_is_listed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    color = Image.new("RGB", (16, 12), (200, 30, 30))
    for label in ("cup", "plate"):
        (data / label).mkdir(parents=True)
        color.convert("CMYK").save(data / label / "cmyk.jpg")
        color.quantize(4).save(data / label / "palette.png", transparency=3)
        for mode in ("LA", "RGBA", "1"):
            color.convert(mode).save(data / label / f"{mode}.png")
        color.convert("1").save(data / label / "fax.tif", compression="group4")
        for ending in ("gif", "webp"):
            color.save(data / label / f"moving.{ending}", save_all=True, append_images=[color.rotate(90)])
        color.save(data / label / "progressive.jpg", progressive=True)
    color.resize((200, 150)).save(data / "cup" / "cut.jpg")
    whole = (data / "cup" / "cut.jpg").read_bytes()
    (data / "cup" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    made = Forms("image-classification", data).create(
        folder_train=data, folder_pct_val=0, resize_width=16, resize_height=12, max_unusable_percent=10
    )
    assert made.counts["train"] == 18 and made.manifest.skipped == 1
    skipped = (made.folder / "skipped.csv").read_text().splitlines()[1]
    assert skipped.startswith("cup/cut.jpg,truncated: the file ends too early")
