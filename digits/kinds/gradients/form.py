"""The form of a dataset of gradients."""

from __future__ import annotations

from digits.kinds.dataset_form import ImageDatasetForm, required_integer
from digits.kinds.gradients.recipe import CreateGradients


class DatasetForm(ImageDatasetForm[CreateGradients]):
    """A dataset of generated images. The names of the fields are those of the plugin of DIGITS."""

    has_images = False

    train_image_count = required_integer("Training images", CreateGradients, "train_images")
    val_image_count = required_integer("Validation images", CreateGradients, "val_images")
    test_image_count = required_integer("Test images", CreateGradients, "test_images")
    image_width = required_integer("Width", CreateGradients, "width")
    image_height = required_integer("Height", CreateGradients, "height")

    @property
    def opens_files(self) -> bool:
        return False

    def recipe(self) -> CreateGradients:
        settings = self.image_settings() | {
            "width": self.image_width.data,
            "height": self.image_height.data,
            "channels": 1,
            "resize_mode": "squash",
        }
        return CreateGradients(
            train_images=self.train_image_count.data,
            val_images=self.val_image_count.data,
            test_images=self.test_image_count.data,
            **settings,
        )

    def fill_source(self, recipe: CreateGradients) -> None:
        self.set(
            train_image_count=recipe.train_images,
            val_image_count=recipe.val_images,
            test_image_count=recipe.test_images,
            image_width=recipe.width,
            image_height=recipe.height,
        )
