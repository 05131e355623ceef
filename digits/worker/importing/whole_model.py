"""Models whose files include the architecture: SavedModels and Keras models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits.core import pretrained_files
from digits.core.files import files_below, open_plain
from digits.data.archives.unpacking import MAX_LEVELS
from digits.worker.failure import UserFault, first_line

SAVED_MODEL_FILE = "saved_model.pb"
# Outputs are considered probabilities if they sum to 1 within this tolerance.
SUM_TOLERANCE = 1e-3

# The network that wraps a complete model, such as a SavedModel, whose architecture is part of the file.
_WRAPPER = '''{imports}class UserModel(Tower):
    """Wraps the imported model {source}."""

    @model_property
    def inference(self):
        model = digits.pretrained({path!r}, include_top=True)
        {answer}

    @model_property
    def loss(self):
        return digits.loss(self.inference, self.y)
'''
_ANSWERS = {
    False: "return model(self.x)",
    True: "return keras.ops.log(model(self.x) + 1e-9)  # probabilities to logits",
}


class WholeModel:
    """The ``model`` that TensorFlow or Keras loaded from a ``path``."""

    def __init__(self, path: Path, model: Any) -> None:
        self._path, self._model = path, model
        self._name = pretrained_files.NAME if path.is_dir() else pretrained_files.NAME + path.suffix

    @classmethod
    def load(cls, path: Path) -> WholeModel | None:
        """Load the model at ``path``; return None if the file does not include its architecture. Raises UserFault."""
        if is_saved_model(path):
            try:
                return cls(path, tf.saved_model.load(str(path)))
            except Exception as error:  # TensorFlow raises many types
                raise UserFault(f"The SavedModel {path.name} cannot be read: {first_line(error)}") from error
        if path.suffix not in pretrained_files.KERAS_SUFFIXES or path.name.endswith(".weights.h5"):
            return None
        try:
            return cls(path, keras.saving.load_model(path, compile=False, safe_mode=True))
        except Exception as error:  # Keras raises many types
            if path.suffix != ".keras":  # an HDF5 file may contain weights alone
                return None
            raise UserFault(f"The Keras model {path.name} cannot be read: {first_line(error)}") from error

    @property
    def input_shape(self) -> tuple[int | None, int | None, int | None]:
        """The height, width and channels of the input images, with None for variable sizes. Raises UserFault."""
        model = self._model
        shape: Any = getattr(model, "input_shape", None)
        if shape is None and getattr(model, "signatures", None):
            signature = model.signatures.get("serving_default")
            inputs = signature.structured_input_signature[1].values() if signature else []
            shape = next((tuple(spec.shape) for spec in inputs if spec.shape.rank == 4), None)
        if not isinstance(shape, tuple) or len(shape) != 4 or shape[3] not in (1, 3, None):
            raise UserFault(
                "The input of the model is not a batch of images, [N, height, width, 1 or 3].",
                "Add a network that converts the images to this input.",
            )
        return shape[1], shape[2], shape[3]

    def copy_to(self, folder: Path) -> None:
        """Copy the model to the job's ``folder``; raises UserFault and UnreadableFile."""
        if not self._path.is_dir():
            _copy(self._path, folder / self._name)
            return
        for path in files_below(self._path):
            inner = path.relative_to(self._path)
            if len(inner.parts) > MAX_LEVELS:
                raise UserFault(f"The model contains more than {MAX_LEVELS} levels of folders.")
            _copy(path, folder / self._name / inner)

    def network(self, shape: tuple[int, ...]) -> str:
        """Return the text of a network that calls the model, after `copy_to`, with images of a ``shape`` [H, W, C]."""
        gives_probabilities = self._gives_probabilities(tf.random.uniform([4, *shape], maxval=255.0, seed=1))
        return _WRAPPER.format(
            imports="import keras\n\n\n" if gives_probabilities else "",
            source=self._path.name.replace('"', "'"),
            path=self._name,
            answer=_ANSWERS[gives_probabilities],
        )

    def _gives_probabilities(self, batch: tf.Tensor) -> bool:
        """Return whether the model returns class probabilities: nonnegative values that sum to 1."""
        model = self._model
        if callable(model):
            output = model(batch)
        else:
            signature = model.signatures["serving_default"]
            name = next(iter(signature.structured_input_signature[1]))
            output = next(iter(signature(**{name: batch}).values()))
        values = np.asarray(output)
        return (
            values.ndim == 2
            and values.min() >= 0
            and bool(np.allclose(values.sum(axis=1), 1, atol=SUM_TOLERANCE))
        )


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_plain(path) as file, open(target, "xb") as copy:
        shutil.copyfileobj(file, copy)


def is_saved_model(folder: Path) -> bool:
    """Return whether ``folder`` is a SavedModel."""
    return (folder / SAVED_MODEL_FILE).is_file()
