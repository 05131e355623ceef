"""Pages and JSON of image-to-image networks."""

from __future__ import annotations

from digits.data.manifest import Manifest
from digits.kinds import views
from digits.kinds.image_to_image.recipe import CreateImageToImage

# The peak signal-to-noise ratio (PSNR) of an image that equals its target, in dB.
MAX_PSNR = 100.0


class Views(views.Views[CreateImageToImage]):
    """Target images, PSNR and SSIM, and the image that a network returns."""

    distribution = ""
    balancing = ("none",)
    metrics = (views.Metric("psnr", "PSNR", "dB"), views.Metric("ssim", "SSIM"))
    adds_sources = True
    guide = "image-to-image.md"
    invitation = (
        "Turn images into other images, such as noisy into clean ones. From a folder of images and one of target "
        "images with the same names, from a table, from TFRecord files, or from images that are their own targets."
    )
    infer = "Process"
    infer_title = "Process an image"
    result = "The output appears here."
    draws_on_image = True
    transformations = views.UNBLENDED

    def describe_dataset(self, manifest: Manifest) -> str:
        return "pairs of images"

    def describe_error(self, error: float) -> str:
        return f"PSNR {MAX_PSNR - error:.1f} dB"
