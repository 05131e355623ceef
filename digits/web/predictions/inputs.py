"""The inputs of requests: an image, a record, or the fields of a kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from flask import Response, after_this_request, request
from numpy.typing import NDArray
from werkzeug.datastructures import FileStorage

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.images.images import FULL_BITS
from digits.kinds.decoding import ReadInput, RecordArray, StoredImage
from digits.kinds.forms.request_fields import parse_integer
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import InputRequest, views_of
from digits.runtime.offload import in_thread
from digits.runtime.trash import SMALL_BYTES
from digits.web.records.images import find_dataset, finished_manifest, open_record
from digits.web.services import services


@dataclass(frozen=True)
class Input:
    """What a model predicts from: an image file on the server, one in the request, or an array of ``pixels``.

    ``truth`` is the target of a record in words.
    """

    source: Path | FileStorage | NDArray[Any]
    truth: str = ""

    @property
    def pixels(self) -> NDArray[Any] | None:
        return self.source if isinstance(self.source, np.ndarray) else None

    @property
    def is_picture(self) -> bool:
        """Whether it can be shown as an image."""
        return self.pixels is None or (self.pixels.dtype == np.uint8 and self.pixels.shape[2] in (1, 3))

    def exchange(self, job: ModelJob, message: dict[str, Any]) -> tuple[dict[str, Any], list[bytearray]]:
        """Send a call about this input to the inference server; see `InferenceServers.exchange`.

        An image in the request is attached, so no file is written for it.
        """
        attached: list[IO[bytes]] = []
        if isinstance(self.source, Path):
            message = {**message, "image": str(self.source)}
        elif isinstance(self.source, FileStorage):
            attached = [self.source.stream]
        else:
            message = {**message, "is_array": True}
            attached = [BytesIO()]
            np.save(attached[0], self.source, allow_pickle=False)
        return services().inference.exchange(job.folder, message, attached)


def input_of(job: ModelJob) -> Input:
    """Return what this request contains: an image, a record, or the input of the kind's own fields.

    A ``record`` of the model's dataset is named like ``val/12``.
    """
    dataset = services().store.find(job.dataset_id)
    record = request.values.get("record", "").strip()
    if record and not _has_image():
        return _read_record(job, record)
    if isinstance(dataset, DatasetJob) and views_of(dataset.data_kind).has_input:
        pixels = _read_input(dataset)
        if pixels is not None:
            return Input(pixels)
    return Input(_image())


def _read_input(dataset: DatasetJob) -> NDArray[Any] | None:
    """Return the pixels that the kind of ``dataset`` reads from this request, if any; files in another process."""
    inputs = input_request()
    if inputs.files:
        manifest = dataset.manifest()
        bits = manifest.bits if manifest else FULL_BITS
        pixels = services().decoder.run(ReadInput.of(dataset.kind_recipe, inputs, bits))
        return pixels.as_array() if pixels.data else None
    return in_thread(views_of(dataset.data_kind).read_input, dataset.kind_recipe, inputs)


def _read_record(job: ModelJob, text: str) -> Input:
    """Return a record of the dataset of ``job``, such as ``val/12``; raises BadRequest or NotFound."""
    split, _, digits = text.rpartition("/")
    number = parse_integer(digits)
    if number is None or number < 0:
        raise BadRequest(f"“{text[:40]}” is not a record.", "Send its split and its number, such as val/12.")
    dataset = find_dataset(job.dataset_id)
    describe = partial(views_of(dataset.data_kind).describe_record, finished_manifest(dataset))
    read = open_record(dataset, split, number, lambda record: (StoredImage.of(record), describe(record)))
    image, truth = in_thread(read)
    try:
        return Input(services().decoder.run(RecordArray(image)).as_array(), truth)
    except UnreadableFile as error:
        raise NotFound("The record cannot be read.", str(error)) from error


def input_request() -> InputRequest:
    """Return the fields and the files of this request, for `Views.read_input` and `Views.read_inputs`."""
    files: dict[str, bytes | Path] = {}
    uploads: list[str] = []
    for field, text in request.values.items():
        name = field.removesuffix("_path").removesuffix("_file")
        if name not in (field, "image") and text.strip():
            files[name] = services().roots.resolve(text.strip(), file_type="file")
    for field, upload in request.files.items():
        name = field.removesuffix("_file")
        if name not in (field, "image") and upload.filename:
            files[name] = saved(upload)
            uploads.append(name)
    return InputRequest(request.values.to_dict(), files, uploads)


def saved(upload: FileStorage) -> Path:
    """Save ``upload`` as a file of the uploads folder that is discarded at the end of this request."""
    path = services().new_upload()
    discard = services().store.discard

    @after_this_request
    def remove(response: Response) -> Response:
        discard(path)
        return response

    is_small = upload.stream.seek(0, SEEK_END) <= SMALL_BYTES
    upload.stream.seek(0)
    if is_small:
        upload.save(path)  # faster than starting a thread
    else:
        in_thread(upload.save, path)
    return path


def _has_image() -> bool:
    """Return whether this request contains an image or its path."""
    upload = request.files.get("image_file")
    return bool(upload and upload.filename) or bool(request.values.get("image_path", "").strip())


def _image() -> Path | FileStorage:
    """Return the image of this request: the upload, or a file below a root."""
    upload = request.files.get("image_file")
    if upload is not None and upload.filename:
        return upload
    text = request.values.get("image_path", "").strip()
    if not text:
        raise BadRequest("Upload an image, or specify its path.")
    if "://" in text:
        raise BadRequest("Images are not fetched from other servers.", "Download it and upload it here.")
    return services().roots.resolve(text, file_type="file")
