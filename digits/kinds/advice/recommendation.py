"""One recommendation for a new model, from facts: the network, its settings, the reason and the time.

`recommend` is a pure function of the facts about a dataset and of the resources of the machine. `RULES` is its table:
the first rule of the dataset's kind that applies chooses the network and changes the settings in its comment. The form
of models, requests, the command line and the samples all use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from digits.core.recipe import FEWEST_TO_JUDGE, Transformation
from digits.data.manifest import Manifest
from digits.data.models.pretrained_catalog import CATALOG
from digits.kinds import kind_named
from digits.kinds.advice.mirrored_names import mirrored_pair
from digits.kinds.advice.training_time import REFERENCE_SPEED, training_seconds
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import Network, every_network, networks
from digits.kinds.views import views_of

# Fields of the model form with their values as text.
Settings = dict[str, str]
# Whether ImageNet weights are on this machine, might be downloadable, or are unavailable.
WeightsState = Literal["at hand", "unknown", "missing"]

# The field that turns each transformation on.
TRANSFORMATION_FIELDS: dict[Transformation, str] = {
    "mean": "use_mean",
    "crop_size": "crop_size",
    "flip": "aug_flip",
    "quad_rotation": "aug_quad_rot",
    "rotation": "aug_rot",
    "scale": "aug_scale",
    "noise": "aug_noise",
    "contrast": "aug_contrast",
    "whitening": "aug_whitening",
    "hsv": "aug_hsv_use",
    "pad_crop": "aug_pad_crop",
    "cutout": "aug_cutout",
    "mixup": "aug_mixup",
    "cutmix": "aug_cutmix",
    "randaugment": "aug_randaugment",
}
# Images of at least this size are taken for photos, to which networks trained on ImageNet can be adapted; color images
# of at least the second size, if they are enlarged. More of these are better trained from scratch.
PHOTO_SIDE = 64
SMALLEST_PHOTO_SIDE = 24
MOST_SMALL_PHOTOS = 20_000
# Fewer images get the settings of networks for few images, with at least this number of steps.
MANY_IMAGES = 10_000
# Assumed until the number of training images is known.
TYPICAL_IMAGES = 800
STEPS_FROM_SCRATCH = 2000
MOST_EPOCHS = 200
# All layers are trained for at least this many epochs in regression.
EPOCHS_FOR_NUMBERS = 6
# All layers are trained for about this many steps in classification, but not for fewer epochs, unless images are many.
STEPS_FOR_CLASSES, EPOCHS_FOR_CLASSES = 150, 10
# Random crops shift images by at most one of this many parts of their shorter side.
PADDED_PARTS = 8
# Small datasets are validated after this many steps rather than after each epoch.
STEPS_PER_VALIDATION = 10
DETECTOR_BATCH = 4
DETECTOR_VALIDATIONS = 20
# The reason mentions a network that would take this much less time.
MUCH_LONGER = 2.0
# The number of networks that the form of models shows at first.
GOOD_NETWORKS = 4
# Networks for small images, and for photos, best first.
SMALL = ("lenet", "resnet32")
ON_CPU = ("efficientnetlite", "mobilenetv3", "efficientnetv2", "resnet50", "convnext", "vit")
ON_GPU = ("convnext", "efficientnetv2", "resnet50", "efficientnetlite", "mobilenetv3", "vit")


@dataclass(frozen=True)
class Facts:
    """What is known about a dataset: the name of its ``kind``, the size of its images in pixels and their channels.

    ``images`` contains the number of images of each split as soon as it is known, and ``classes`` the names of the
    classes; None if they are not known yet.
    """

    kind: str
    width: int
    height: int
    channels: int
    images: Mapping[str, int] = field(default_factory=dict)
    classes: Sequence[str] | None = ()

    @property
    def side(self) -> int:
        """The shorter side."""
        return min(self.width, self.height)

    @property
    def training_images(self) -> int | None:
        return self.images.get("train")

    @property
    def has_few_to_validate(self) -> bool:
        """Whether metrics of the validation images are mostly chance."""
        return self.images.get("val", FEWEST_TO_JUDGE) < FEWEST_TO_JUDGE

    @property
    def has_photos(self) -> bool:
        """Whether the images are like those of ImageNet: in color, and large enough."""
        return self.channels == 3 and self.side >= PHOTO_SIDE

    @property
    def has_small_photos(self) -> bool:
        """Whether the images are in color and large enough if they are enlarged, and few."""
        is_small = self.channels == 3 and SMALLEST_PHOTO_SIDE <= self.side < PHOTO_SIDE
        return is_small and (self.training_images or 0) <= MOST_SMALL_PHOTOS


@dataclass(frozen=True)
class Resources:
    """What a training can use: the ``device``, and the ``cores`` of the CPU.

    ``speed`` is that of a core; see `digits.kinds.advice.training_time.core_speed`. ``weights`` contains the state of
    the ImageNet weights in `digits.data.models.pretrained_catalog` by name. ``unusable`` are reasons why networks
    cannot be used on this machine, such as a package that is not installed, by network.
    """

    device: Literal["cpu", "gpu"] = "cpu"
    cores: int = 1
    speed: float = REFERENCE_SPEED
    weights: Mapping[str, WeightsState] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)

    def weights_of(self, network: Network) -> WeightsState:
        return self.weights.get(network.pretrained, "missing")


@dataclass(frozen=True)
class Recommendation:
    """The recommended network with its settings, and the reason, one sentence.

    ``settings`` are fields of the model form as text; the defaults of the form apply to all others. A second sentence
    says why there are no horizontal flips, if the names of classes forbid them. ``refusals`` are
    the reasons why networks for this kind cannot take the images, or cannot be used here, by network.
    ``good`` are the networks that are good today for such images, best first: this one and up to three others.
    ``seconds`` is the expected duration of the training without early stopping; None if unknown, as on a GPU.
    ``download`` is the size of the weights that must be downloaded first, in MB; 0 if there are none.
    """

    network: str
    settings: Settings
    reason: str
    good: tuple[str, ...] = ()
    seconds: float | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    download: int = 0


@dataclass(frozen=True)
class Rule:
    """A row of the table: if it ``applies`` to a dataset of one of the ``kinds``, recommend the first of ``networks``.

    ``name`` describes the case in words. Without ``kinds``, the rule applies to all; without ``networks``, the first
    one for the kind is recommended. ``settings`` change those in the comment of the network; by default, `from_scratch`
    does. With ``pretrained``, the network starts from its ImageNet weights, and networks without weights are skipped:
    weights that might be downloaded come after those at hand. In the ``reason``, ``{images}`` is the number
    and type of the images, ``{size}`` their size, and ``{network}`` the network in words.
    """

    name: str
    kinds: tuple[str, ...]
    networks: tuple[str, ...]
    reason: str
    settings: Callable[[Facts], Settings] | None = None
    pretrained: bool = False
    applies: Callable[[Facts, Resources], bool] = lambda facts, resources: True

    def choose(self, offered: Mapping[str, Network], resources: Resources) -> Network | None:
        """Return the best of the networks ``offered``; None if there is none."""
        listed = [offered[name] for name in self.networks or offered if name in offered]
        if not self.pretrained:
            return next(iter(listed), None)
        having = [item for item in listed if resources.weights_of(item) != "missing"]
        return min(having, key=lambda item: resources.weights_of(item) == "unknown", default=None)


def fine_tuning(
    facts: Facts, batch_size: int = 16, head_steps: int = 100, whole_steps: int = 400, whole_epochs: int = 3
) -> Settings:
    """Return the settings of Fine-tune: about 100 steps for the head and 400 for all layers, however few the images.

    All layers are trained for at least ``whole_epochs``.
    """
    head = epochs_for(facts, batch_size, head_steps, at_least=1)
    # A number takes longer to learn than a class, and may be a position or an angle, which flips would change.
    is_number = facts.kind == "image-regression"
    at_least = max(whole_epochs, EPOCHS_FOR_NUMBERS) if is_number else whole_epochs
    whole = epochs_for(facts, batch_size, whole_steps, at_least=at_least)
    if facts.kind == "image-classification":
        # With a third of the steps, the rate falls to 0 before early stopping ends the training: as accurate with three
        # seeds of 300 photos, in half the time. Measured for ten epochs; see benchmarks/RESULTS.md, Fine-tuning.
        whole = min(
            whole, max(EPOCHS_FOR_CLASSES, epochs_for(facts, batch_size, STEPS_FOR_CLASSES, at_least=1))
        )
    flip = {} if is_number else {"aug_flip": "fliplr"}
    return {
        "fine_tune": "true",
        "head_epochs": str(head),
        "head_rate": "0.003",
        "trunk_factor": "0.5",
        "solver_type": "ADAM",
        "learning_rate": "0.0005",
        "lr_policy": "cosine",
        "lr_warmup": "10",
        "batch_size": str(batch_size),
        "train_epochs": str(head + whole),
        "use_mean": "none",
        **flip,
        **_validations(facts, batch_size),
        **({} if facts.has_few_to_validate else _early_stopping(whole)),
        "snapshots_kept": "1",
    }


def from_scratch(network: Network, facts: Facts) -> Settings:
    """Return the settings of ``network`` from random weights that depend on the number of images.

    Small datasets get more epochs, so that there are about 2,000 steps, and a rate at which they learn in these.
    """
    if (facts.training_images or MANY_IMAGES) >= MANY_IMAGES:
        return {}
    settings = network.values | network.few_images
    batch_size, usual = int(settings["batch_size"]), int(settings["train_epochs"])
    epochs = epochs_for(facts, batch_size, STEPS_FROM_SCRATCH, at_least=min(usual, 30), at_most=MOST_EPOCHS)
    return {**network.few_images, "train_epochs": str(epochs), **_validations(facts, batch_size)}


def fine_tuning_to_masks(facts: Facts) -> Settings:
    """Return the settings of Fine-tune for segmentation."""
    augmentation = {"trunk_factor": "0.1", "aug_scale": "0.15", "aug_contrast": "0.2"}
    return fine_tuning(facts, _batch_of_pixels(facts), 60, 150, whole_epochs=8) | augmentation


def training_on_pixels(facts: Facts) -> Settings:
    """Return the settings for targets of pixels, from scratch: about 400 steps, however few the images."""
    size = _batch_of_pixels(facts)
    return {
        "batch_size": str(size),
        "train_epochs": str(epochs_for(facts, size, 400, at_least=20, at_most=150)),
        "snapshots_kept": "1",
        **_validations(facts, size),
    }


def _batch_of_pixels(facts: Facts) -> int:
    """Return the batch size for targets of pixels: small, because each image has many of them."""
    return 4 if (facts.training_images or TYPICAL_IMAGES) <= 100 else 8


def fine_tuning_to_boxes(facts: Facts) -> Settings:
    """Return the settings of Fine-tune for detection: about 100 steps for the head and 500 for all layers.

    The validation loss is not decisive: it rises while the boxes still become better.
    """
    head = epochs_for(facts, DETECTOR_BATCH, 100, at_least=1)
    whole = epochs_for(facts, DETECTOR_BATCH, 500, at_least=3, at_most=250)
    return {
        **fine_tuning(facts, DETECTOR_BATCH),
        "head_epochs": str(head),
        "head_rate": "0.001",
        "trunk_factor": "0.1",
        "learning_rate": "0.001",
        "train_epochs": str(head + whole),
        "aug_scale": "0.25",
        "aug_contrast": "0.2",
        "early_stopping_metric": "",
        **_validations_of_boxes(head + whole),
    }


def fine_tuning_resnet50_to_boxes(facts: Facts) -> Settings:
    """Return the settings of Fine-tune for detection, with frozen first stages, which saves a third of the time."""
    return {**fine_tuning_to_boxes(facts), "freeze": "conv1_*, conv2_*"}


def fine_tuning_any(facts: Facts) -> Settings:
    """Return the settings of Fine-tune for any network of the dataset's kind."""
    of_kind = {"image-object-detection": fine_tuning_to_boxes, "image-segmentation": fine_tuning_to_masks}
    return adapt(of_kind.get(facts.kind, fine_tuning)(facts), facts)


