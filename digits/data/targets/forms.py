"""The table of the forms of targets, and how files identify them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage

# The first one whose test holds; a target of no form is a plain `Target`.
FORMS: dict[type[Target], Callable[[Target], bool]] = {
    Mask: lambda stored: stored.spatial == "mask",
    TargetImage: lambda stored: stored.spatial == "image",
    Boxes: lambda stored: stored.spatial == "boxes",
    ClassIndex: lambda stored: stored.classes,
    LabelSet: lambda stored: stored.multi_hot,
    Numbers: lambda stored: stored.dtype == "float32" and stored.shape == [len(stored.names)] != [0],
}


def form_of(stored: Target) -> Target:
    """Return the target that ``stored`` describes, as an object of its class; raises ValueError if it is invalid."""
    form = next((form for form, is_form in FORMS.items() if is_form(stored)), Target)
    if type(stored) is form:
        return stored
    try:
        return msgspec.convert(msgspec.structs.asdict(stored), form)
    except msgspec.ValidationError as error:
        raise ValueError(str(error) if "target" in str(error) else f"target: {error}") from error
