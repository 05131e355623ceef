"""Models in files of TensorFlow and Keras: checkpoints, SavedModels and Keras models, alone or in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from digits.core import pretrained_files
from digits.core import recipe as recipes
from digits.data.manifest import LABELS_FILE
from digits.data.models import archive as model_archive
from digits.data.models.archive import CHECKPOINT_SUFFIX
from digits.data.models.export import CONVERSION_FILE, EXAMPLE_FILE, SAVED_MODEL_EXTRA_FOLDER
from digits.worker.failure import UserFault
from digits.worker.importing.description import Description, empty_dataset, text_of
from digits.worker.importing.whole_model import WholeModel, is_saved_model

# Models are searched for in subfolders down to this level, such as MODEL/VERSION in an unpacked archive.
MAX_SEARCHED_LEVELS = 3


def from_files(recipe: recipes.ImportModel, source: Path) -> Description:
    """Describe the model in ``source`` with the settings of ``recipe``.

    If ``source`` is a folder, it may also contain the source code of the network and the class names (labels.txt).
    """
    weights = _weights_in(source)
    # From the model up to the source.
    folders = [
        folder for folder in (weights, *weights.parents) if folder.is_relative_to(source) and folder.is_dir()
    ]
    path = Path(recipe.network) if recipe.network else _network_in(folders)
    whole = None if path else WholeModel.load(weights)
    if path is None and whole is None:
        raise UserFault(
            f"{weights.name} contains weights but no network.",
            "Add the source code of the network, such as network.py.",
        )
    labels = recipe.labels
    if not labels:
        places = [*folders, weights / SAVED_MODEL_EXTRA_FOLDER]
        folder = next((each for each in places if (each / LABELS_FILE).is_file()), None)
        labels = model_archive.labels_in(folder, LABELS_FILE) if folder else []
    height, width, channels = _shape_of(recipe, whole)
    manifest = empty_dataset(labels, height, width, channels, recipe.resize_mode)
    mean = np.zeros(manifest.shape, np.float32)
    if path is not None:
        return Description(text_of(path), weights, model_archive.epoch_of(weights.name), manifest, mean)
    assert whole is not None
    whole.copy_to(Path(recipe.target))
    return Description(whole.network(manifest.shape), None, 0.0, manifest, mean)


def _network_in(folders: Iterable[Path]) -> Path | None:
    """Return the Python file in the first of the ``folders`` that contains one, or None.

    Raises UserFault if there are several. Examples of exports are ignored.
    """
    files = (
        [path for path in sorted(folder.glob("*.py")) if path.name not in (EXAMPLE_FILE, CONVERSION_FILE)]
        for folder in folders
    )
    sources = next(filter(None, files), [])
    if len(sources) > 1:
        names = ", ".join(path.name for path in sources[:5])
        raise UserFault(
            f"The folder contains several Python files: {names}.", "Specify the one that defines the network."
        )
    return sources[0] if sources else None


def _weights_in(source: Path) -> Path:
    """Return the file, checkpoint prefix or SavedModel folder at ``source``, or the only one inside it.

    Those in subfolders count only if there is none above.
    """
    if source.is_file():
        return source.with_suffix("") if source.suffix in (CHECKPOINT_SUFFIX, ".meta") else source
    if is_saved_model(source) or not source.is_dir():
        return source  # a prefix
    models: list[Path] = []
    folders = [source]
    for _ in range(1 + MAX_SEARCHED_LEVELS):
        inside = [path for folder in folders for path in sorted(folder.iterdir())]
        models += [path.with_suffix("") for path in inside if path.suffix == CHECKPOINT_SUFFIX]
        models += [path for path in inside if path.suffix in (*pretrained_files.KERAS_SUFFIXES, ".pb")]
        models += [path for path in inside if is_saved_model(path)]
        if models:
            break
        folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
    if len(models) == 1:
        return models[0]
    if not models:
        raise UserFault(
            "The folder or archive contains no model.",
            "Add a DIGITS archive (info.json), a checkpoint (.index), a SavedModel, or a .keras or .h5 file.",
        )
    names = ", ".join(path.name for path in models[:5])
    raise UserFault(f"The folder or archive contains several models: {names}.", "Specify one of them.")


def _shape_of(recipe: recipes.ImportModel, whole: WholeModel | None) -> tuple[int, int, int]:
    """Return the height, width and channels of the images, from the recipe or else from the model."""
    known = whole.input_shape if whole is not None else (None, None, None)
    height, width = recipe.height or known[0], recipe.width or known[1]
    if height is None or width is None:
        raise UserFault(
            "The model does not specify the size of its images.", "Enter the width and the height."
        )
    for name, given, own in (("height", recipe.height, known[0]), ("width", recipe.width, known[1])):
        if given and own and given != own:
            raise UserFault(
                f"The model requires images with a {name} of {own} pixels, not {given}.",
                f"Enter {own}, or leave the field empty.",
            )
    return height, width, known[2] or recipe.channels
