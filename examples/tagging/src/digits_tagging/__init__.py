"""Image tagging: predict any number of tags for an image."""

from digits.kinds import Kind

KIND = Kind("image-tagging", "Image tagging", "images/tagging", "digits_tagging", metric="f1")
