"""The form of a dataset of gradients."""

from __future__ import annotations

from digits.kinds.forms.dataset import ImageDatasetForm, required_integer
from digits.kinds.gradients.recipe import CreateGradients


class DatasetForm(ImageDatasetForm[CreateGradients]):
    """A dataset of generated images. The names of the fields are those of the plugin of DIGITS."""

    RECIPE = CreateGradients
    FIXED = {"channels": 1, "resize_mode": "squash"}
    has_images = False

    train_image_count = required_integer("Training images", CreateGradients, "train_images")
    val_image_count = required_integer("Validation images", CreateGradients, "val_images")
    test_image_count = required_integer("Test images", CreateGradients, "test_images")
    image_width = required_integer("Width", CreateGradients, "width")
    image_height = required_integer("Height", CreateGradients, "height")

    @property
    def opens_files(self) -> bool:
        return False
