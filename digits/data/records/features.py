"""Describe the features of TFRecord files, and guess which ones are the image and the label."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import listed, show

# The features of an Example by name, as the messages of `digits.data.records.example_pb2`.
ExampleFeatures = Mapping[str, Any]

BYTES, INTEGERS, FLOATS = "bytes", "int64", "float32"
MAX_EXAMPLE_CHARACTERS = 60
_TYPES = {"bytes_list": BYTES, "int64_list": INTEGERS, "float_list": FLOATS}
_STARTS = (b"\xff\xd8", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_NETPBM = re.compile(rb"P[2-6]\s")

IMAGE_NAMES = tuple("image/encoded image images img image_raw encoded jpeg png x pixels".split())
INPUT_NAMES = ("x", "input", "inputs", "data", "features", "feature", *IMAGE_NAMES)
TARGET_NAMES = ("y", "target", "targets", "output", "outputs", "label", "labels", "image/class/label")
LABEL_NAMES = tuple(
    (
        "image/class/text image/class/label label labels class target category y fine_label label_id class_id "
        "text"
    ).split()
)
TARGET_IMAGE_NAMES = (
    *"image/segmentation/class/encoded segmentation_mask mask masks segmentation target/encoded".split(),
    *("target", "targets", "label", "labels", "annotation", "gt", "output", "y"),
)
_SIDES = {
    "height": ("height", "rows"),
    "width": ("width", "cols", "columns"),
    "channels": ("depth", "channels"),
}
# Sizes and ids are not labels.
_OTHERS = {*(word for words in _SIDES.values() for word in words), "id", "index", "key", "format", "filename"}


def values_of(features: ExampleFeatures, name: str) -> tuple[str, Sequence[Any]]:
    """Return the type and the values of a feature; both are empty if it has no values."""
    if name not in features:
        return "", ()
    kind = features[name].WhichOneof("kind")
    return (_TYPES[kind], getattr(features[name], kind).value) if kind else ("", ())


def needed_values(features: ExampleFeatures, name: str) -> tuple[str, Sequence[Any]]:
    """Return the type and the values of a feature; raises ValueError with a message if there are none."""
    kind, values = values_of(features, name)
    if not len(values):
        raise ValueError(f"it has no feature “{show(name)}”; its features are {listed(sorted(features))}")
    return kind, values


@dataclass(frozen=True)
class FeatureInfo:
    """A feature of a record: its type, the number of its values, the first ones as text, and its image, if any."""

    name: str
    type: str
    length: int
    example: str
    image: bytes = b""


def describe_features(features: ExampleFeatures) -> list[FeatureInfo]:
    """Describe the features of a record, sorted by name."""
    return [_describe(name, *values_of(features, name)) for name in sorted(features)]


def _describe(name: str, kind: str, values: Sequence[Any]) -> FeatureInfo:
    image = b""
    if kind == BYTES and len(values):
        first = values[0]
        if is_image_file(first):
            image, example = first, _describe_image(first)
        else:
            example = _as_text(first)
        if len(values) > 1:
            example += ", …"
    else:
        example = ", ".join(f"{value:.6g}" if kind == FLOATS else str(value) for value in values[:8])
        example += ", …" if len(values) > 8 else ""
    return FeatureInfo(name, kind or "empty", len(values), example, image)


def _describe_image(data: bytes) -> str:
    try:
        format_name, (width, height) = images.header(data)
    except UnusableImage as error:
        return f"damaged image: {error.reason}"
    return f"{format_name}, {width}×{height} pixels"


def _as_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{len(data):,} bytes"
    if not all(character.isprintable() or character.isspace() for character in text):
        return f"{len(data):,} bytes"
    short = text[:MAX_EXAMPLE_CHARACTERS]
    return show(short) + ("…" if len(text) > len(short) else "")


def is_image_file(data: bytes) -> bool:
    """Return whether ``data`` begins like an image file."""
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return is_webp or data.startswith(_STARTS) or bool(_NETPBM.match(data))


@dataclass(frozen=True)
class ImageFeature:
    """How an image is stored in the feature ``name``: as a file, as raw bytes, or as numbers.

    Raw bytes and numbers have the ``shape`` height, width, channels. Without one, features such as ``height``,
    ``width`` and ``depth`` contain it, or else the image is square. Numbers from ``low`` to ``high`` become 0 to 255.
    """

    name: str
    is_file: bool = True
    shape: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 255.0

    @classmethod
    def of(cls, name: str, features: ExampleFeatures, shape: tuple[int, ...] = ()) -> ImageFeature:
        """Return how the image is stored in a first record with ``features``."""
        kind, values = values_of(features, name)
        return cls(name, kind == BYTES and len(values) == 1 and is_image_file(values[0]), shape)

    def encoded(self, features: ExampleFeatures) -> bytes:
        """Return the image of a record as an image file; raises UnusableImage."""
        kind, values = values_of(features, self.name)
        if not len(values):
            raise UnusableImage(f"the record has no feature “{show(self.name)}”")
        if kind == BYTES:
            if len(values) > 1:
                raise UnusableImage(f"“{show(self.name)}” contains {len(values):,} images")
            data: bytes = values[0]
            return data if self.is_file else self._as_file(data, features)
        return self._as_file(self._as_bytes(np.array(values, np.float64)), features)

    def _as_bytes(self, values: NDArray[np.float64]) -> bytes:
        if not (values.min() >= self.low and values.max() <= self.high):
            raise UnusableImage(
                f"“{show(self.name)}” has values from {values.min():.6g} to {values.max():.6g}, "
                f"not {self.low:.6g} to {self.high:.6g}"
            )
        scaled = (values - self.low) * (255 / ((self.high - self.low) or 1))
        return np.rint(scaled).astype(np.uint8).tobytes()

    def _as_file(self, pixels: bytes, features: ExampleFeatures) -> bytes:
        height, width, channels = self.shape_of(features, len(pixels))
        if channels not in (1, 3):
            raise UnusableImage(f"“{show(self.name)}” has {channels} channels, not 1 or 3")
        if height * width * channels != len(pixels):
            raise UnusableImage(
                f"“{show(self.name)}” has {len(pixels):,} values, not {height}×{width}×{channels}"
            )
        return f"P{5 if channels == 1 else 6} {width} {height} 255\n".encode() + pixels

    def shape_of(self, features: ExampleFeatures, count: int) -> tuple[int, int, int]:
        """Return the height, width and channels of an image of ``count`` values; raises UnusableImage."""
        shape = self.shape or stored_shape(features) or square(count)
        if not shape:
            raise UnusableImage(
                f"“{show(self.name)}” has {count:,} values, which are not an image file, "
                "and no features with the image shape"
            )
        height, width, channels = (*shape, 1, 1)[:3]
        return height, width, channels


def stored_shape(features: ExampleFeatures) -> tuple[int, int, int] | None:
    """Return the height, width and channels in features such as ``image/height``, if there are any."""
    sizes: dict[str, int] = {}
    for side, words in _SIDES.items():
        for name in sorted(features):
            kind, values = values_of(features, name)
            if kind == INTEGERS and len(values) == 1 and last_word(name) in words and values[0] > 0:
                sizes.setdefault(side, int(values[0]))
    if "height" not in sizes or "width" not in sizes:
        return None
    return sizes["height"], sizes["width"], sizes.get("channels", 1)


def square(count: int) -> tuple[int, int, int] | None:
    """Return the shape of a square image of ``count`` values, with one or three channels, if there is one."""
    for channels in (1, 3):
        side = math.isqrt(count // channels)
        if side > 1 and side * side * channels == count:
            return side, side, channels
    return None


@dataclass(frozen=True)
class NumberFeature:
    """Numbers of a fixed ``shape`` in the feature ``name``, with the type ``dtype`` of the first record."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, features: ExampleFeatures, shape: Sequence[int] = ()) -> NumberFeature:
        """Return how the numbers are stored in a first record with ``features``; raises ValueError with a message."""
        kind, values = values_of(features, name)
        if kind not in (INTEGERS, FLOATS):
            raise ValueError(f"“{show(name)}” is {kind or 'empty'} instead of numbers")
        if shape and math.prod(shape) != len(values):
            raise ValueError(f"“{show(name)}” has {len(values):,} numbers, not {'×'.join(map(str, shape))}")
        return cls(name, kind, tuple(shape) or ((len(values),) if len(values) > 1 else ()))

    def read(self, features: ExampleFeatures) -> NDArray[Any]:
        """Return the numbers of a record, int64 or float32; raises ValueError with a message."""
        name = show(self.name)
        kind, values = needed_values(features, self.name)
        if kind != self.dtype:
            raise ValueError(f"“{name}” is {kind}, but {self.dtype} in the first record")
        if len(values) != math.prod(self.shape):
            raise ValueError(
                f"“{name}” has {len(values):,} numbers, but {math.prod(self.shape):,} in the first record"
            )
        array = np.array(values, self.dtype).reshape(self.shape)
        if not np.isfinite(array).all():
            raise ValueError(f"“{name}” contains NaN or infinity")
        return array


