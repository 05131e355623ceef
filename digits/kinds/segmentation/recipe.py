"""The recipe of a dataset for semantic segmentation."""

from __future__ import annotations

from digits.kinds.sources.target_image_recipe import CreateWithTargetImages


class CreateSegmentation(CreateWithTargetImages, kw_only=True):
    """Read a folder of images and one of label images, or annotations with polygons.

    Both folders can be the same. ``class_labels_file`` lists the names of the classes, one per line. With
    ``colormap_file``, which lists the colors of the classes, the pixels of label images are colors; otherwise they are
    class indexes, unless their values show something else, or ``are_indexes``, in the order of the names.
    """

    target_word = "label image"

    kind: str = "image-segmentation"
    class_labels_file: str = ""
    colormap_file: str = ""
    are_indexes: bool = False


Recipe = CreateSegmentation
