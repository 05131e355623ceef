"""Predict the images of several clients' requests together, and answer each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from digits.worker.failure import UserFault
from digits.worker.serving.protocols import ClientRequest, Parsed, Response, Source, parse

MAX_BATCH = 64
# A batch should not take longer, because the server waits for an answer for a limited time.
BATCH_SECONDS = 5.0
FIRST_BATCH = 8
MAX_RESPONSE_BYTES = 64_000_000
# Of all responses together.
MAX_RESPONSES_BYTES = 256_000_000


class BatchPredictor(Protocol):
    """A model that predicts from several images together, from up to ``batch_size`` at a time."""

    batch_size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its images, [H, W, C]."""

    def check(self, pixels: NDArray[Any]) -> None:
        """Raise UserFault if ``pixels`` [H, W, C] are not in the range of the images of the training."""

    def predict_batch(
        self, images: Sequence[Source], is_described: Sequence[bool]
    ) -> Sequence[Any | UserFault]:
        """Return for each image the prediction, described or as an array, or why the image cannot be used."""


class _Client:
    """A request, its answers so far, and why it is refused: an HTTP status and the reason."""

    def __init__(
        self, request: ClientRequest, attached: Sequence[bytearray], predictor: BatchPredictor
    ) -> None:
        self._deadline = time.monotonic() + request.seconds
        self.answers: list[Any] = []
        self.refusal: tuple[int, UserFault] | None = None
        self.parsed: Parsed | None = None
        try:
            self.parsed = parse(request, attached, predictor.shape)
            if self.parsed.checks_range:
                self._check_range(self.parsed.images, predictor)
        except UserFault as error:
            self.refusal = 400, error

    def _check_range(self, images: Sequence[Source], predictor: BatchPredictor) -> None:
        for number, image in enumerate(images):
            if isinstance(image, np.ndarray):
                try:
                    predictor.check(image)
                except UserFault as error:
                    raise UserFault(f"Image {number}: {error.message}", error.hint) from error

    def images(self) -> Iterator[tuple[_Client, Source]]:
        """Yield the images until one is refused or the time is up; the client has left by then."""
        for image in self.parsed.images if self.parsed else ():
            if self.refusal is None and time.monotonic() > self._deadline:
                self.refusal = (
                    504,
                    UserFault("The model did not respond in time.", "Send fewer images per request."),
                )
            if self.refusal is not None:
                return
            yield self, image

    def add(self, answer: Any | UserFault) -> None:
        if isinstance(answer, UserFault):
            self.refusal = self.refusal or (
                400,
                UserFault(f"Image {len(self.answers)}: {answer.message}", answer.hint),
            )
        self.answers.append(answer)

    def respond(self, room: int) -> tuple[dict[str, Any], bytes]:
        """Return the description of the response and its body, of at most ``room`` bytes."""
        response = Response(b"", {})
        if self.refusal is None and self.parsed is not None:
            response = self.parsed.respond(self.answers)
            if len(response.body) > min(room, MAX_RESPONSE_BYTES):
                self.refusal = 400, UserFault("The response is too large.", "Send fewer images per request.")
        if self.refusal is not None:
            status, fault = self.refusal
            return {"status": status, "message": fault.message, "hint": fault.hint}, b""
        return {"status": 200, "images": len(self.answers), "headers": response.headers}, response.body


def answer(
    predictor: BatchPredictor,
    requests: Sequence[ClientRequest],
    attached: Sequence[bytearray],
    note_batch: Callable[[int], None] = lambda size: None,
) -> list[tuple[dict[str, Any], bytes]]:
    """Answer ``requests``, whose attachments follow one another in ``attached``.

    Return the descriptions and the bodies of the responses. Calls ``note_batch`` with the size of each batch.
    """
    rest = iter(attached)
    clients = [_Client(request, list(islice(rest, request.attached)), predictor) for request in requests]
    images = (item for client in clients for item in client.images())
    while batch := list(islice(images, predictor.batch_size)):
        note_batch(len(batch))
        began = time.monotonic()
        described = [client.parsed is not None and client.parsed.is_described for client, _ in batch]
        predictions = predictor.predict_batch([image for _, image in batch], described)
        for (client, _), prediction in zip(batch, predictions, strict=True):
            client.add(prediction)
        seconds_per_image = (time.monotonic() - began) / len(batch)
        predictor.batch_size = max(1, min(MAX_BATCH, int(BATCH_SECONDS / (seconds_per_image + 1e-6))))
    room, responses = MAX_RESPONSES_BYTES, []
    for client in clients:
        responses.append(client.respond(room))
        room -= len(responses[-1][1])
    return responses
