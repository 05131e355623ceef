"""The form fields that datasets of images of all kinds share."""

from __future__ import annotations

import secrets
from typing import Any, Generic, TypeVar

from wtforms import IntegerField, SelectField, StringField
from wtforms.validators import DataRequired, InputRequired, Length, ValidationError

from digits.core.recipe import CreateDataset
from digits.kinds.form_fields import NAME_LENGTH, OWN_DIRECTION, Between, JobForm, choices

MAX_SIDE_PIXELS = 4096
ENCODINGS = choices(("png", "PNG (lossless)"), ("jpg", "JPEG (quality 90)"), ("none", "None (raw pixels)"))
CHANNELS = choices(("3", "Color"), ("1", "Grayscale"))
RESIZE_MODES = choices(
    ("squash", "Stretch"),
    ("crop", "Crop"),
    ("fill", "Fill"),
    ("half_crop", "Half crop, half fill"),
)
RESIZE_TITLES = {choice.value: choice.label for choice in RESIZE_MODES}

AnyRecipe = TypeVar("AnyRecipe", bound=CreateDataset)


def percentage(label: str, default: int) -> IntegerField:
    """A field for an integer from 0 to 100."""
    between = Between(min=0, max=100, message="Must be between 0 and 100.")
    return IntegerField(label, default=default, validators=[InputRequired(), between])


def _side(label: str) -> IntegerField:
    between = Between(min=1, max=MAX_SIDE_PIXELS, message=f"Must be between 1 and {MAX_SIDE_PIXELS}.")
    return IntegerField(label, default=256, validators=[InputRequired("This field is required."), between])


class ImageDatasetForm(JobForm, Generic[AnyRecipe]):
    """Base of the forms that create a dataset of images."""

    dataset_name = StringField(
        "Dataset name",
        validators=[DataRequired("Enter a name for the dataset."), Length(max=NAME_LENGTH)],
        render_kw=OWN_DIRECTION,
    )
    resize_channels = SelectField("Color mode", choices=CHANNELS, default="3")
    resize_width = _side("Width")
    resize_height = _side("Height")
    resize_mode = SelectField("Resize mode", choices=RESIZE_MODES, default="squash")
    encoding = SelectField("Image encoding", choices=ENCODINGS, default="png")
    # Accepted for scripts written for DIGITS; records are always stored in TFRecord files.
    backend = SelectField(
        "Storage",
        choices=choices(("tfrecords", "TFRecord"), ("lmdb", "LMDB"), ("hdf5", "HDF5")),
        default="tfrecords",
    )
    compression = SelectField(
        "Compression", choices=choices(("none", "None"), ("gzip", "gzip")), default="none"
    )

    def recipe(self) -> AnyRecipe:
        """The recipe of the validated form."""
        raise NotImplementedError

    def fill_source(self, recipe: AnyRecipe) -> None:
        """Fill in the fields of this kind from a ``recipe``."""
        raise NotImplementedError

    def image_settings(self) -> dict[str, Any]:
        """The arguments of `CreateDataset` for the image fields, with a new seed."""
        return {
            "width": self.resize_width.data,
            "height": self.resize_height.data,
            "channels": int(self.resize_channels.data),
            "resize_mode": self.resize_mode.data,
            "encoding": self.encoding.data,
            "seed": secrets.randbelow(2**31),
        }

    def fill_from(self, recipe: AnyRecipe) -> None:
        """Fill in all fields that `recipe` depends on from another dataset's ``recipe``."""
        self.resize_width.data = recipe.width
        self.resize_height.data = recipe.height
        self.resize_channels.data = str(recipe.channels)
        self.resize_mode.data = recipe.resize_mode
        self.encoding.data = recipe.encoding
        self.fill_source(recipe)


def check_shares(pct_val: int | None, pct_test: int | None) -> None:
    """Raise ValidationError if the validation and test splits leave nothing to train on."""
    taken = (pct_val or 0) + (pct_test or 0)
    if taken >= 100:
        raise ValidationError(f"Validation and test take {taken}%: nothing is left to train on.")
