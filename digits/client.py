"""A client for scripts: it creates datasets and models on a server, waits for them and uses them.

    from digits.client import Client

    server = Client("http://127.0.0.1:5000")
    dataset = server.create_dataset("images/classification", "flowers", folder_train="/data/flowers")
    server.wait(dataset.id)
    model = server.create_model("first", dataset.id, train_epochs=5, shuffle=True)
    server.wait(model.id, lambda status: print(f"{status.progress} %"))
    print(server.classify(model.id, "rose.jpg").predictions)

Responses are the structs of `digits.web.resources`. Errors are the ones of `digits.core.errors`, with a message and a
hint, as on the pages of the server. The module needs neither Flask nor TensorFlow.
"""

from __future__ import annotations

import base64
import http.client
import io
import os
import secrets
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from digits.core import errors, schema
from digits.core.errors import BadRequest, DigitsError, Unavailable
from digits.core.status import Status
from digits.data.loose_json import InvalidJson, load
from digits.web.resources.compute import Target, Targets
from digits.web.resources.datasets import CreatedDataset, Dataset
from digits.web.resources.errors import Error, InvalidForm
from digits.web.resources.evaluations import EvaluationResult, Evaluations
from digits.web.resources.exports import ExportResult, Exports
from digits.web.resources.jobs import BriefJob, JobOutput, JobRow, JobStatus
from digits.web.resources.labels import (
    Accepted,
    FrozenDataset,
    ImagePage,
    LabeledImage,
    Labels,
    ProposalRun,
    SavedLabel,
)
from digits.web.resources.lists import DatasetRows, LabelsRows, ListPage, ModelRows
from digits.web.resources.models import CreatedModels, Curves, Model
from digits.web.resources.pending_edits import PendingEdits
from digits.web.resources.predictions import Prediction
from digits.web.resources.uploads import UploadState

T = TypeVar("T")
# A value of a form field: lists are sent as repeated fields, files as uploads, None not at all.
Value = str | int | float | bool | Path | bytes | list[Any] | None

POLL_SECONDS = 1.0
# A server that computes something before it responds is silent for minutes at most.
TIMEOUT_SECONDS = 300.0
CHUNK_BYTES = 8 * 2**20
_IMAGES_PER_PAGE = 500
_TUS = {"Tus-Resumable": "1.0.0"}
# The kind of a model follows from its dataset, so that any will do in the address.
_ANY_KIND = "images/classification"
_ERRORS: dict[str, type[DigitsError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, DigitsError) and kind is not errors.Damaged
}
_ENDED = {status.title: status for status in (Status.DONE, Status.ABORT, Status.ERROR)}


class InvalidFields(BadRequest):
    """Fields of a request are invalid: ``fields`` are the messages by name."""

    def __init__(self, message: str, fields: Mapping[str, list[str]]) -> None:
        super().__init__(message)
        self.fields = fields


class JobFailed(DigitsError):
    """A job, an evaluation or an export ended with an error, or was aborted."""


class Body(Protocol):
    """The body of a response, as a file."""

    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> object: ...


class Answer(NamedTuple):
    """A response of the server. ``body`` must be closed."""

    status: int
    headers: Mapping[str, str]
    body: Body


# Sends a request: the method, the path with its query, the headers and the body.
Transport = Callable[[str, str, Mapping[str, str], bytes | None], Answer]


