"""Serving models to client programs: TensorFlow Serving and KServe requests, uploads, and production names."""

from __future__ import annotations

import base64
import io
import json
import struct
import urllib.parse
from pathlib import Path
from typing import Any

import gevent
import numpy as np
import pytest
from PIL import Image

from digits.core import recipe as recipes
from digits.core.errors import TooBusy
from digits.core.model_job import ModelJob
from digits.runtime.inference_servers import TASK_FOLDER
from digits.runtime.request_batches import ClientRequest
from digits.web.serving import protocols as serving
from tests.site import Site
from tests.web.trained import WHOLE_BATCHES, Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

CLASSES = ("left", "middle", "right")


@pytest.fixture(scope="module")
def served(site: Site, model: str) -> str:
    answer = site.post(f"/models/{model}/promote.json", name="bars")
    assert answer.status_code == 200, answer.get_json()
    return str(answer.get_json()["url"])


def file_of(site: Site, name: str) -> bytes:
    return (site.data / "bars" / name / "00.png").read_bytes()


def pixels_of(site: Site, name: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(file_of(site, name))))


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def infer(
    site: Site, address: str, head: dict[str, Any], binary: bytes = b"", length: int | None = None
) -> tuple[Any, bytes]:
    """Send a binary request as Triton's client does; return the JSON and the bytes that follow it."""
    text_ = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(text_) if length is None else length)}
    answer = site.client.post(
        f"{address}/v2/models/bars/infer",
        data=text_ + binary,
        headers=headers,
        content_type="application/octet-stream",
    )
    length = int(answer.headers.get("Inference-Header-Content-Length", len(answer.data)))
    return json.loads(answer.data[:length]), answer.data[length:]


def best(rows: Any) -> list[str]:
    return [CLASSES[int(np.argmax(row))] for row in rows]


