"""Objects in COCO files: their boxes, or their segmentations."""

from __future__ import annotations

from digits.data import loose_json
from digits.data.images.images import Size
from digits.data.sources.plan import count_of, first_lines
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.box_order import SIDES
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.sources import coco
from digits.kinds.sources.shapes import Form, Rectangle, RunLengths, Shape, Surroundings, from_coco


def _open(source: Source) -> Annotations:
    content = coco.read(source.labels, source.images)
    # Several entries can describe the same image.
    images = {path: AnnotatedImage(path, []) for path in content.paths.values()}
    for number, path in content.paths.items():
        entry = content.images[number]
        images[path].declared = declared_size(entry.width, entry.height)
    around, without = 0, []
    for item in content.annotations:
        image, where = images[content.paths[item.image_id]], f"annotation {item.id}"
        try:
            form = _form(item, source.needs_outlines, image.declared)
        except ValueError as error:
            content.skip(item, str(error))
            continue
        if form is None:
            without.append(where)
            continue
        if isinstance(form, RunLengths):
            image.declared = image.declared or (form.width, form.height)
        around += not item.bbox
        name = content.categories[item.category_id]
        image.boxes.append(Shape(name, form, where, is_ignored=item.iscrowd != 0))
    remarks, box_remarks = [], []
    if around:
        box_remarks.append(
            f"{count_of(around, 'object')} without a bbox: the boxes around their shapes are used."
        )
    if without:
        remarks.append(
            f"{count_of(len(without), 'object')} without a bbox or polygon: not used ({first_lines(without)})."
        )
    return Annotations(
        iter(images.values()),
        content.classes,
        remarks,
        box_remarks=box_remarks,
        faults=content.faults,
        orders=SIDES,
    )


def _form(item: coco.Annotation, needs_outline: bool, declared: Size | None) -> Form | None:
    """Return the box of an object, or its outline if it ``needs_outline``; None without any. Raises ValueError."""
    box = None
    if item.bbox:
        if len(item.bbox) != 4:
            raise ValueError(f"bbox has {len(item.bbox)} numbers instead of four")
        left, top, width, height = item.bbox
        box = Rectangle(left, top, left + width, top + height)
    if box is not None and not needs_outline:
        return box
    form = from_coco(loose_json.load(bytes(item.segmentation)) if bytes(item.segmentation) else None)
    if isinstance(form, RunLengths) and declared not in (None, (form.width, form.height)):
        raise ValueError(
            f"its mask has {form.width}×{form.height} pixels, but the image has {declared[0]}×{declared[1]}"
        )
    if form is None and box is not None:
        return Surroundings(box.left, box.top, box.right, box.bottom)
    return form


FORMAT = Format("coco", "COCO", _open, (".json",), words="COCO (JSON)")
