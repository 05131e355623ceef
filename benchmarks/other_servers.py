"""Serve a Keras model with LitServe or BentoML, for comparison: ``python other_servers.py litserve MODEL.keras PORT``.

`benchmarks/serving.py --against PYTHON` runs this with an interpreter for which both are installed. Both answer the
same request, ``{"instances": [{"b64": …}]}`` with one image, at ``/predict``, in batches of up to 64 images.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bentoml
import litserve
import numpy as np
from PIL import Image

MAX_BATCH = 64
GATHER_SECONDS = 0.005
MAX_SECONDS = 1.0
# The processes that these programs start import this module again.
MODEL = "SERVED_MODEL"


class Model:
    """The Keras model for image files."""

    def __init__(self) -> None:
        import keras

        self._model = keras.saving.load_model(os.environ[MODEL])
        _, self._height, self._width, self._channels = self._model.input_shape
        self.predict([np.zeros((self._height, self._width, self._channels), np.float32)])

    def pixels(self, image: dict[str, str]) -> np.ndarray:
        with Image.open(io.BytesIO(base64.b64decode(image["b64"]))) as file:
            converted = file.convert("L" if self._channels == 1 else "RGB")
            pixels = np.asarray(converted.resize((self._width, self._height)), np.float32)
        return pixels.reshape(self._height, self._width, self._channels)

    def predict(self, images: list[np.ndarray]) -> list[list[float]]:
        answers: list[list[float]] = self._model.predict_on_batch(np.stack(images)).tolist()
        return answers


class LitServeApi(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self.model = Model()

    def decode_request(self, request):  # type: ignore[no-untyped-def] # an annotation would be that of a query
        return self.model.pixels(request["instances"][0])

    def batch(self, inputs: Any) -> Any:
        return inputs

    def predict(self, x: Any) -> Any:
        return self.model.predict(x)

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: Any) -> Any:
        return {"predictions": [output]}


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class BentoService:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(
        batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=1000 * MAX_SECONDS, route="/predict"
    )
    def predict(self, instances: list[dict[str, str]]) -> list[list[float]]:
        return self.model.predict([self.model.pixels(image) for image in instances])


def serve_with_litserve(port: int) -> None:
    api = LitServeApi(max_batch_size=MAX_BATCH, batch_timeout=GATHER_SECONDS)
    litserve.LitServer(api, accelerator="cpu").run(
        host="127.0.0.1", port=port, log_level="warning", generate_client_file=False
    )


def serve_with_bentoml(port: int) -> None:
    program = Path(__file__)
    service = f"{program.stem}:{BentoService.name}"
    command = ["-m", "bentoml", "serve", service, "--working-dir", str(program.parent), "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *command])


SERVERS: dict[str, Callable[[int], None]] = {"litserve": serve_with_litserve, "bentoml": serve_with_bentoml}

if __name__ == "__main__":
    os.environ[MODEL] = sys.argv[2]
    SERVERS[sys.argv[1]](int(sys.argv[3]))