def test_tensorflow_serving_requests(site: Site, model: str, served: str):
    files = [{"b64": text(file_of(site, name))} for name in CLASSES]
    pixels = [pixels_of(site, name).tolist() for name in CLASSES]
    version = site.json(served)["versions"][0]
    tensorflow = f"{served}/v1/models/bars"
    by_version = f"{tensorflow}/versions/{version}:predict"
    for address in (f"/models/{model}/predict", served, f"{tensorflow}:predict", by_version):
        answer = site.client.post(address, json={"instances": files})
        assert answer.status_code == 200, answer.text
        assert best(answer.get_json()["predictions"]) == list(CLASSES)
    as_pixels = site.client.post(served, json={"instances": pixels}).get_json()["predictions"]
    assert np.allclose(as_pixels, answer.get_json()["predictions"], atol=1e-6)
    mixed = site.client.post(served, json={"inputs": {"images": [pixels[2], files[0]]}})
    assert best(mixed.get_json()["outputs"]) == ["right", "left"]
    half = (np.asarray(pixels) + 0.5).tolist()  # not uint8
    assert best(site.client.post(served, json={"instances": half}).get_json()["predictions"]) == list(CLASSES)
    for address in (f"{served}/v1/models/bars", f"{served}/v1/models/bars/versions/{version}"):
        assert site.json(address)["model_version_status"][0]["state"] == "AVAILABLE"
    about = site.json(f"{served}/v1/models/bars/metadata")
    assert about["model_spec"] == {"name": "bars", "signature_name": "", "version": version}
    signature = about["metadata"]["signature_def"]["signature_def"]["serving_default"]
    sizes = [item["size"] for item in signature["inputs"]["images"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "16", "16", "3"]
    assert signature["outputs"]["output"]["tensor_shape"]["dim"][1]["size"] == "3"
    # As `curl -d` sends it.
    as_form = site.client.post(
        served, data=json.dumps({"instances": files}), content_type="application/x-www-form-urlencoded"
    )
    assert best(as_form.get_json()["predictions"]) == list(CLASSES)


def test_the_inference_server_knows_the_operations_of_the_network(site: Site, model: str, served: str):
    site.client.post(served, json={"instances": [{"b64": text(file_of(site, "left"))}]})
    recipe = recipes.load(site.services.store.folder / model / TASK_FOLDER, recipes.ServeInference)
    assert recipe.flops and recipe.flops == site.services.flops(site.services.store.get(model, ModelJob))


def test_base64_of_browsers_and_of_the_url_safe_alphabet_is_read(site: Site, served: str):
    file = file_of(site, "left")
    standard, safe = text(file), base64.urlsafe_b64encode(file).decode()
    assert "-" in safe or "_" in safe
    wrapped = "\r\n".join(standard[start : start + 76] for start in range(0, len(standard), 76))
    quoted = urllib.parse.quote(standard, safe="")
    whole = "".join(f"%{byte:02x}" for byte in file)
    for encoded in (
        safe, safe.rstrip("="), wrapped + "\n", f"data:image/png;base64,{standard}", f"DATA:image/png;name=a;BASE64,{safe}",
        f"data:image/png;base64,{quoted}", f"data:,{whole}",
    ):  # fmt: skip
        for item in ({"b64": encoded}, encoded, {"image": {"b64": encoded}}):
            answer = site.client.post(served, json={"instances": [item]})
            assert answer.status_code == 200 and best(answer.get_json()["predictions"]) == ["left"], encoded[
                :30
            ]
        files = {"name": "images", "shape": [1], "datatype": "BYTES", "data": [encoded]}
        assert site.client.post(served, json={"inputs": [files]}).status_code == 200
    for wrong in (standard[:-9] + "!" + standard[-9:], standard.replace("+", " "), "data:image/png;base64,?"):
        answer = site.client.post(served, json={"instances": [{"b64": wrong}]})
        assert answer.status_code == 400 and "base64" in answer.get_json()["error"]["message"]


def test_pixels_scaled_to_another_range_are_refused_with_the_remedy(site: Site, served: str):
    pixels = np.stack([pixels_of(site, name) for name in CLASSES]).astype(np.float64)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    for scaled, remedy in (
        (pixels / 255, "Multiply them by 255"),
        (pixels / 127.5 - 1, "Undo their normalization"),
        ((pixels / 255 - mean) / std, "Undo their normalization"),
        (pixels - [123.68, 116.78, 103.94], "Undo their normalization"),
        (pixels * 257, "Undo their normalization"),
        (np.rint(pixels / 255), "Multiply them by 255"),
    ):
        flat = scaled.ravel().tolist()
        tensor = {"name": "images", "shape": list(scaled.shape), "datatype": "FP32", "data": flat}
        for body, key in (({"instances": scaled.tolist()}, ""), ({"inputs": [tensor]}, "parameters")):
            answer = site.client.post(served, json=body)
            assert answer.status_code == 400, remedy
            error = answer.get_json()["error"]
            assert "values are from" in error["message"] and "from 0 to 255" in error["message"]
            assert remedy in error["hint"]
            insisting = body | ({key: {"check_range": False}} if key else {"check_range": False})
            assert site.client.post(served, json=insisting).status_code == 200
    for usual in (pixels, pixels + 0.25, np.zeros_like(pixels), np.clip(pixels * 1.1 - 12, -12, 267)):
        assert site.client.post(served, json={"instances": usual.tolist()}).status_code == 200


def test_kserve_requests(site: Site, served: str):
    images = np.stack([pixels_of(site, name) for name in CLASSES])
    tensor = {
        "name": "images",
        "shape": list(images.shape),
        "datatype": "UINT8",
        "data": images.ravel().tolist(),
    }
    versioned = f"{served}/v2/models/bars/versions/{site.json(served)['versions'][0]}"
    for address in (f"{served}/v2/models/bars", versioned):
        answer = site.client.post(f"{address}/infer", json={"id": "7", "inputs": [tensor]})
    body = answer.get_json()
    assert answer.status_code == 200, body
    output = body["outputs"][0]
    assert (body["id"], body["model_name"], output["shape"], output["datatype"]) == (
        "7",
        "bars",
        [3, 3],
        "FP32",
    )
    assert best(np.reshape(output["data"], output["shape"])) == list(CLASSES)
    files = {"name": "images", "shape": [1], "datatype": "BYTES", "data": [text(file_of(site, "right"))]}
    body = site.client.post(served, json={"inputs": [files]}).get_json()
    assert best([body["outputs"][0]["data"]]) == ["right"]
    about = site.json(f"{served}/v2/models/bars")
    assert about["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 16, 16, 3]}]
    assert about["labels"] == list(CLASSES)
    assert site.json(versioned) == about
    assert site.json(f"{served}/v2")["name"] == "digits"
    for address in (f"{served}/v2/health/live", f"{served}/v2/health/ready", f"{versioned}/ready"):
        assert site.get(address).status_code == 200
    assert site.get(f"{served}/v2/models/bars/ready").status_code == 200


@pytest.mark.parametrize("datatype", ["UINT8", "INT32", "FP16", "FP32", "FP64"])
def test_binary_tensors_of_kserve(site: Site, served: str, datatype: str):
    types = {"UINT8": "<u1", "INT32": "<i4", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
    images = np.stack([pixels_of(site, name) for name in CLASSES]).astype(types[datatype])
    tensor = {
        "name": "images",
        "shape": list(images.shape),
        "datatype": datatype,
        "parameters": {"binary_data_size": images.nbytes},
    }
    wanted = {"name": "output", "parameters": {"binary_data": True}}
    for asked in ({"parameters": {"binary_data_output": True}}, {"outputs": [wanted]}):
        head, data = infer(site, served, {"id": "8", "inputs": [tensor], **asked}, images.tobytes())
        (output,) = head["outputs"]
        assert (head["id"], output["shape"], output["datatype"]) == ("8", [3, 3], "FP32")
        assert output["parameters"]["binary_data_size"] == len(data) == 36
        assert best(np.frombuffer(data, "<f4").reshape(3, 3)) == list(CLASSES)
    wanted["parameters"]["binary_data"] = False
    for asked in ({}, {"outputs": [wanted], "parameters": {"binary_data_output": True}}):
        head, data = infer(site, served, {"inputs": [tensor], **asked}, images.tobytes())
        assert not data and best(np.reshape(head["outputs"][0]["data"], (3, 3))) == list(CLASSES)


def test_binary_files_of_kserve(site: Site, served: str):
    files = [file_of(site, name) for name in CLASSES]
    data = b"".join(struct.pack("<I", len(file)) + file for file in files)
    tensor = {
        "name": "images",
        "shape": [3, 1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(data)},
    }
    head, _ = infer(site, served, {"inputs": [tensor]}, data)
    assert best(np.reshape(head["outputs"][0]["data"], (3, 3))) == list(CLASSES)
    assert "binary_tensor_data" in site.json(f"{served}/v2")["extensions"]


@pytest.mark.parametrize(
    ("change", "data", "length", "message"),
    [
        ({}, b"1234", 10_000, "larger than the body"),
        ({}, b"1234", 3, "request body is invalid"),
        ({"datatype": "BYTES"}, b"\4\0\0\0", None, "is incomplete"),
        ({"datatype": "BYTES", "parameters": {"binary_data_size": 2}}, b"\1\0", None, "is incomplete"),
        ({}, b"12", None, "“binary_data_size” is 4, but 2 bytes follow"),
        ({"parameters": {}}, b"1234", None, "“binary_data_size” is None, but 4 bytes follow"),
        ({"parameters": {"binary_data_size": "4"}}, b"1234", None, "but 4 bytes follow"),
        ({"shape": [1, 2]}, b"1234", None, "requires 2"),
        ({"shape": [1, 4], "datatype": "FP64"}, b"1234", None, "has 0 values"),
        ({"shape": [1, 1, 1, 1, 1, 4]}, b"1234", None, "length <= 5"),
        ({"shape": [2**40, 2**40]}, b"1234", None, "2147483648"),
    ],
)
def test_invalid_binary_tensors_are_rejected(
    site: Site, served: str, change: dict[str, Any], data: bytes, length: int | None, message: str
):
    tensor = {"name": "x", "shape": [1, 4], "datatype": "UINT8", "parameters": {"binary_data_size": 4}}
    head, _ = infer(site, served, {"inputs": [tensor | change]}, data, length)
    assert message in head["error"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/serve/bars/v1/models/bars/versions/77", "“bars” has no version 77"),
        ("/serve/bars/v1/models/bars/versions/77/metadata", "Its current version is "),
        ("/serve/bars/v1/models/bars/versions/77:predict", "“bars” has no version 77"),
        ("/serve/bars/v2/models/bars/versions/77/ready", "“bars” has no version 77"),
        ("/serve/bars/v2/models/bars/versions/77/infer", "“bars” has no version 77"),
        ("/serve/other/v2", "no production model named “other”"),
        ("/serve/other/v1/models/x:predict", "no production model named “other”"),
        ("/serve/bars/v3", ""),
        ("/serve/other", "no production model named “other”"),
        ("/models/20200101-000000-abcdef/predict", ""),
    ],
)
def test_errors_are_json_for_all_clients(site: Site, served: str, address: str, message: str):
    send = site.client.post if address.endswith(("predict", "infer")) else site.get
    answer = send(address, headers={"Accept": "*/*"})
    assert answer.status_code == 404
    error = answer.get_json()["error"]
    # As a string under the addresses of the protocols.
    is_protocol = "/v1/" in address or "/v2" in address
    assert message in (error if is_protocol else error["message"])


def test_errors_before_the_prediction_are_json(site: Site, served: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(folder: Path, snapshot: str, request: ClientRequest) -> None:
        request.close()
        raise TooBusy("Too many images are waiting.", "Try again in a second.")

    address = f"{served}/v1/models/bars:predict"
    monkeypatch.setattr(site.services.batches, "predict", refuse)
    answer = site.client.post(address, json={"instances": [{"b64": text(file_of(site, "left"))}]})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert answer.get_json() == {"error": "Too many images are waiting. Try again in a second."}
    too_large = {"CONTENT_LENGTH": "1000000000"}
    answer = site.client.post(address, environ_overrides=too_large)
    assert answer.status_code == 413 and "larger than the limit" in answer.get_json()["error"]


@pytest.mark.parametrize("path", ["", "/v1/models/bars:predict", "/v2/models/bars/infer", "-missing"])
@pytest.mark.parametrize("body", ['{"instances": [{"b64": "IMAGE"}]}', '{"instances": []}', "["])
def test_the_views_answer_like_the_middleware_before_them(site: Site, served: str, path: str, body: str):
    # Flask handles requests with a query.
    sent = body.replace("IMAGE", text(file_of(site, "left")))
    direct, view = (
        site.client.post(f"{served}{path}{query}", data=sent, content_type="application/json")
        for query in ("", "?by=view")
    )
    assert (direct.status_code, direct.get_json()) == (view.status_code, view.get_json())
    assert sorted(direct.headers.keys()) == sorted(view.headers.keys())
    assert direct.content_type == view.content_type
    counted = f'digits_serve_requests_total{{model="bars",status="{direct.status_code}"}}'
    count = [
        float(line.rpartition(" ")[2])
        for line in site.client.get("/serve/metrics").text.splitlines()
        if line.startswith(counted)
    ]
    assert path == "-missing" or count[0] >= 2


def test_a_large_body_is_kept_on_disk(site: Site, served: str):
    pixels = [pixels_of(site, name).tolist() for name in CLASSES] * 150
    body = json.dumps({"instances": pixels})
    assert len(body) > serving.SPOOLED_BYTES
    answer = site.client.post(served, data=body, content_type="application/json")
    assert best(answer.get_json()["predictions"]) == list(CLASSES) * 150
    ragged = body.replace("]]]]}", "]]], 1]}")
    answer = site.client.post(served, data=ragged, content_type="application/json")
    assert answer.status_code == 400


def test_uploaded_files_are_predicted(site: Site, served: str):
    files = [(io.BytesIO(file_of(site, name)), f"{name}.png") for name in CLASSES]
    answer = site.post(served, image=files)
    assert answer.status_code == 200, answer.get_json()
    assert [found[0][0] for found in answer.get_json()["predictions"]] == list(CLASSES)


def test_concurrent_requests_get_their_own_predictions(site: Site, served: str):
    def ask(number: int) -> str:
        client = site.app.test_client()
        name = CLASSES[number % 3]
        answer = client.post(served, json={"instances": [{"b64": text(file_of(site, name))}]})
        return name if best(answer.get_json()["predictions"]) == [name] else f"not {name}"

    asked = [gevent.spawn(ask, number) for number in range(24)]
    gevent.joinall(asked)
    assert [greenlet.value for greenlet in asked] == [CLASSES[number % 3] for number in range(24)]
    parts = {f"field{number}": "" for number in range(1100)}
    many = site.client.post(served, data=parts, content_type="multipart/form-data")
    assert many.status_code == 413
    metrics = site.get("/serve/metrics").text
    assert 'digits_serve_requests_total{model="bars",status="200"}' in metrics
    assert 'digits_serve_requests_total{model="bars",status="413"}' in metrics
    assert 'digits_serve_requests_total{model="bars",status="500"}' not in metrics
    sizes = [
        float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("digits_serve_batch_images_")
    ]
    assert max(sizes) > 24


def test_large_photos_of_many_clients_are_predicted_by_the_same_process(site: Site, served: str):
    photo = file_of(site, "left") + bytes(3_200_000)  # decoders ignore what follows the image
    body = json.dumps({"instances": [{"b64": text(photo)}]})

    def ask(_: int) -> int:
        answer = site.app.test_client().post(served, data=body, content_type="application/json")
        return int(answer.status_code)

    def starts() -> list[str]:
        # The recipe of each process names its socket.
        return [path.read_text() for path in site.services.settings.jobs_dir.glob("*/inference/recipe.json")]

    assert ask(0) == 200
    before = starts()
    asked = [gevent.spawn(ask, number) for number in range(64)]
    gevent.joinall(asked)
    assert [greenlet.value for greenlet in asked] == [200] * 64
    assert starts() == before


def test_a_network_with_a_fixed_batch_size_is_served(site: Site, dataset: str, finished: Finished):
    model = finished.model(site, dataset, WHOLE_BATCHES, train_epochs=4)
    files = [{"b64": text(file_of(site, name))} for name in CLASSES]
    answer = site.client.post(f"/models/{model}/predict", json={"instances": files})
    assert best(answer.get_json()["predictions"]) == list(CLASSES)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[1", "request body is invalid"),
        ("[]", "request body is invalid"),
        ("{}", "no images in “instances” or “inputs”"),
        ('{"instances": []}', "no images in “instances” or “inputs”"),
        ('{"instances": [[1, 2], [3]]}', "the model requires [16, 16, 3]"),
        ('{"instances": [[[1], [1, 2]]]}', "equal lengths"),
        ('{"instances": [{"b64": "bm8gaW1hZ2U="}]}', "Image 0: The image cannot be read"),
        ('{"instances": [{"b64": "?"}]}', "Image 0:"),
        ('{"instances": [{"file": 1, "b": 2}]}', "expected nested lists of pixel values"),
        (
            '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "UINT8", "data": [1]}]}',
            "requires 4",
        ),
        ('{"inputs": [{"name": "x", "shape": [-1], "datatype": "UINT8", "data": [1]}]}', "is invalid"),
        (
            f'{{"inputs": [{{"name": "x", "shape": {[1] * 100_000}, "datatype": "UINT8", "data": [1]}}]}}',
            "length <= 5",
        ),
        ('{"inputs": [{"name": "x", "shape": [1], "datatype": "BOOL", "data": [1]}]}', "not supported"),
    ],
)
def test_invalid_request_bodies_are_rejected(site: Site, served: str, body: str, message: str):
    answer = site.client.post(
        served, data=body, content_type="application/json", headers={"Accept": "application/json"}
    )
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert message in error["message"] + error.get("hint", "")


def test_production_names_can_be_reassigned_and_removed(
    site: Site, model: str, dataset: str, finished: Finished, monkeypatch: pytest.MonkeyPatch
):
    for name in ("", "../x", "a b", "metrics"):
        assert site.post(f"/models/{model}/promote.json", name=name).status_code == 400
    assert site.post(f"/models/{model}/promote", name="moving").status_code == 302
    other = finished.model(site, dataset, name="the other")
    moved = site.services.store.get(model, ModelJob)
    monkeypatch.setattr(moved, "owner", "ada")
    site.client.set_cookie("username", "grace")
    refused = site.post(f"/models/{other}/promote.json", name="moving")
    assert refused.status_code == 403 and "belongs to ada" in refused.get_json()["error"]["message"]
    site.client.delete_cookie("username")
    assert site.post(f"/models/{other}/promote.json", name="moving").status_code == 200
    assert site.json("/serve/moving")["model"] == other
    page = site.get("/serve").text
    assert "the other" in page and "/serve/moving" in page
    refused = site.client.delete(f"/jobs/{other}", headers={"Accept": "application/json"})
    assert refused.status_code == 403
    assert "in production as “moving”" in refused.get_json()["error"]["message"]

    # A deleted snapshot, or model, is not served.
    job = site.services.store.get(other, ModelJob)
    (job.folder / "snapshot_1.ckpt.index").rename(job.folder / "hidden")
    for address in ("v1/models/m", "v2/health/ready", "v2/models/m/ready"):
        gone = site.get(f"/serve/moving/{address}")
        assert gone.status_code == 404 and "snapshot_1.ckpt, was deleted" in gone.get_json()["error"]
    assert site.client.post("/serve/moving", json={"instances": [1]}).status_code == 404
    assert site.get("/serve/moving/v2/health/live").status_code == 200
    assert "snapshot deleted" in site.get("/serve").text
    site.services.scheduler.remove(job)
    answer = site.client.post(
        "/serve/moving", json={"instances": [1]}, headers={"Accept": "application/json"}
    )
    assert answer.status_code == 404
    assert "was deleted" in answer.get_json()["error"]["message"]
    assert "model deleted" in site.get("/serve").text
    assert site.client.delete("/serve/moving").status_code == 200
    assert site.get("/serve/moving").status_code == 404
    assert "moving" not in json.dumps(site.json("/serve.json"))
