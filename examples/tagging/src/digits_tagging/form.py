"""The form of a new dataset. Its fields for size, color and encoding come from the base class."""

from __future__ import annotations

from wtforms import StringField
from wtforms.validators import DataRequired

from digits.kinds.dataset_form import ImageDatasetForm, required_integer
from digits.kinds.form_fields import AllowedPath
from digits_tagging.recipe import Recipe


class DatasetForm(ImageDatasetForm[Recipe]):
    """A dataset for image tagging, from a CSV file."""

    table = StringField("Table", validators=[DataRequired("Enter a CSV file."), AllowedPath("file")])
    pct_val = required_integer("Validation split (%)", Recipe, "pct_val")

    def recipe(self) -> Recipe:
        return Recipe(table=self.table.data, pct_val=self.pct_val.data, **self.image_settings())

    def fill_source(self, recipe: Recipe) -> None:
        self.set(table=recipe.table, pct_val=round(recipe.pct_val))
