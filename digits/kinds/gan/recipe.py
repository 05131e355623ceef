"""The recipe of a dataset of images for GANs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from digits.core.recipe import CreateDataset, Pixels

CropSize = Annotated[int, Meta(ge=0, le=65_536)]


class CreateGan(CreateDataset, kw_only=True):
    """Read all images in ``folder``, or those that the attributes file ``file_list`` names, with their attributes.

    The central ``center_crop`` × ``center_crop`` pixels of each image are resized; 0 uses whole images. By default,
    these are the faces in the aligned images of CelebA. All records are for training.
    """

    # The name that DIGITS uses for this kind.
    kind: str = "image-gan"
    width: Pixels = 64
    height: Pixels = 64
    folder: str
    file_list: str | None = None
    center_crop: CropSize = 108


Recipe = CreateGan