class Client:
    """A server at ``address``, such as ``http://127.0.0.1:5000``.

    ``address`` includes the URL prefix of the server, if it has one. ``token`` is needed for servers on other machines.
    New jobs belong to ``username``. All methods raise DigitsError: NotFound, InvalidFields, NotReady and so on, and
    Unavailable if the server does not respond, sends nothing for ``timeout`` seconds, or ends a response early.
    """

    def __init__(
        self,
        address: str = "http://127.0.0.1:5000",
        *,
        token: str = "",
        username: str = "",
        timeout: float = TIMEOUT_SECONDS,
        transport: Transport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._transport = transport or http_transport(address, timeout)
        self._prefix = urlsplit(address).path.rstrip("/")
        self._headers = {"Accept": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        self._username, self._sleep = username, sleep

    # Jobs

    def create_dataset(self, kind: str, name: str, /, **fields: Value) -> CreatedDataset:
        """Create a dataset of a ``kind``, such as ``images/classification``; ``fields`` are those of its form."""
        return self._post(
            f"/datasets/{kind}.json", CreatedDataset, dataset_name=name, **self._owner(), **fields
        )

    def create_version(self, dataset_id: str, name: str, /, **fields: Value) -> BriefJob:
        """Create a version of a dataset; ``fields`` are those of its form, such as ``added_folder``."""
        path = f"/datasets/{dataset_id}/versions.json"
        return self._post(path, BriefJob, dataset_name=name, **self._owner(), **fields)

    def create_model(self, name: str, dataset: str, /, **fields: Value) -> Model:
        """Train a model on the ``dataset`` with this id; ``fields`` are those of its form."""
        return self._post(
            f"/models/{_ANY_KIND}.json", Model, model_name=name, dataset=dataset, **self._owner(), **fields
        )

    def create_models(self, name: str, dataset: str, /, **fields: Value) -> list[Model]:
        """Train a model for each pair of values in the ``fields`` ``learning_rate`` and ``batch_size``."""
        given = {"model_name": name, "dataset": dataset, **self._owner(), **fields}
        body = self.json("POST", f"/models/{_ANY_KIND}.json", **given)
        return schema.convert(body, CreatedModels).jobs if "jobs" in body else [schema.convert(body, Model)]

    def dataset(self, dataset_id: str) -> Dataset:
        """Return a dataset. Further keys depend on its kind: see `json`."""
        return self._get(f"/datasets/{dataset_id}.json", Dataset)

    def model(self, model_id: str) -> Model:
        """Return a model with its snapshots."""
        return self._get(f"/models/{model_id}.json", Model)

    def datasets(self, query: str = "") -> Iterator[JobRow]:
        """Yield the datasets that match the words of ``query``, the newest first."""
        return self._rows("datasets", DatasetRows, query)

    def models(self, query: str = "") -> Iterator[JobRow]:
        """Yield the models that match the words of ``query``, the newest first."""
        return self._rows("models", ModelRows, query)

    def status(self, job_id: str) -> JobStatus:
        """Return the state of a job."""
        return self._get(f"/jobs/{job_id}/status", JobStatus)

    def wait(
        self,
        job_id: str,
        on_progress: Callable[[JobStatus], object] = lambda status: None,
        timeout: float | None = None,
    ) -> JobStatus:
        """Wait until a job is done, and return its state; raises JobFailed if it failed or was aborted.

        ``on_progress`` is called with each state. Raises TimeoutError after ``timeout`` seconds; the job continues.
        """
        for status in self._polled(lambda: self.status(job_id), timeout):
            on_progress(status)
            ended = _ENDED.get(status.status)
            if ended is Status.DONE:
                return status
            if ended is not None:
                why = f": {status.error}" if status.error else "."
                raise JobFailed(f"“{status.name}” ended with the status {status.status}{why}")
        raise AssertionError

    def output(self, job_id: str, after: int = 0) -> JobOutput:
        """Return what the task of a job printed after an offset in bytes."""
        return self._get(f"/jobs/{job_id}/output?after={after}", JobOutput)

    def abort(self, job_id: str) -> None:
        """Stop a job."""
        self.json("POST", f"/jobs/{job_id}/abort")

    def delete(self, job_id: str) -> None:
        """Delete a job and its files."""
        self.json("DELETE", f"/jobs/{job_id}")

    # Compute targets

    def compute(self) -> list[Target]:
        """Return the compute targets of the server: its own machine, and clusters."""
        return self._get("/compute.json", Targets).targets

    def check_compute(self, name: str) -> Target:
        """Start a check of the cluster ``name``; `compute` then returns its findings."""
        return self._post(f"/compute/{name}/check.json", Target)

    # Models

    def resume(
        self, model_id: str, *, train_epochs: int | None = None, more_epochs: int | None = None
    ) -> BriefJob:
        """Resume an aborted or failed training, or continue a finished one.

        It then trains until ``train_epochs`` in all, or for ``more_epochs``.
        """
        fields = {"train_epochs": train_epochs, "more_epochs": more_epochs}
        changed = {name: value for name, value in fields.items() if value is not None}
        return self._post(f"/models/{model_id}/resume", BriefJob, **changed)

    def metrics(self, model_id: str) -> Curves:
        """Return the curves of a model as columns."""
        return self._get(f"/models/{model_id}/metrics.json", Curves)

    def classify(self, model_id: str, image: str | Path | bytes, /, **fields: Value) -> Prediction:
        """Predict from an image, the content or the path of a local file, with the best snapshot of a model.

        ``fields`` may choose another one as ``snapshot_epoch``. For models of other kinds, see the form of the
        predictions there.
        """
        content = image if isinstance(image, bytes) else Path(image).read_bytes()
        path = f"/models/{_ANY_KIND}/infer_one.json"
        return self._post(path, Prediction, job_id=model_id, image_file=content, **fields)

    def evaluate(
        self, model_id: str, split: str = "val", *, timeout: float | None = None, **fields: Value
    ) -> EvaluationResult:
        """Evaluate a model on a split of its dataset, or of another ``dataset``, and wait for the result.

        Raises TimeoutError after ``timeout`` seconds; the evaluation continues.
        """
        path = f"/models/{model_id}/evaluation.json"
        name = self._post(path, Evaluations, split=split, **fields).tasks[-1].name
        for evaluations in self._polled(lambda: self._get(path, Evaluations), timeout):
            if any(task.name == name for task in evaluations.tasks):
                continue
            for result in evaluations.evaluations:
                if result.name == name and not result.is_partial:
                    return result
            raise _failure(evaluations.error, "The evaluation was stopped.")
        raise AssertionError

    def export(
        self, model_id: str, format: str = "savedmodel", *, timeout: float | None = None, **fields: Value
    ) -> ExportResult:
        """Export the snapshot ``snapshot_epoch`` of a model, by default the best one, in a ``format``.

        Wait for the result, and return it; `download` its ``url``. Raises TimeoutError after ``timeout`` seconds; the
        export continues.
        """
        path = f"/models/{model_id}/export.json"
        snapshot = self._post(path, Exports, format=format, **fields).snapshot
        for exports in self._polled(lambda: self._get(path, Exports), timeout):
            if exports.state == "running":
                continue
            for result in exports.exports:
                if (result.format, result.snapshot) == (format, snapshot):
                    return result
            raise _failure(exports.error, "The export was stopped.")
        raise AssertionError

    # Labels

    def create_labels(
        self, name: str, kind: str = "", folder: str | Path = "", classes: Sequence[str] = (), **fields: Any
    ) -> BriefJob:
        """Start labels of the images in a ``folder`` of the server, for datasets of a ``kind``.

        Among the ``fields``, ``folders_are_classes``, ``annotations``, a path of the server, or ``dataset``, an id,
        are labels to begin with; the kind and the folder are then by default those of the dataset. `wait` until the
        images are listed.
        """
        sent = {"name": name, "kind": kind, "folder": str(folder), "classes": [*classes], **fields}
        return self._post_json("/labels.json", BriefJob, sent)

    def labels(self, labels_id: str) -> Labels:
        """Return the classes of labels, and the numbers of their images."""
        return self._get(f"/labels/{labels_id}.json", Labels)

    def list_labels(self, query: str = "") -> Iterator[JobRow]:
        """Yield the labels that match the words of ``query``, the newest first."""
        return self._rows("labels", LabelsRows, query)

    def label_images(self, labels_id: str, *, state: str = "", split: str = "") -> Iterator[LabeledImage]:
        """Yield the images, or those in one of the states and splits, which commas separate."""
        after: int | None = -1
        while after is not None:
            query = urlencode({"state": state, "split": split, "after": after, "size": _IMAGES_PER_PAGE})
            page = self._get(f"/labels/{labels_id}/images.json?{query}", ImagePage)
            yield from page.images
            after = page.after

    def save_label(self, labels_id: str, n: int, rev: int, **answer: Any) -> int:
        """Save an answer about the image ``n``, such as ``label=2``, and return the number of the new entry.

        ``rev`` is the entry that it replaces, 0 for the first one; raises Outdated if that is no longer the latest one.
        ``mask`` can be the content of a PNG file. A repeated ``edit`` has no effect; by default it is a new one.
        """
        if isinstance(answer.get("mask"), bytes):
            answer["mask"] = base64.b64encode(answer["mask"]).decode()
        sent = {"rev": rev, "edit": secrets.token_hex(8), **answer}
        return self._post_json(f"/labels/{labels_id}/images/{n}.json", SavedLabel, sent).rev

    def propose(
        self, labels_id: str, model_id: str, *, timeout: float | None = None, **fields: Value
    ) -> ProposalRun:
        """Let a model predict all images, and wait; a run that is stopped has fewer ``images``.

        ``fields`` may choose the snapshot of an ``epoch``. Raises TimeoutError after ``timeout`` seconds; the
        predictions continue.
        """
        path = f"/labels/{labels_id}/predictions.json"
        name = self._post(path, ProposalRun, model=model_id, **fields).tasks[-1].name
        for run in self._polled(lambda: self._get(path, ProposalRun), timeout):
            if any(task.name == name for task in run.tasks):
                continue
            if run.state == "done":
                return run
            raise _failure(run.error, "The predictions were stopped.")
        raise AssertionError

    def accept(self, labels_id: str, threshold: float, *, dry_run: bool = False) -> Accepted:
        """Accept the proposals for open training images whose score is at least ``threshold``.

        With ``dry_run``, only return their number and a random ``sample``.
        """
        fields = {"threshold": threshold, "dry_run": dry_run, **self._owner()}
        return self._post(f"/labels/{labels_id}/accept.json", Accepted, **fields)

    def freeze(self, labels_id: str, name: str, **settings: Value) -> FrozenDataset:
        """Create a dataset from the labels so far; `wait` for it. ``settings`` are such as ``width``."""
        given = {key: value for key, value in settings.items() if value is not None}
        return self._post_json(f"/labels/{labels_id}/datasets.json", FrozenDataset, {"name": name, **given})

    def correct(self, dataset_id: str, changes: Mapping[str, Mapping[str, Any] | None]) -> PendingEdits:
        """Correct the labels from which a dataset was made by the ``changes`` of its records.

        An example is ``{"train/7": {"label": 2}, "val/0": {"exclude": True}}``; None restores a record. Raises Outdated
        if somebody has labeled one of the images again since, and then saves nothing.
        """
        sent = {"changes": msgspec.json.encode(changes).decode(), **self._owner()}
        return self._post(f"/datasets/{dataset_id}/corrections.json", PendingEdits, **sent)

    # Files

    def download(self, path: str, target: str | Path) -> Path:
        """Save the file at a ``path`` of the server, such as ``/models/ID/download.zip``, as ``target``.

        An existing file is only replaced when the download is complete; raises Unavailable if it ends early.
        """
        target = Path(target)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with self._send("GET", self._path_of(path)).body as body, open(part, "xb") as file:
                shutil.copyfileobj(body, file)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def upload(
        self,
        archive: str | Path,
        on_progress: Callable[[int], object] = lambda sent: None,
        encoding: str = "",
        timeout: float | None = None,
    ) -> UploadState:
        """Upload an archive of images, and wait until it is unpacked; its ``folder`` is the source of a dataset.

        ``on_progress`` is called with the number of bytes sent. ``encoding`` is that of names in a zip archive that
        does not state it, such as ``gbk``. Raises TimeoutError if unpacking takes more than ``timeout`` seconds.
        """
        source = Path(archive)
        pairs = {"filename": source.name, "encoding": encoding}
        metadata = [
            f"{key} {base64.b64encode(text.encode()).decode()}" for key, text in pairs.items() if text
        ]
        headers = {
            **_TUS,
            "Upload-Length": str(source.stat().st_size),
            "Upload-Metadata": ",".join(metadata),
        }
        created = self._send("POST", "/uploads", headers)
        created.body.close()
        path, sent = self._path_of(created.headers["Location"]), 0
        with open(source, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                headers = {
                    **_TUS,
                    "Upload-Offset": str(sent),
                    "Content-Type": "application/offset+octet-stream",
                }
                self._send("PATCH", path, headers, chunk).body.close()
                sent += len(chunk)
                on_progress(sent)
        for upload in self._polled(lambda: self._get(path, UploadState), timeout):
            if upload.state == "failed":
                raise JobFailed(f"The upload of {source.name} failed: {upload.error}")
            if upload.state == "ready":
                return upload
        raise AssertionError

    def json(self, method: str, path: str, /, **fields: Value) -> Any:
        """Return the JSON of any route; ``fields`` are sent as a form, unless the method is GET."""
        return self._json(method, self._path_of(path), **fields)

    # Requests

    def _owner(self) -> dict[str, Value]:
        return {"username": self._username} if self._username else {}

    def _rows(self, name: str, kind: type[ListPage], query: str) -> Iterator[JobRow]:
        path: str | None = f"/{name}.json?{urlencode({'q': query})}"
        while path:
            page = self._get(path, kind)
            yield from getattr(page, name)
            path = self._path_of(page.next) if page.next else None

    def _polled(self, ask: Callable[[], T], timeout: float | None = None) -> Iterator[T]:
        began = time.monotonic()
        while True:
            yield ask()
            if timeout is not None and time.monotonic() - began > timeout:
                raise TimeoutError(f"Still waiting after {timeout:g} seconds.")
            self._sleep(POLL_SECONDS)

    def _get(self, path: str, kind: type[T]) -> T:
        return schema.convert(self._json("GET", path), kind)

    def _post(self, path: str, kind: type[T], /, **fields: Value) -> T:
        return schema.convert(self._json("POST", path, **fields), kind)

    def _post_json(self, path: str, kind: type[T], sent: Mapping[str, Any]) -> T:
        query = f"?{urlencode(self._owner())}" if self._username else ""
        headers = {"Content-Type": "application/json"}
        return schema.convert(self._load("POST", path + query, headers, msgspec.json.encode(sent)), kind)

    def _json(self, method: str, path: str, /, **fields: Value) -> Any:
        body, headers = (None, {}) if method == "GET" else _encoded(fields)
        return self._load(method, path, headers, body)

    def _load(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        with self._send(method, path, headers, body).body as answer:
            try:
                return load(answer.read())
            except InvalidJson as error:
                raise Unavailable(
                    f"The response to {method} {path} is not JSON: {error}.",
                    "Check that the address is that of DIGITS.",
                ) from error

    def _path_of(self, url: str) -> str:
        """Return the path below the address of the server of a ``url`` in a response, which is one of its host."""
        path = url if url.startswith("/") else urlunsplit(("", "", *urlsplit(url)[2:4], ""))
        return path.removeprefix(self._prefix) if path.startswith(f"{self._prefix}/") else path

    def _send(
        self, method: str, path: str, headers: Mapping[str, str] = {}, body: bytes | None = None
    ) -> Answer:
        answer = self._transport(method, path, {**self._headers, **headers}, body)
        if answer.status >= 400:
            with answer.body as text:
                raise _error(answer.status, text.read())
        return answer


class _Body:
    """The body of a response. Reading raises Unavailable if the connection fails or the end is missing."""

    def __init__(self, response: Any, address: str) -> None:
        self._response, self._address = response, address

    def read(self, size: int = -1) -> bytes:
        try:
            data: bytes = self._response.read(None if size < 0 else size)
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(self._address, error) from error
        # The number of bytes of a Content-Length that have not arrived; a missing end of chunks raises an error above.
        if (size < 0 or not data) and self._response.length:
            raise Unavailable(f"The response of {self._address} ended early.", "Try again.")
        return data

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within the server; another one must not receive the token."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            raise Unavailable(f"The server redirects to another address, {newurl}.", "Use that address.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def http_transport(address: str, timeout: float = TIMEOUT_SECONDS) -> Transport:
    """Return a transport to a server at ``address`` over HTTP or HTTPS; raises ValueError for other addresses.

    It raises Unavailable if nothing arrives for ``timeout`` seconds.
    """
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"The address of a server starts with http:// or https://, not {address!r}.")

    opener = urllib.request.build_opener(_SameServer())

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        url = address.rstrip("/") + path
        request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 (checked above)
        try:
            response = opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            response = error
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(address, error) from error
        return Answer(response.status, response.headers, _Body(response, address))

    return send


def _unavailable(address: str, error: Exception) -> Unavailable:
    reason = getattr(error, "reason", error)
    return Unavailable(
        f"The server at {address} does not respond: {reason}.", "Check the address, and that it runs."
    )


def _encoded(fields: Mapping[str, Value]) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request with form fields; bytes are sent as files."""
    boundary = secrets.token_hex(16)
    body = io.BytesIO()
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            file = '; filename="file"' if isinstance(item, bytes) else ""
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
            text = str(int(item) if isinstance(item, bool) else item).encode()
            body.write(head.encode() + (item if isinstance(item, bytes) else text) + b"\r\n")
    body.write(f"--{boundary}--\r\n".encode())
    return body.getvalue(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def _error(status: int, text: bytes) -> DigitsError:
    """Return the error in the body of a response, or one about its status."""
    try:
        invalid = load(text, InvalidForm)
        return InvalidFields(invalid.error.message, invalid.errors)
    except InvalidJson:
        pass
    try:
        facts = load(text, Error).error
    except InvalidJson:
        error = DigitsError(f"The server answered with the status {status}.")
    else:
        kind = _ERRORS.get(facts.type, DigitsError)
        error = kind(facts.message, facts.hint or "", cast(list[dict[str, Any]], facts.trace or []))
    error.http_status = status
    return error


def _failure(error: Any, otherwise: str) -> JobFailed:
    return JobFailed(error.message, error.hint) if error else JobFailed(otherwise)
