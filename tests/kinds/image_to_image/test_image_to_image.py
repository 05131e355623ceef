"""Image-to-image networks over HTTP, from the dataset form to an output image."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.kinds.dataset_forms import Forms
from tests.site import Site

SIZE = {"resize_width": 24, "resize_height": 24, "resize_channels": 1}


def write_squares(folder: Path) -> Path:
    """Write images of 24×24 pixels with a bright square and strong noise, and targets without noise."""
    chance = np.random.default_rng(0)
    for name in ("images", "targets"):
        (folder / name).mkdir(parents=True)
    for number in range(40):
        clean = np.full((24, 24), 80, np.uint8)
        top, left = chance.integers(0, 12, 2)
        clean[top : top + 12, left : left + 12] = 170
        noisy = (clean + chance.normal(0, 25, clean.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(clean).save(folder / "targets" / f"{number}.png")
        Image.fromarray(noisy).save(folder / "images" / f"{number}.png")
    return folder


KIND = "images/processing"


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-processing", tmp_path / "own")


@pytest.mark.tensorflow
def test_a_network_learns_to_remove_noise(site: Site) -> None:
    root = write_squares(site.data / "squares")
    Image.new("L", (24, 12)).save(root / "targets" / "7.png")
    dataset = site.create(KIND, feature_folder=root, folder_pct_val=20, **SIZE)
    page = site.get(f"/datasets/{dataset}").text
    assert "7.png: its aspect ratio (24×12) differs from that of the image (24×24)" in page
    assert "/records/train/0/target" in page
    assert "/target" in site.get(f"/datasets/{KIND}/explore?job_id={dataset}").text

    settings = {"train_epochs": 25, "batch_size": 4, "learning_rate": 0.003}
    model = site.train(KIND, dataset, method="standard", standard_networks="dncnn", **settings)
    predicted, part = site.follow(model)
    assert predicted[0]["image"] in part
    values = site.json(f"/models/{model}/metrics.json")["val"]["values"]
    # Initially, it returns the noisy image itself: 20 · log10(255 / 25) dB.
    assert values["psnr"][0] == pytest.approx(20.2, abs=0.5)
    assert max(values["psnr"]) > values["psnr"][0] + 3 and max(values["ssim"]) > values["ssim"][0]
    assert "Validation PSNR (dB)" in site.get(f"/models/{model}").text

    result, page = site.evaluate(model)
    assert "Worst images" in page
    assert result["metrics"]["ssim"] > values["ssim"][0]
    assert 'src="data:image/png' in page and "PSNR (dB)" in page and "SSIM" in page
    assert re.search(r"PSNR [\d.]+ dB", page)
    _, page = site.compare_with_worse(model, dataset)
    assert "is better by the most" in page and re.search(r">PSNR [\d.]+ dB <bdi", page)

    photo = site.data / "photo.png"
    Image.open(root / "images" / "3.png").resize((96, 48)).save(photo)
    answer, part = site.predict(KIND, model, image_path=str(photo))
    found = answer["predictions"]
    output = Image.open(io.BytesIO(base64.b64decode(found["image"].partition(",")[2])))
    assert output.size == (found["width"], found["height"]) == (24, 12)
    assert found["image"] in part and 'alt="Input"' in part
    # A network of convolutions accepts images of any size.
    url = "/models/images/generic/infer_one.json"
    for options, shape in (({}, (1, 24, 24, 1)), ({"dont_resize": "1"}, (1, 48, 96, 1))):
        outputs = site.post(url, job_id=model, image_path=str(photo), **options).get_json()["outputs"]
        assert np.shape(outputs["output"]) == shape


DIGITS_AUTOENCODER = """
class UserModel(Tower):
    @model_property
    def inference(self):
        size = int(np.prod(self.input_shape))
        x = tf.reshape(self.x, shape=[-1, size])
        code = tf.nn.sigmoid(slim.fully_connected(x / 255.0, 16, activation_fn=None))
        return slim.fully_connected(code, size, activation_fn=None) * 255.0

    @model_property
    def loss(self):
        model = self.inference
        y = tf.reshape(self.y, shape=[-1] + list(self.input_shape))
        return digits.mse_loss(tf.reshape(model, tf.shape(y)), y)
"""


@pytest.mark.tensorflow
def test_images_without_targets_are_their_own_targets(site: Site) -> None:
    root = write_squares(site.data / "squares")
    dataset = site.create(KIND, feature_folder=root / "targets", folder_pct_val=20, **SIZE)
    source = site.json(f"/datasets/{dataset}.json")
    assert source["CreateDbTasks"][0]["entries"] == 32
    image, target = (
        np.asarray(Image.open(io.BytesIO(site.get(f"/datasets/{dataset}/records/train/0{part}").data)))
        for part in ("", "/target")
    )
    assert np.array_equal(image, target)
    network = {"method": "custom", "custom_network": DIGITS_AUTOENCODER}
    model = site.train(KIND, dataset, batch_size=8, learning_rate=0.003, use_mean="pixel", **network)
    assert "psnr" in site.json(f"/models/{model}/metrics.json")["val"]["values"]


def test_the_source_is_summarized(forms: Forms) -> None:
    root = write_squares(forms.data / "squares")
    found = forms.summary(feature_folder=root)
    assert "40 images with target images." in found.facts
    assert "Used: images/ and targets/." in found.facts
    assert "each image is its own target" in str(forms.summary(feature_folder=root / "images").facts)


def test_the_same_folder_means_images_that_are_their_own_targets(forms: Forms) -> None:
    """Scripts written for DIGITS send it for auto-encoders. Folders in it are images too, not targets."""
    root = write_squares(forms.data / "squares")
    fields = {"feature_folder": root, "label_folder": root}
    found = forms.summary(**fields)
    assert "each image is its own target" in str(found.facts) and not found.problems
    made = forms.create(**fields, folder_pct_val=20, **SIZE)
    assert made.counts == {"train": 64, "val": 16}
    for record in made.records():
        assert np.array_equal(record.target(made.manifest.target), record.as_pixels())
