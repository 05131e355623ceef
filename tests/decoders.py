"""The decoders of images in the process of the tests, in which a site runs."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import ImageFile

from digits.data.images import jpeg, png


def refuse_to_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the decoders of this process fail."""

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise AssertionError("the server decodes an image")

    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    monkeypatch.setattr(jpeg, "decode", refuse)
    monkeypatch.setattr(png, "decode_simple", refuse)