def training_on_boxes(facts: Facts) -> Settings:
    """Return the settings for detection from scratch: about 800 steps, however few the images."""
    epochs = epochs_for(facts, 8, 800, at_least=5, at_most=300)
    return {"train_epochs": str(epochs), **_validations_of_boxes(epochs)}


def fields_of_rules() -> set[str]:
    """Return the fields of the model form that the rules set."""
    facts = Facts("", 256, 256, 3)
    of_networks = (item.few_images for item in every_network().values())
    of_rules = (rule.settings(facts) for rule in RULES if rule.settings)
    return {"initial_weights"}.union(fine_tuning(facts), *of_networks, *of_rules)


def epochs_for(facts: Facts, batch_size: int, steps: int, at_least: int, at_most: int = 60) -> int:
    """Return the number of epochs with about this many ``steps``, for `TYPICAL_IMAGES` if the number is unknown."""
    return max(at_least, min(at_most, math.ceil(steps / _steps_per_epoch(facts, batch_size))))


def _steps_per_epoch(facts: Facts, batch_size: int) -> int:
    return math.ceil((facts.training_images or TYPICAL_IMAGES) / batch_size)


def _validations(facts: Facts, batch_size: int) -> Settings:
    """Validate and save a snapshot after each epoch, or less often if an epoch has only a few steps."""
    return _after_every(math.ceil(STEPS_PER_VALIDATION / _steps_per_epoch(facts, batch_size)))


