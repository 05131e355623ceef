"""The standard networks: source files shipped with DIGITS, which the server reads but never runs.

A file begins with a comment:

    # Title: when to use it.
    #
    # The input it was designed for, and the recommended settings, as text.
    #
    # paper: authors, year, title
    # settings: solver_type=ADAM learning_rate=0.001
    # few images: learning_rate=0.0002
    # kinds: image-classification
    # smallest: 12
    # multiple: 4
    # pretrained: resnet50
    # requires: keras_hub digits[vit]
    # not keras: its layers are functions of slim.

``paper`` cites where the network was published, on as many such lines as it needs, like ``settings``, the fields of the
model form with their values, and ``few images``, those that differ for small datasets. ``kinds`` are the names of the
kinds of datasets that the network can be trained on, and ``smallest`` is the smallest side, in pixels, of images that
it can take; their sides must be a ``multiple`` of the given number, by default 1. ``pretrained`` names the entry of
`digits.data.models.pretrained_catalog` whose weights fit the network. ``requires`` names a package that DIGITS does not
install by default, and the requirement that installs it. ``not`` and the name of an export format precede the reason
why the network cannot be exported in it. `digits.kinds.advice.recommendation` chooses among the networks. The package
of a kind can have further networks in its folder ``networks``, by default for this kind.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import digits
from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.models.export import FORMATS
from digits.kinds import Kind, all_kinds

_FOLDER = Path(digits.__file__).resolve().parent / "networks"

_ORDER = tuple(
    (
        "regression multilabel lenet alexnet googlenet vgg16 resnet32 resnet50 efficientnetlite mobilenetv3 "
        "efficientnetv2 convnext vit autoencoder gan unet segmenter segmenter_resnet50 dncnn fpn detector "
        "siamese textcnn"
    ).split()
)


@dataclass(frozen=True)
class Network:
    """A standard network. ``summary`` says when to use it, and ``settings`` the input and the recommended settings.

    ``values`` contains these settings as text by field of the model form, and ``few_images`` those that differ for
    small datasets. ``smallest`` is the smallest side of images that it can take, in pixels; sides must be a
    ``multiple``. ``pretrained`` is the name of its ImageNet weights, if there are any. ``package`` is the name of the
    optional package that it imports, if any, and ``requirement`` installs it. ``refusals`` are the reasons why it
    cannot be exported in some formats, by format.
    """

    id: str
    title: str
    summary: str
    settings: str
    values: dict[str, str]
    kinds: tuple[str, ...]
    text: str
    few_images: dict[str, str] = field(default_factory=dict)
    smallest: int = 1
    multiple: int = 1
    pretrained: str = ""
    paper: str = ""
    package: str = ""
    requirement: str = ""
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """Its title within a sentence: *ResNet-50*, but *the small object detector* and *the U-Net with ResNet-50*."""
        if " " not in self.title:
            return self.title
        first = self.title[0].lower() if self.title[1].islower() else self.title[0]
        return f"the {first}{self.title[1:]}"

    @property
    def missing(self) -> str:
        """How to install the package that the network requires; "" if it can be used."""
        # Looks for the package without importing it.
        if not self.package or importlib.util.find_spec(self.package):
            return ""
        return f"Not installed: run pip install '{self.requirement}' on the server."


def networks(kinds: Collection[str]) -> dict[str, Network]:
    """Return the standard networks for datasets of any of ``kinds``, by id, in the order of the list."""
    return {item.id: item for item in every_network().values() if not set(item.kinds).isdisjoint(kinds)}


@cache
def every_network() -> dict[str, Network]:
    """Return all standard networks by id."""
    shipped = {name: read(name, (_FOLDER / f"{name}.py").read_text(encoding="utf-8")) for name in _ORDER}
    of_kinds = {item.id: item for kind in all_kinds().values() for item in _networks_of(kind)}
    return shipped | {name: item for name, item in of_kinds.items() if name not in shipped}


def _networks_of(kind: Kind) -> Iterator[Network]:
    """Yield the networks in the package of ``kind``."""
    folder = importlib.resources.files(kind.package) / "networks"
    files = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    for file in files:
        name, _, ending = file.name.rpartition(".")
        if ending == "py" and name != "__init__":
            item = read(name, file.read_text(encoding="utf-8"))
            yield item if item.kinds else replace(item, kinds=(kind.name,))


@cache
def template() -> str:
    """Return the initial network in the form's editor."""
    return (_FOLDER / "template.py").read_text(encoding="utf-8")


def network(name: str) -> Network:
    """Return the standard network with this id; raises NotFound."""
    try:
        return every_network()[name]
    except KeyError:
        raise NotFound(f"There is no standard network called “{name}”.") from None


def of_text(text: str) -> Network | None:
    """Return the standard network with this source code, if it is one."""
    return next((item for item in every_network().values() if item.text == text), None)


def of_model(job: ModelJob) -> Network | None:
    """Return the standard network that a model trains; None for another one, or one that cannot be read."""
    try:
        return of_text(job.network_text())
    except UnreadableFile:
        return None


def read(name: str, text: str) -> Network:
    """Parse a network's ``text`` and the comment at its top."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    prose: list[str] = []
    refusals: dict[str, str] = {}
    tags: dict[str, list[str]] = {
        "settings": [],
        "few images": [],
        "kinds": [],
        "smallest": [],
        "multiple": [],
        "pretrained": [],
        "requires": [],
        "paper": [],
    }
    for line in comment:
        line = line.removeprefix("#").strip()
        key, _, rest = line.partition(": ")
        if key in tags:
            tags[key] += rest.split()
        elif key.removeprefix("not ") in FORMATS:
            refusals[key.removeprefix("not ")] = rest
        else:
            prose.append(line)
    paragraphs = [" ".join(lines) for filled, lines in itertools.groupby(prose, bool) if filled]
    title, _, summary = paragraphs[0].partition(": ") if paragraphs else (name, "", "")
    return Network(
        id=name,
        title=title,
        summary=summary[:1].upper() + summary[1:],
        settings=" ".join(paragraphs[1:]),
        values=dict(_pair(item) for item in tags["settings"]),
        kinds=tuple(tags["kinds"]),
        text=text,
        few_images=dict(_pair(item) for item in tags["few images"]),
        smallest=int(next(iter(tags["smallest"]), 1)),
        multiple=int(next(iter(tags["multiple"]), 1)),
        refusals=refusals,
        pretrained=next(iter(tags["pretrained"]), ""),
        paper=" ".join(tags["paper"]),
        **dict(zip(("package", "requirement"), tags["requires"], strict=False)),
    )


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value
