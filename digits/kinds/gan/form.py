"""The form of a dataset of images for GANs."""

from __future__ import annotations

from pathlib import Path

from wtforms import StringField
from wtforms.validators import DataRequired, Optional, ValidationError

from digits.core.remote import is_address
from digits.data.sources import UnusableSource
from digits.kinds.dataset_form import ImageDatasetForm, required_integer
from digits.kinds.form_fields import AllowedPath, need_images
from digits.kinds.gan.attributes import open_attributes
from digits.kinds.gan.recipe import CreateGan


class DatasetForm(ImageDatasetForm[CreateGan]):
    """A dataset of images for GANs. The names of the fields are those of the plugin of DIGITS."""

    RECIPE = CreateGan
    NAMES = {
        "folder": "image_folder",
        "file_list": "file_list",
        "center_crop": "center_crop_size",
        "width": "resize",
        "height": "resize",
    }
    has_images = False

    image_folder = StringField(
        "Image folder", validators=[DataRequired("Enter a folder."), AllowedPath("folder")]
    )
    file_list = StringField("Attributes file", validators=[Optional(), AllowedPath("file")])
    center_crop_size = required_integer("Center crop", CreateGan, "center_crop")
    resize = required_integer("Image size", CreateGan, "width")

    def validate_image_folder(self, field: StringField) -> None:
        need_images(field)

    def validate_file_list(self, field: StringField) -> None:
        if field.errors or not field.data or is_address(field.data):
            return
        try:
            open_attributes(Path(field.data))
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None
