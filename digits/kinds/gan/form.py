"""The form of a dataset of images for GANs."""

from __future__ import annotations

from pathlib import Path

from wtforms import StringField
from wtforms.validators import DataRequired, Optional

from digits.core.remote import is_address
from digits.kinds.forms.dataset import ImageDatasetForm, required_integer
from digits.kinds.forms.fields import AllowedPath, as_field_error, need_images, text_field
from digits.kinds.gan.attributes import open_attributes
from digits.kinds.gan.recipe import CreateGan


class DatasetForm(ImageDatasetForm[CreateGan]):
    """A dataset of images for GANs. The names of the fields are those of the plugin of DIGITS."""

    RECIPE = CreateGan
    has_images = False

    image_folder = text_field(
        "Image folder", CreateGan, "folder", DataRequired("Enter a folder."), AllowedPath("folder")
    )
    file_list = text_field("Attributes file", CreateGan, "file_list", Optional(), AllowedPath("file"))
    center_crop_size = required_integer("Center crop", CreateGan, "center_crop")
    resize = required_integer("Image size", CreateGan, "width", "height")

    def validate_image_folder(self, field: StringField) -> None:
        need_images(field)

    def validate_file_list(self, field: StringField) -> None:
        if field.data and not field.errors and not is_address(field.data):
            with as_field_error():
                open_attributes(Path(field.data))
