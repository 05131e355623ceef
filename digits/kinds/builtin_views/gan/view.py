"""Generated images: a grid, an animation between latent vectors, or the reconstruction of an image by an encoder."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form, SelectField, StringField
from wtforms.validators import Optional

from digits.data.arrays import read_array
from digits.data.data_roots import FileType
from digits.data.images import images
from digits.data.numbers import parse_number
from digits.kinds.builtin_views.gan.celeba import ATTRIBUTES
from digits.kinds.forms.fields import AllowedPath, choices
from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction, as_numbers, bad_option

FRAME_MILLISECONDS = 120
MAX_ATTRIBUTES = 1000
MAX_FILE_BYTES = 16 * 2**20
TOP_ATTRIBUTES = 5


class GenerationOptions(Form):
    """What `digits.web.predictions.inference.generate` draws."""

    gan_view_task_id = SelectField(
        "Show",
        choices=choices(("grid", "A grid of images"), ("animation", "An animation between latent vectors")),
        default="grid",
    )


def _task(name: str | None) -> str | None:
    """Return the task with the ``name`` that it has in DIGITS, which has a task for each of its two encoders."""
    return "encoder" if name in ("mnist_encoder", "celeba_encoder") else name


class Options(Form):
    """What is drawn of the prediction of an encoder."""

    gan_view_task_id = SelectField(
        "Show",
        choices=choices(
            ("encoder", "Input and reconstruction"), ("attributes", "Input, reconstruction and attributes")
        ),
        default="encoder",
        filters=[_task],
    )
    attributes_file = StringField(
        "Attribute vectors (file on the server)", default="", validators=[Optional(), AllowedPath("file")]
    )

    def resolve(self, path: str, file_type: FileType) -> str:
        """Return the real path of a readable file; raises DigitsError."""
        return str(self.meta.data_roots.resolve(path, file_type))


class View(prediction_rendering.View):
    """The output of an encoder: the latent vector of its input, followed by the pixels generated from that vector."""

    Options = Options
    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        return prediction.picture is not None and _split(prediction) is not None

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        parts = _split(prediction)
        assert parts is not None and prediction.picture is not None
        latent, generated = parts
        pixels = images.scale_to_pixels(generated)
        shown = {
            "input": prediction.picture["url"],
            "output": images.data_uri(images.encode(pixels, "png")),
            "width": pixels.shape[1],
            "height": pixels.shape[0],
            "latent": [float(value) for value in latent],
        }
        if options["gan_view_task_id"].data == "attributes":
            shown["attributes"] = _most_similar(latent, options["attributes_file"].data or "")
        return shown


def _split(prediction: Prediction) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Return the latent vector [size] and the image [height, width, 1 or 3] of an output; None if none has both."""
    shape = _input_shape(prediction)
    if shape is None:
        return None
    for values in prediction.outputs.values():
        size = values.size - math.prod(shape)
        if values.ndim == 1 and size > 0:
            numbers = as_numbers(values)
            return numbers[:size], numbers[size:].reshape(shape)
    return None


def _input_shape(prediction: Prediction) -> tuple[int, int, int] | None:
    """Return the shape of the network's input, if it is an image of one or three channels."""
    if prediction.pixels is not None:
        shape = tuple(prediction.pixels.shape)
    elif prediction.geometry is not None and prediction.recipe is not None:
        shape = (prediction.geometry.height, prediction.geometry.width, prediction.recipe.channels)
    else:
        return None
    return shape if len(shape) == 3 and shape[2] in (1, 3) else None


def _most_similar(latent: NDArray[np.float32], path: str) -> list[dict[str, Any]]:
    """Return the attributes whose vectors have the largest projections of ``latent`` on them, and these projections."""
    if not path:
        raise bad_option("attributes_file", "Enter the path of a file of attribute vectors on the server.")
    try:
        names, vectors = read_attributes(Path(path), latent.size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise bad_option("attributes_file", f"{Path(path).name}: {reason}.") from None
    lengths = np.linalg.norm(vectors, axis=1)
    scores = vectors @ latent / np.where(lengths > 0, lengths, 1)
    order = np.argsort(-scores, kind="stable")[:TOP_ATTRIBUTES]
    return [{"name": names[index], "score": float(scores[index])} for index in order]


def read_attributes(path: Path, size: int) -> tuple[list[str], NDArray[np.float32]]:
    """Read the names and latent vectors, float32 [attributes, ``size``], of a CSV file or NumPy array.

    A line of a CSV file is the name of an attribute and the numbers of its vector. An array of 40 vectors has the
    attributes of CelebA. Raises OSError, or ValueError with a message.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"the file is larger than {MAX_FILE_BYTES >> 20} MB")
    names, vectors = _read_array(path) if path.suffix == ".npy" else _read_table(path)
    if not 0 < len(vectors) <= MAX_ATTRIBUTES:
        raise ValueError(f"it must contain 1 to {MAX_ATTRIBUTES:,} vectors")
    if vectors.shape[1] != size:
        raise ValueError(f"its vectors have {vectors.shape[1]:,} numbers, but the network requires {size:,}")
    if not np.isfinite(vectors).all():
        raise ValueError("its numbers must be finite")
    return names, vectors


def _read_array(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    try:
        with path.open("rb") as file:
            vectors = read_array(file, MAX_FILE_BYTES)
    except ValueError:
        raise ValueError("it is not an array of numbers in NumPy’s format") from None
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise ValueError("it must be a two-dimensional array of numbers")
    numbered = (f"Attribute {number}" for number in itertools.count(1))
    names = (
        list(ATTRIBUTES)
        if len(vectors) == len(ATTRIBUTES)
        else list(itertools.islice(numbered, len(vectors)))
    )
    return names, vectors.astype(np.float32)


def _read_table(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    names, rows = [], []
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            for number, row in enumerate(csv.reader(file), 1):
                if not row:
                    continue
                names.append(row[0].strip())
                try:
                    rows.append([parse_number(cell) for cell in row[1:]])
                except ValueError as error:
                    raise ValueError(
                        f"line {number}: {error}; expected a name and numbers, separated by commas"
                    ) from None
                if len(rows[-1]) != len(rows[0]):
                    raise ValueError(
                        f"line {number}: {len(rows[-1])} numbers, the first line has {len(rows[0])}"
                    )
        except (UnicodeDecodeError, csv.Error):
            raise ValueError("it is neither a CSV file nor a NumPy array (.npy)") from None
    return names, np.array(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)


def animation(frames: Sequence[str]) -> bytes:
    """Combine PNG data URIs into a looping GIF file."""
    pictures = [images.open_limited(images.from_data_uri(frame), ["PNG"]).convert("RGB") for frame in frames]
    file = io.BytesIO()
    pictures[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=FRAME_MILLISECONDS,
        loop=0,
        optimize=False,
    )
    return file.getvalue()
