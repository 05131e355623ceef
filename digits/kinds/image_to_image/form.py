"""The form of an image-to-image dataset."""

from __future__ import annotations

from digits.kinds.forms.records import OldDatasets, Records
from digits.kinds.forms.source import method_field
from digits.kinds.forms.target_images import Folders, Table, TargetImageForm
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.sources.target_image_recipe import TargetImageRecords
from digits.kinds.sources.target_image_records import TargetImageMapping


class DatasetForm(TargetImageForm[CreateImageToImage]):
    """A dataset for image-to-image networks, from a folder of images and, optionally, one of target images."""

    RECIPE = CreateImageToImage
    SOURCES = (
        Folders(("targets", "target", "outputs", "output", "labels", "clean")),
        Table(),
        Records(TargetImageRecords, TargetImageMapping),
        OldDatasets(),
    )

    method = method_field(SOURCES)