def _validations_of_boxes(epochs: int) -> Settings:
    return _after_every(math.ceil(epochs / DETECTOR_VALIDATIONS))


def _after_every(epochs: int) -> Settings:
    return {"val_interval": str(epochs), "snapshot_interval": str(epochs)}


def _early_stopping(epochs: int) -> Settings:
    return {"early_stopping_metric": "loss", "early_stopping_patience": str(max(5, epochs // 2))}


def _is_large(facts: Facts, resources: Resources) -> bool:
    return facts.side >= PHOTO_SIDE


_CLASSES = ("image-classification",)
_LABELS = (*_CLASSES, "image-multilabel")
_NUMBERS = ("image-regression",)
_TUNED = (
    "{images}: fine-tuning {network} is usually far more accurate than training from scratch, and faster."
)

# The first rule that applies and has a network is taken.
RULES = (
    Rule(
        "photos, on a GPU", (*_LABELS, *_NUMBERS), ON_GPU, _TUNED, fine_tuning, True,
        lambda facts, resources: facts.has_photos and resources.device == "gpu",
    ),
    Rule(
        "photos, on the CPU", (*_LABELS, *_NUMBERS), ON_CPU, _TUNED, fine_tuning, True,
        lambda facts, resources: facts.has_photos,
    ),
    Rule(
        "grayscale images of at least 64×64", (*_LABELS, *_NUMBERS), ("efficientnetlite",), _TUNED, fine_tuning, True,
        _is_large,
    ),
    Rule(
        "up to 20,000 color images of at least 24×24", (*_LABELS, *_NUMBERS), ("efficientnetlite",),
        "{images} of {size} pixels, which are enlarged: fine-tuning {network} is usually far more accurate than "
        "training from scratch.",
        fine_tuning, True,
        lambda facts, resources: facts.has_small_photos,
    ),
    Rule(
        "photos of at least 96×96, without weights", _CLASSES, ("mobilenetv3",),
        "{images}, but no ImageNet weights are available: {network} is trained from scratch.",
        applies=lambda facts, resources: facts.has_photos and facts.side >= 96,
    ),
    Rule(
        "grayscale images of 16×16 to 64×64", _CLASSES, ("lenet",),
        "{images} of {size} pixels: a small network such as {network} is accurate and trains in minutes.",
        applies=lambda facts, resources: facts.channels == 1 and max(facts.width, facts.height) <= 64,
    ),
    Rule(
        "other images of less than 96×96", _CLASSES, ("resnet32",),
        "{images} of {size} pixels: {network} is designed for small images.",
        applies=lambda facts, resources: facts.side < 96,
    ),
    Rule("larger images", _CLASSES, ("mobilenetv3",), "{images} of {size} pixels: {network} is fast on large images."),
    Rule("all", ("image-processing",), ("dncnn",), "{network} returns images of the same size.", training_on_pixels),
    Rule(
        "all", ("image-multilabel",), ("multilabel",),
        "{images} of {size} pixels: {network} takes images of any size.",
    ),
    Rule(
        "all", _NUMBERS, ("regression",),
        "{images} of {size} pixels: {network} takes images and numbers of any size.",
    ),
    Rule(
        "at least 64×64", ("image-object-detection",), ("fpn",),
        "{images} with boxes: {network} starts from ImageNet weights, so that a few dozen images can be enough.",
        fine_tuning_resnet50_to_boxes, True, _is_large,
    ),
    Rule(
        "smaller, or without weights", ("image-object-detection",), ("detector",),
        "{images} of {size} pixels: {network} is trained from scratch.",
        training_on_boxes,
    ),
    Rule(
        "at least 64×64", ("image-segmentation",), ("segmenter", "segmenter_resnet50"),
        "{images} with masks: fine-tuning {network} is usually far more accurate than training from scratch.",
        fine_tuning_to_masks, True, _is_large,
    ),
    Rule(
        "smaller, or without weights", ("image-segmentation",), ("unet",),
        "{images} with masks: {network} learns without weights from other images.",
        training_on_pixels,
    ),
    Rule("all", (), (), "{network} is designed for this kind of dataset."),
)  # fmt: skip


def recommend(
    facts: Facts, resources: Resources, network: str = "", fine_tune: bool | None = None
) -> Recommendation | None:
    """Return the recommendation for a dataset; None if there are no networks for its kind.

    With the id of a ``network``, recommend its settings instead of those of the best network. ``fine_tune`` requests
    its ImageNet weights, or random ones; by default, the rules decide.
    """
    of_kind = networks([facts.kind])
    refusals = {name: reason for name, item in of_kind.items() if (reason := refusal(item, facts, resources))}
    usable = {name: item for name, item in of_kind.items() if name not in refusals}
    offered = {network: of_kind[network]} if network in of_kind else usable or of_kind
    for rule in RULES:
        is_for_kind = not rule.kinds or facts.kind in rule.kinds
        if not is_for_kind or not rule.applies(facts, resources) or (rule.pretrained and fine_tune is False):
            continue
        if item := rule.choose(offered, resources):
            break
    else:
        return None
    changes = rule.settings(facts) if rule.settings else from_scratch(item, facts)
    settings = adapt(item.values | changes, facts)
    if fine_tune and not rule.pretrained:
        settings |= fine_tuning_any(facts)
    is_pretrained = rule.pretrained or bool(fine_tune)
    if is_pretrained and item.pretrained:
        settings["initial_weights"] = "imagenet"
    state, seconds = resources.weights_of(item), _expect(item, settings, facts, resources)
    preferred = _preferred(rule, item, offered, resources)
    times = (seconds or 0) / ((preferred and _expect(preferred, settings, facts, resources)) or math.inf)
    return Recommendation(
        network=item.id,
        settings=settings,
        reason=_reason(rule, item, facts, preferred, times),
        good=_good(item, usable, facts, resources),
        seconds=seconds,
        refusals=refusals,
        download=CATALOG[item.pretrained].full.megabytes
        if "initial_weights" in settings and state == "unknown"
        else 0,
    )


def _good(
    best: Network, usable: Mapping[str, Network], facts: Facts, resources: Resources
) -> tuple[str, ...]:
    """Return the networks that the rules name for such images, best first, then other ones for their size."""
    of_kind = [rule for rule in RULES if facts.kind in rule.kinds]
    named = [name for rule in of_kind if rule.applies(facts, resources) for name in rule.networks]
    of_size = SMALL if facts.side < PHOTO_SIDE else ()
    photos = ON_GPU if resources.device == "gpu" else ON_CPU
    listed = [name for name in (*named, *of_size, *photos) if name in usable] if of_kind else [*usable]
    return tuple(dict.fromkeys([best.id, *listed]))[:GOOD_NETWORKS]


def _preferred(
    rule: Rule, item: Network, offered: Mapping[str, Network], resources: Resources
) -> Network | None:
    """Return the network that ``rule`` prefers to ``item``, but whose weights are not on this machine."""
    if not rule.pretrained or resources.weights_of(item) != "at hand":
        return None
    first = next((name for name in rule.networks if name in offered), item.id)
    return offered[first] if first != item.id else None


# Flips without those that exchange left and right.
_UPRIGHT = {"fliplr": "none", "fliplrud": "flipud"}


def adapt(settings: Mapping[str, str], facts: Facts) -> Settings:
    """Return ``settings`` without the transformations that the kind does not offer or the images are too small for.

    Horizontal flips are dropped if they would exchange classes, or might because these are unknown. The crop size is
    dropped unless the images are larger, and the padding for random crops if it exceeds an eighth of their shorter
    side.
    """
    offered = _transformations(facts)
    unavailable = {field for name, field in TRANSFORMATION_FIELDS.items() if name not in offered}
    kept = {name: text for name, text in settings.items() if name not in unavailable}
    if "use_mean" in unavailable:
        kept["use_mean"] = "none"
    if kept.get("aug_flip") in _UPRIGHT and (facts.classes is None or _exchanged(facts)):
        kept["aug_flip"] = _UPRIGHT[kept["aug_flip"]]
    if kept.get("crop_size") and int(kept["crop_size"]) >= facts.side:
        kept["crop_size"] = ""
    if int(kept.get("aug_pad_crop", 0)) * PADDED_PARTS > facts.side:
        kept["aug_pad_crop"] = "0"
    return kept


def _transformations(facts: Facts) -> Sequence[Transformation]:
    return views_of(kind_named(facts.kind)).transformations


def _exchanged(facts: Facts) -> tuple[str, str] | None:
    """Return two classes that horizontal flips would exchange, if the kind offers these."""
    return mirrored_pair(facts.classes or ()) if "flip" in _transformations(facts) else None


def refusal(network: Network, facts: Facts, resources: Resources) -> str:
    """Return the reason why ``network`` cannot be used; empty if it can."""
    if facts.side < network.smallest:
        return (
            f"Requires images of at least {network.smallest}×{network.smallest} pixels; these have "
            f"{facts.width}×{facts.height}."
        )
    if facts.width % network.multiple or facts.height % network.multiple:
        return (
            f"Requires images whose sides are multiples of {network.multiple} pixels; these have "
            f"{facts.width}×{facts.height}."
        )
    return resources.unusable.get(network.id, "")


def _expect(network: Network, settings: Settings, facts: Facts, resources: Resources) -> float | None:
    if resources.device != "cpu":
        return None
    size = facts.width, facts.height
    cores, speed = resources.cores, resources.speed
    return training_seconds(network.id, settings, facts.images, size, cores=cores, speed=speed)


def _reason(rule: Rule, network: Network, facts: Facts, preferred: Network | None, times: float) -> str:
    """Return the reason for ``network``, which takes this many ``times`` as long as the ``preferred`` one."""
    color = "grayscale" if facts.channels == 1 else "color"
    count = facts.training_images
    images = f"{color.capitalize()} images" if count is None else f"{count:,} {color} images"
    size = f"{facts.width}×{facts.height}"
    reason = rule.reason.format(images=images, size=size, network=network.in_words)
    reason = f"{reason[0].upper()}{reason[1:]}"
    if preferred:
        reason += (
            f" Its weights are on this server; those of {preferred.in_words}, the first choice, are not."
        )
        if times >= MUCH_LONGER:
            reason += f" Training takes about {times:.0f} times as long as with these."
    pair = _exchanged(facts)
    if pair is None:
        return reason
    return f"{reason} No horizontal flips: a mirrored “{pair[0]}” would look like “{pair[1]}”."


def facts_of(dataset: DatasetJob) -> Facts:
    """Return the facts about ``dataset``, which may be unfinished."""
    manifest = dataset.manifest()
    if manifest is not None:
        return facts_in(manifest)
    recipe, counted = dataset.recipe, dataset.tasks[0].state.counts
    # Counted as soon as the task has read the source. Records with several classes are counted more than once.
    is_known = not views_of(dataset.data_kind).counts_overlap
    images = {str(split): sum(counts["counts"]) for split, counts in counted.items()} if is_known else {}
    classes = tuple(dict.fromkeys(label for counts in counted.values() for label in counts["labels"]))
    return Facts(
        dataset.data_kind.name, recipe.width, recipe.height, recipe.channels, images, classes or None
    )


def facts_in(manifest: Manifest) -> Facts:
    """Return the facts in the ``manifest`` of a finished dataset."""
    images = {name: split.count for name, split in manifest.splits.items()}
    sides = manifest.width, manifest.height, manifest.channels
    return Facts(manifest.kind, *sides, images, tuple(manifest.target.names))
