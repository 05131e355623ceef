"""Requests of several clients that are predicted together, with a model that counts its batches."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from digits.worker.failure import UserFault
from digits.worker.serving import client_batch, protocols
from digits.worker.serving.protocols import ClientRequest

pytestmark = pytest.mark.tensorflow


class Model:
    """Predicts the sum of an image of one pixel; refuses black ones."""

    shape = (1, 1, 1)

    def __init__(self, seconds_per_image: float = 0) -> None:
        self.batch_size = client_batch.FIRST_BATCH
        self.seconds, self.seconds_per_image = 0.0, seconds_per_image

    def check(self, pixels: Any) -> None:
        if pixels.max() == 0.5:
            raise UserFault("its values are halves.")

    def predict_batch(self, images: Sequence[Any], is_described: Sequence[bool]) -> list[Any]:
        self.seconds += self.seconds_per_image * len(images)
        return [
            UserFault("It is black.") if not image.any() else image.sum(keepdims=True)[0, 0]
            for image in images
        ]


def answer(
    *bodies: Any, seconds: float = 30, model: Model | None = None
) -> tuple[list[dict[str, Any]], list[int]]:
    sizes: list[int] = []
    requests = [ClientRequest("json", "name", seconds) for _ in bodies]
    attached = [bytearray(body if isinstance(body, bytes) else json.dumps(body).encode()) for body in bodies]
    responses = client_batch.answer(model or Model(), requests, attached, sizes.append)
    return [described | ({"body": json.loads(body)} if body else {}) for described, body in responses], sizes


def pixels(*values: int) -> dict[str, Any]:
    return {"instances": [[[[value]]] for value in values]}


def test_each_request_is_answered_from_common_batches() -> None:
    answers, sizes = answer(pixels(*range(1, 71)), pixels(1, 0, 3), pixels(7), b"[")
    assert sizes == [8, 64, 1]  # the last image of the second client is not needed
    assert answers[0]["body"] == {"predictions": [[float(value)] for value in range(1, 71)]}
    assert (answers[1]["status"], answers[1]["message"]) == (400, "Image 1: It is black.")
    assert answers[2]["images"] == 1
    assert answers[3]["status"] == 400 and "invalid" in answers[3]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": ["\xed\xa0\x80"]}',
        rb'{"instances": ["\ud800"]}',
        b'{"instances": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"instances": [[[1' + b"0" * 400 + b"]]]}",
        b'{"instances": [[[NaN]]]}',
        b'{"instances": [[[null]]]}',
        b"[]",
    ],
)
def test_odd_json_is_invalid(body: bytes) -> None:
    answers, _ = answer(body, pixels(7))
    assert answers[0]["status"] == 400 and answers[1]["images"] == 1


def test_pixels_of_another_range_are_refused_unless_the_client_insists() -> None:
    body = pixels(1, 0.5)  # type: ignore[arg-type]
    answers, _ = answer(body, body | {"check_range": False})
    assert (answers[0]["status"], answers[0]["message"]) == (400, "Image 1: its values are halves.")
    assert answers[1]["body"] == {"predictions": [[1.0], [0.5]]}


def test_a_slow_model_predicts_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_batch, "BATCH_SECONDS", 0.02)
    model = Model(seconds_per_image=0.005)
    monkeypatch.setattr(time, "monotonic", lambda: model.seconds)
    _, sizes = answer(pixels(*range(1, 20)), model=model)
    assert sizes[0] == 8 and max(sizes[1:]) <= 4
    model.seconds_per_image = 0
    answer(pixels(1, 2), model=model)
    assert model.batch_size > 4


def test_a_client_that_has_left_is_not_predicted_for() -> None:
    answers, sizes = answer(pixels(1), seconds=-1)
    assert (answers[0]["status"], sizes) == (504, [])


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [' + b"[]," * protocols.MAX_JSON_VALUES + b"[]]}",
        b'{"instances": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"instances": [' + b"9" * 5000 + b"]}",
        b'{"instances": [1e999]}',
    ],
    ids=["many lists", "deep lists", "a long number", "infinity"],
)
def test_json_that_would_take_long_is_refused(body: bytes) -> None:
    ((refused,), _) = answer(body)
    assert refused["status"] == 400


def test_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_batch, "MAX_RESPONSE_BYTES", 60)
    monkeypatch.setattr(client_batch, "MAX_RESPONSES_BYTES", 90)
    answers, _ = answer(pixels(1, 2), pixels(*[3] * 10), pixels(4, 5), pixels(6, 7), pixels(8, 9))
    assert [item["status"] for item in answers] == [200, 400, 200, 200, 400]
    assert "too large" in answers[1]["message"]