@dataclass
class ValueRange:
    """The smallest and the largest number of a feature in the records seen so far."""

    low: float = math.inf
    high: float = -math.inf
    is_float: bool = False

    def add(self, features: ExampleFeatures, name: str) -> None:
        """Add a record; raises ValueError with a message for numbers that are not finite."""
        kind, values = values_of(features, name)
        if kind == BYTES or not len(values):
            return
        array = np.array(values, np.float64)
        if not np.isfinite(array).all():
            raise ValueError(f"“{show(name)}” contains NaN or infinity")
        self.is_float |= kind == FLOATS
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))

    def scale(self, image: ImageFeature) -> ImageFeature:
        """Return ``image`` with the usual range that contains all numbers, or else exactly their range."""
        if self.low > self.high:
            return image
        usual = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)) if self.is_float else ((0.0, 255.0),)
        for low, high in usual:
            if low <= self.low and self.high <= high:
                return replace(image, low=low, high=high)
        return replace(image, low=self.low, high=self.high)


def guess_image(features: ExampleFeatures) -> str:
    """Return the name of the feature that is most likely an image, or an empty string."""
    encoded = _image_files(features)
    if encoded:
        return best_image(encoded)
    stored = stored_shape(features)
    raw = [
        name
        for name in sorted(features)
        if (count := _count(features, name)) >= 16
        and ((stored is not None and math.prod(stored) == count) or square(count))
    ]
    return best_named(raw, IMAGE_NAMES)


