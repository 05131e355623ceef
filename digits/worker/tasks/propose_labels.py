"""Propose labels for images with a trained model, and sort the images by how much their labels would teach it."""

from __future__ import annotations

import base64
import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.core.files import UnreadableFile, make_folder, write_bytes
from digits.data.arrays import load_rows
from digits.data.models import predictions
from digits.data.models.predictions import ListedImage
from digits.data.parallel import available_cores
from digits.data.targets.mask import IGNORED
from digits.kinds.labeling.answers import Proposal
from digits.kinds.labeling.forms import MASKS_FOLDER, form_of
from digits.kinds.labeling.images import read_images
from digits.kinds.labeling.ordering import uncertain_order, write_order
from digits.kinds.labeling.proposals import ROWS_FILE
from digits.kinds.network.targets import select_output
from digits.worker.failure import UserFault
from digits.worker.tasks import background
from digits.worker.tasks.list_images import APPEARANCE, APPEARANCE_FILE, features_of
from digits.worker.tasks.predict import TOP, Predictor, read_ahead
from digits.worker.training.models import trained

_UNCERTAINTY = "uncertainty"


def run(recipe: recipes.ProposeLabels, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Append a proposal for each image, and write their order; raises UserFault if the model cannot be used."""
    background.begin(events)
    target, folder = Path(recipe.target), Path(recipe.labels)
    try:
        images = list(read_images(folder))
        looks = load_rows(folder / APPEARANCE_FILE, below=folder, dtype=APPEARANCE)
    except UnreadableFile as error:
        raise UserFault(f"The list of images cannot be read: {error}.", "List the images again.") from error
    usable = [number for number, image in enumerate(images) if not image.reason]
    listed = [ListedImage(str(Path(recipe.root) / images[number].path), str(number)) for number in usable]
    predictor = _Proposer(trained.load(Path(recipe.model), recipe.snapshot, Path(recipe.trained_on)), recipe)
    progress = background.ItemProgress(events, "Predicting", len(listed))
    uncertainty = np.zeros(len(images), np.float32)
    with (
        background.reporting_full_disk("the proposals"),
        open(target / ROWS_FILE, "wb") as file,
        ThreadPoolExecutor(available_cores()) as threads,
    ):
        for chunk, inputs in read_ahead(threads, predictor, listed):
            proposals = predictor.propose(chunk, inputs, target)
            for proposal in proposals:
                uncertainty[proposal.image] = proposal.uncertainty
            file.writelines(msgspec.json.encode(proposal) + b"\n" for proposal in proposals)
            file.flush()
            progress.advance(len(chunk))
        seed = zlib.crc32(target.name.encode())
        features = partial(features_of, Path(recipe.weights), Path(recipe.root), images, events)
        shapes = looks["shape"][: len(images)]
        write_order(target, uncertain_order(images, shapes, uncertainty, seed, features))
    return {"images": len(listed)}


class _Proposer(Predictor):
    """Predicts answers, and for masks how uncertain their pixels are."""

    def __init__(self, model: trained.Trained, recipe: recipes.ProposeLabels) -> None:
        self._recipe, self._form = recipe, form_of(recipe.kind)
        super().__init__(model, keeps_values=True, resizes=True)
        names = self._targets.target.names
        # The class of the labels for each class of the model.
        self._ids = np.full(256, IGNORED, np.uint8)
        for index, name in enumerate(names[:IGNORED]):
            self._ids[index] = recipe.classes.get(name, IGNORED)

    def propose(self, chunk: list[ListedImage], inputs: list[Any], target: Path) -> list[Proposal]:
        """Return a proposal for each image, and write its mask into the folder ``target``."""
        places = [place for place, item in enumerate(inputs) if not isinstance(item, UserFault)]
        outputs = self.predict([inputs[place][0] for place in places]) if places else {}
        found: list[Proposal] = []
        for place, item in enumerate(inputs):
            number = int(chunk[place].name)
            if isinstance(item, UserFault):
                found.append(Proposal(image=number, error=item.message))
                continue
            row = places.index(place)
            described = self._targets.describe(outputs[predictions.PREDICTION][row], TOP, item[1])
            proposal = self._form.propose(number, described, self._recipe)
            if self._form.field == "mask":
                proposal.mask = self._write_mask(number, described["mask"], target)
                if _UNCERTAINTY in outputs:
                    proposal.uncertainty = float(outputs[_UNCERTAINTY][row])
                    proposal.score = 1 - proposal.uncertainty
            found.append(proposal)
        return found

    def _write_mask(self, number: int, uri: str, target: Path) -> str:
        """Write the mask in a data URI with the classes of the labels; return the name of its file."""
        picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        file = io.BytesIO()
        Image.fromarray(self._ids[np.asarray(picture)]).save(file, "PNG")
        make_folder(target / MASKS_FOLDER)
        write_bytes(target / MASKS_FOLDER / f"{number}.png", file.getvalue())
        return f"{number}.png"

    def _run(self, pixels: NDArray[Any]) -> dict[str, NDArray[Any]]:
        predicted, outputs = self._batches(pixels)
        return {predictions.PREDICTION: predicted, **outputs}

    def _predict(self, pixels: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        outputs = self._model.outputs(pixels)
        measured = (
            {_UNCERTAINTY: _uncertainty(outputs, self._targets.target.outputs)}
            if self._form.field == "mask"
            else {}
        )
        return self._targets.predict(outputs), measured


def _uncertainty(outputs: Any, classes: int) -> tf.Tensor:
    """Return the mean over the pixels of 1 minus the margin between the two likeliest classes, float32 [N]."""
    scores = tf.cast(select_output(outputs, classes, rank=4), tf.float32)[..., :classes]
    sums = tf.reduce_sum(scores, axis=-1, keepdims=True)
    are_chances = tf.reduce_all((scores >= 0) & (tf.abs(sums - 1) < 1e-3))
    chances = tf.cond(are_chances, lambda: scores, lambda: tf.nn.softmax(scores))
    best = tf.math.top_k(chances, k=min(2, classes)).values
    margin = best[..., 0] - best[..., -1] if classes > 1 else best[..., 0]
    return 1 - tf.reduce_mean(margin, axis=[1, 2])
