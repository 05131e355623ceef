"""The form of a new dataset. Its fields for size, color, encoding and the split come from the base classes."""

from __future__ import annotations

from wtforms.validators import DataRequired

from digits.kinds.forms.dataset import SharesForm
from digits.kinds.forms.fields import AllowedPath, text_field
from digits_tagging.recipe import Recipe


class DatasetForm(SharesForm[Recipe]):
    """A dataset for image tagging, from a CSV file."""

    RECIPE = Recipe

    # It edits the setting `table` of the recipe.
    table = text_field("Table", Recipe, "table", DataRequired("Enter a CSV file."), AllowedPath("file"))