def guess_target_image(features: ExampleFeatures, image: str) -> str:
    """Return the name of the feature that is most probably the mask or the target of ``image``, or an empty string."""
    return best_named([name for name in _image_files(features) if name != image], TARGET_IMAGE_NAMES)


def _image_files(features: ExampleFeatures) -> list[str]:
    return _named(features, lambda kind, values: kind == BYTES and is_image_file(values[0]), 1)


def guess_input(features: ExampleFeatures) -> str:
    """Return the name of the feature that is most likely an image or an array, or an empty string."""
    image = guess_image(features)
    arrays = [name for name in _numbers(features) if len(values_of(features, name)[1]) > 1]
    return image or best_named([name for name in arrays if last_word(name) not in TARGET_NAMES], INPUT_NAMES)


def guess_target(features: ExampleFeatures, input_name: str = "") -> str:
    """Return the name of the feature that is most likely the target: numbers, or an empty string."""
    return _usual_or_only(TARGET_NAMES, [name for name in _numbers(features) if name != input_name])


def guess_label(features: ExampleFeatures, image: str = "") -> str:
    """Return the name of the feature that is most likely the class, or an empty string."""
    possible = _named(features, lambda kind, values: kind == INTEGERS or _is_short_text(kind, values), 1)
    return _usual_or_only(LABEL_NAMES, [name for name in possible if name != image])


def _numbers(features: ExampleFeatures) -> list[str]:
    return [name for name in sorted(features) if values_of(features, name)[0] in (INTEGERS, FLOATS)]


def _usual_or_only(usual: Sequence[str], names: Sequence[str]) -> str:
    """Return the best of the ``names`` that are ``usual``, or else the only one of a label, or an empty string."""
    others = [name for name in names if not is_no_label(name)]
    return best_named(named_like(names, usual), usual) or (others[0] if len(others) == 1 else "")


def named_like(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Return those of the ``names`` that are, or end with, one of the ``usual`` ones."""
    return [name for name in names if name.lower() in usual or last_word(name) in usual]


def best_image(names: Sequence[str]) -> str:
    """Return which of the ``names`` is most likely an image rather than the mask or the target of one."""
    targets = named_like(names, TARGET_IMAGE_NAMES)
    return best_named([name for name in names if name not in targets] or names, IMAGE_NAMES)


def best_named(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the name that comes first in ``usual``, or else the first one, or an empty string."""

    def rank(name: str) -> int:
        return usual.index(name) if name in usual else len(usual)

    return min(names, key=lambda name: (rank(name.lower()), rank(last_word(name))), default="")


class ClassFeature:
    """The feature ``name`` with classes of a record: texts, numbers, or numbers with the names ``labels``."""

    def __init__(self, name: str, labels: Mapping[int, str] | Sequence[str] = ()) -> None:
        self.name, self._kind = name, ""
        self._labels = labels if isinstance(labels, Mapping) else dict(enumerate(labels))

    def read(self, features: ExampleFeatures) -> str:
        """Return the only class of a record; raises ValueError with a message."""
        _, values = needed_values(features, self.name)
        if len(values) > 1:
            raise ValueError(f"“{show(self.name)}” has {len(values):,} values, not one")
        (found,) = self.read_all(features)
        if not found:
            raise ValueError(f"“{show(self.name)}” is empty")
        return found

    def read_all(self, features: ExampleFeatures) -> list[str]:
        """Return the classes of a record, in which blank texts are empty; raises ValueError with a message."""
        kind, values = values_of(features, self.name)
        if kind == FLOATS:
            raise ValueError(f"“{show(self.name)}” is {kind} instead of integers or strings")
        self._kind = self._kind or kind
        if len(values) and kind != self._kind:
            raise ValueError(f"“{show(self.name)}” is {kind}, but {self._kind} in earlier records")
        if kind == BYTES:
            return [show(value.decode("utf-8", "backslashreplace").strip()) for value in values]
        unknown = [value for value in values if self._labels and value not in self._labels]
        if unknown:
            numbers = f"{min(self._labels)} to {max(self._labels)}"
            raise ValueError(f"the class {unknown[0]} is none of the named ones, {numbers}")
        return [self._labels.get(value, str(value)) for value in values]


def is_no_label(name: str) -> bool:
    """Return whether ``name`` is usual for sizes, ids and other features that are neither images nor labels."""
    return last_word(name) in _OTHERS


def _named(features: ExampleFeatures, test: Callable[[str, Sequence[Any]], bool], length: int) -> list[str]:
    named = ((name, *values_of(features, name)) for name in sorted(features))
    return [name for name, kind, values in named if len(values) == length and test(kind, values)]


def _is_short_text(kind: str, values: Iterable[Any]) -> bool:
    return kind == BYTES and all(len(value) <= 200 and _is_text(value) for value in values)


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().isprintable() and bool(data.strip())
    except UnicodeDecodeError:
        return False


def _count(features: ExampleFeatures, name: str) -> int:
    kind, values = values_of(features, name)
    if kind == BYTES:
        return len(values[0]) if len(values) == 1 and not _is_text(values[0]) else 0
    return len(values)


def last_word(name: str) -> str:
    """Return the last word of a name, such as ``xmin`` of ``image/object/bbox/xmin``, in lower case."""
    return re.split(r"[/_.\-]", name.lower())[-1]
