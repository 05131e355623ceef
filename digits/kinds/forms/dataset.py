"""The form fields that datasets of images of all kinds share."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, cast

from wtforms import IntegerField, PasswordField, SelectField, StringField
from wtforms.validators import InputRequired, Length, NumberRange, Optional, ValidationError

from digits.core.errors import BadRequest, DigitsError
from digits.core.recipe import CreateDataset
from digits.core.remote import (
    WEB_SCHEMES,
    Address,
    AddressType,
    Credentials,
    RemotePolicy,
    is_address,
    names_folder,
)
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.data_roots import FileType, Missing
from digits.data.sources.plan import UnusableSource
from digits.data.sources.shares import CreateWithShares, Shares
from digits.data.targets.target import Target
from digits.kinds.forms.compute import ComputeFields
from digits.kinds.forms.fields import (
    AllowedPath,
    Between,
    Binding,
    FlagField,
    NeededWith,
    OptionalInteger,
    SwitchField,
    WholeNumber,
    as_field_error,
    choices,
    errors_of,
    name_field,
    number,
    select,
    whole,
)
from digits.kinds.forms.source import Beside, FormSource
from digits.kinds.forms.summary import Suggestion, joined, shown_place
from digits.kinds.jobs import DatasetJob
from digits.kinds.recipes import AnyRecipe

ENCODINGS = choices(("png", "PNG (lossless)"), ("jpg", "JPEG (quality 90)"), ("none", "None (raw pixels)"))
CHANNELS = choices(("3", "Color"), ("1", "Grayscale"))
RESIZE_MODES = choices(
    ("squash", "Stretch"), ("crop", "Crop"), ("fill", "Fill"), ("half_crop", "Half crop, half fill")
)
RESIZE_TITLES = {choice.value: choice.label for choice in RESIZE_MODES}
CONVERSIONS = choices(("none", "None"), ("RGB", "Color"), ("L", "Grayscale"))
BACKENDS = choices(("tfrecords", "TFRecord"), ("lmdb", "LMDB"), ("hdf5", "HDF5"))

_CHANNELS = {"L": 1, "RGB": 3}
_STORAGE = "records are stored in uncompressed TFRecord files"


def required_integer(label: str, recipe: type[CreateDataset], *names: str) -> WholeNumber:
    """Return a field of the settings ``names`` of a ``recipe``, with the default and the limits of the first one."""
    bindings = tuple(Binding(recipe, name) for name in names)
    limits = bindings[0].limits
    return WholeNumber(
        label,
        default=int(limits.default),
        validators=[InputRequired("This field is required."), Between(limits)],
        binding=bindings,
    )


def _key(label: str, other: str) -> PasswordField:
    both = NeededWith(other, "Enter both the access key and the secret key, or neither.")
    return PasswordField(label, default="", validators=[Optional(), Length(max=1024), both])


class ImageDatasetForm(ComputeFields, Generic[AnyRecipe]):
    """Base class of the forms that create an image dataset.

    The form makes a ``RECIPE``, whose settings are bound to fields, except for those that are ``FIXED``. ``SOURCES``
    are the sources that the form offers, by default the first one; with several, it has a field ``method``. Fields of
    the other sources are neither validated nor read. Without ``SOURCES``, there is no summary of the source. Without
    ``has_images``, the page has no fields for the size of the images, because the source does not contain any.

    Pass a `RemotePolicy` as ``remote`` in ``meta`` to accept remote addresses instead of paths. ``addresses`` has those
    in valid fields. The source is for a new dataset, or ``adds_to`` the records of one with this target.
    """

    class Meta(ComputeFields.Meta):
        remote = RemotePolicy()
        adds_to: Target | None = None

    # The fields of remote addresses of all kinds.
    REMOTE = ("s3_endpoint_url", "s3_accesskey", "s3_secretkey")
    RECIPE: ClassVar[type[Any]]
    FIXED: ClassVar[Mapping[str, Any]] = {}
    SOURCES: ClassVar[tuple[FormSource, ...]] = ()
    SHARES: ClassVar[tuple[str, ...]] = ()
    _fields: dict[str, Any]
    # Why fields of DIGITS have no effect if their values differ from the default.
    IGNORED: Mapping[str, str] = {
        **dict.fromkeys(("backend", "dsopts_backend", "compression"), _STORAGE),
        "dsopts_label_encoding": "targets that are images are stored as PNG files, and others as numbers",
        "dsopts_force_same_shape": "all images are resized to the same size",
        **dict.fromkeys(("dsopts_batch_size", "dsopts_num_threads"), "all cores encode the records"),
    }
    has_images = True
    # What the page of the form shows beside the fields.
    submission: Any = None

    dataset_name = name_field("Dataset name", "Enter a name for the dataset.")
    resize_channels = select("Color mode", CHANNELS, CreateDataset, "channels")
    resize_width = required_integer("Width", CreateDataset, "width")
    resize_height = required_integer("Height", CreateDataset, "height")
    resize_mode = select("Resize mode", RESIZE_MODES, CreateDataset, "resize_mode")
    encoding = select("Image encoding", ENCODINGS, CreateDataset, "encoding")
    max_unusable_percent = number("Limit of unusable images (%)", CreateDataset, "max_unusable_percent")
    # A request without it, such as that of a script written for DIGITS, uses the entered sources only.
    beside = FlagField("Use the validation and test sources beside the training source", default=True)
    seed = whole("Random seed", CreateDataset, "seed")
    # For scripts: the page fills in the recommended values itself.
    recommended = FlagField("Recommend the omitted image size, color mode and test split", default=False)
    # Accepted for scripts written for DIGITS; by default, resize_channels decides.
    channel_conversion = SelectField("Channel conversion", choices=CONVERSIONS, default="none")
    # Accepted for scripts written for DIGITS; records are always stored in TFRecord files.
    backend = SelectField("Storage", choices=BACKENDS, default="tfrecords")
    compression = SelectField(
        "Compression", choices=choices(("none", "None"), ("gzip", "gzip")), default="none"
    )
    # The names in the forms of generic datasets of DIGITS. Empty: as in the field `encoding`.
    dsopts_feature_encoding = SelectField(
        "Feature encoding", choices=[*choices(("", "Image encoding")), *ENCODINGS], default=""
    )
    dsopts_label_encoding = SelectField("Label encoding", choices=ENCODINGS, default="none")
    dsopts_backend = SelectField("Storage", choices=BACKENDS, default="tfrecords")
    dsopts_force_same_shape = SwitchField(
        "Images of a different size", yes="Refuse", no="Resize", default=True
    )
    dsopts_batch_size = OptionalInteger("Encoder batch size", validators=[Optional(), NumberRange(1)])
    dsopts_num_threads = OptionalInteger("Encoder threads", validators=[Optional(), NumberRange(1)])

    s3_endpoint_url = StringField("S3 endpoint", default="", validators=[Optional(), Length(max=1024)])
    s3_accesskey = _key("S3 access key", "s3_secretkey")
    s3_secretkey = _key("S3 secret key", "s3_accesskey")
    s3_keepcopiesondisk = FlagField("Keep the downloaded files", default=False)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.addresses: dict[str, AddressType] = {}
        self.notes: list[str] = []
        # What validation has filled in, only for the summary, and the question about it, if there is one.
        self.found: list[str] = []
        self.suggestion: Suggestion | None = None
        super().__init__(*arguments, **keywords)

    @property
    def source(self) -> FormSource:
        """The chosen source."""
        method = self["method"].data if "method" in self else ""
        return next((source for source in self.SOURCES if source.method == method), self.SOURCES[0])

    def scanned_paths(self) -> list[str]:
        """Return the fields with the training source of each of the `SOURCES`, of which the page shows one."""
        return [name for source in self.SOURCES for name in source.scanned_paths]

    def scanned_fields(self) -> list[str]:
        """Return the fields of the sources and of this kind, after whose change the page reads the source again."""
        return sorted(
            {"beside", *self._source_names(), *self.own_names(), *(["method"] if "method" in self else [])}
        )

    def own_names(self) -> list[str]:
        """Return the fields of settings that are those neither of images nor of a source."""
        others = {*self._source_names(), *self.SHARES}
        names = [name for name in self.names_of(self.RECIPE) if name not in others]
        return [name for name in names if self[name].binding.kind is not CreateDataset]

    def _source_names(self) -> set[str]:
        """Return the fields of all sources."""
        return {name for source in self.SOURCES for name in source.fields(self)}

    def _unused(self) -> set[str]:
        """Return the fields of the sources that are not chosen."""
        return self._source_names() - set(self.source.fields(self)) if self.SOURCES else set()

    def validate(self, *arguments: Any, **keywords: Any) -> bool:
        is_valid = self.validate_fields(*arguments, **keywords)
        return self._check_source(opens=True) and is_valid

    def validate_fields(self, *arguments: Any, **keywords: Any) -> bool:
        """Validate the fields that are used, without opening the source."""
        fields = self._fields
        unused = self._unused()
        self._fields = {name: field for name, field in fields.items() if name not in unused}
        try:
            is_valid: bool = super().validate(*arguments, **keywords)
        finally:
            self._fields = fields
        return is_valid

    def _check_source(self, *, opens: bool) -> bool:
        """Complete the source if its fields are valid and not remote; return whether it can be used.

        It also ``opens`` the source to check it. An error is shown at the field of the source.
        """
        if not self.SOURCES:
            return True
        source = self.source
        if any(self[name].errors for name in self._used_names()) or self.addresses:
            return True
        try:
            source.complete(self)
            self._use_beside()
            if opens:
                source.check(self, self.draft())
        except UnusableSource as error:
            self.add_error(source.path, error.sentences)
        return not any(field.errors for field in self)

    def _use_beside(self) -> None:
        """Use the sources of other splits beside the training source, or suggest to."""
        beside: dict[str, Beside] = {}
        with contextlib.suppress(UnusableSource, OSError):  # the check of the source says why
            beside = self.source.find_beside(self)
        for split in self.source.own_splits(self) & beside.keys():
            del beside[split]
        if not beside:
            return
        train = Path(self.text_of(self.source.scanned_paths[0]))
        root = os.path.commonpath([train, *(found.path for found in beside.values())])
        names = [
            f"{shown_place(found.path, root)} for {SPLIT_TITLES[split].lower()}"
            for split, found in beside.items()
        ]
        words = f"{joined(names)}, beside {shown_place(train, root)}."
        if not self.beside.data:
            action = "Use it" if len(beside) == 1 else "Use them"
            self.suggestion = Suggestion(f"Found {words}", action, {"beside": True})
            return
        for found in beside.values():
            self.set(**found.fields)
        self.notes.append(f"Also used: {words}")
        self.suggestion = Suggestion(self.notes[-1], "Leave out", {"beside": False})

    def _used_names(self) -> list[str]:
        """Return the fields of the chosen source and of this kind."""
        return [*self.source.fields(self), *self.own_names()]

    def add_error(self, name: str, message: str) -> None:
        """Show an error at the field ``name``."""
        self[name].errors = [*self[name].errors, message]

    def resolve(self, path: str, file_type: FileType) -> str:
        """Return the real path of a file or folder, or a remote address; raises DigitsError."""
        if not is_address(path):
            return super().resolve(path, file_type)
        address = self.check_address(path)
        is_folder = file_type == "folder" or (file_type == "any" and names_folder(path.strip()))
        if not is_folder and not address.segments:
            raise BadRequest(f"{address} is not the address of a file. Enter the address of a file.")
        # A slash distinguishes folders where files are valid too.
        text = f"{address}/" if is_folder and file_type == "any" else str(address)
        self.addresses[text] = "folder" if is_folder else "file"
        return text

    def check_address(self, text: str) -> Address:
        """Return the parts of a remote address; raises DigitsError if it is not allowed."""
        return cast(Address, self.meta.remote.check(text))

    def source_addresses(self) -> list[str]:
        """Return the remote addresses in the fields of the source."""
        return self.source.addresses(self) if self.SOURCES else []

    def credentials(self) -> Credentials:
        """Return the credentials in the form, which may be empty."""
        return Credentials(
            access_key=(self.s3_accesskey.data or "").strip(),
            secret_key=(self.s3_secretkey.data or "").strip(),
        )

    def validate_dsopts_feature_encoding(self, field: SelectField) -> None:
        if not field.data:
            return
        usable = [choice.value for choice in self.encoding.choices]
        if field.data not in usable:
            raise ValidationError(f"Records of this kind are stored as {' or '.join(usable)}.")
        self.encoding.data = field.data

    def validate_s3_endpoint_url(self, field: StringField) -> None:
        field.data = field.data.strip()
        with as_field_error():
            if self.check_address(field.data).scheme not in WEB_SCHEMES:
                raise BadRequest("Enter an address that starts with https:// or http://.")

    @property
    def opens_files(self) -> bool:
        """Whether `validate` or `recipe` opens files of the source. They then run in a process of their own."""
        return True

    def source_field(self) -> str:
        """Return the name of the field of the source, for an error of the source as a whole."""
        return self.source.path if self.SOURCES else "dataset_name"

    def used_uploads(self) -> Collection[str]:
        """Return the fields whose uploaded files are used."""
        return ()

    def save_uploads(self, folder: Path) -> None:
        """Save the uploaded files of the validated form in the ``folder`` of the new job, for `recipe`."""

    def recipe(self) -> AnyRecipe:
        """The recipe of the validated form."""
        return self.draft(**self.image_settings(), notes=self.notes)

    def draft(self, **image_settings: Any) -> AnyRecipe:
        """Return the recipe to check and to summarize the source, whose settings of images may be invalid."""
        source, used = {}, {field.name for field in self}
        if self.SOURCES:
            source = self.source.read(self)
            used -= self._source_names() if self.source.attribute else self._unused()
        settings = self.settings_of(self.RECIPE, used)
        return cast(AnyRecipe, self.RECIPE(**{**settings, **image_settings, **self.FIXED, **source}))

    def fill_source(self, recipe: AnyRecipe) -> None:
        """Fill in the fields of this kind from a ``recipe``."""
        self.fill_struct(recipe)
        for source in self.SOURCES:
            if source.is_in(recipe):
                if "method" in self:
                    self.set(method=source.method)
                source.fill(self, recipe)
                return

    def complete_source(self) -> dict[str, list[str]]:
        """Fill in what the source declares, for `digits.kinds.forms.previews`; return the errors of all fields.

        Invalid sources of other splits are left out. Raises DigitsError for an invalid path or choice.
        """
        for field in self:
            if isinstance(field, SelectField):
                try:
                    field.pre_validate(self)
                except ValidationError as error:
                    raise BadRequest(f"{field.label.text}: {error}") from error
        required = self.source.required_paths(self)
        own = {name for split in SPLITS[1:] for name in self.source.own_fields(split)}
        for name in self._used_names():
            # The path of another split may be incomplete while it is typed.
            with contextlib.suppress(*([DigitsError] if name in own else [])):
                if self[name].data or name in required:
                    self.resolve_paths(name)
        self.set(dataset_name=self.dataset_name.data or "preview", seed=self.seed.data or 0)
        self.validate_fields()
        self._check_source(opens=False)
        errors = errors_of(self)
        for name in own & errors.keys():
            self[name].data = self[name].default
        return errors

    def check_source(self) -> dict[str, list[str]]:
        """Check the source, and return the errors of all fields."""
        self._check_source(opens=True)
        return errors_of(self)

    def are_of_source(self, errors: Mapping[str, list[str]]) -> bool:
        """Return whether some ``errors`` of fields are those of the training source, which cannot be read then."""
        own = {name for split in SPLITS[1:] for name in self.source.own_fields(split)}
        return any(name in errors and name not in own for name in self._used_names())

    def resolve_paths(self, name: str) -> None:
        """Replace the paths in the field ``name`` by the real ones; raises DigitsError if they are not allowed."""
        field = self[name]
        for validator in field.validators:
            if isinstance(validator, AllowedPath):
                if any(map(is_address, (field.data or "").splitlines())):
                    raise BadRequest("Remote files are read when the dataset is created.")
                try:
                    field.data = validator.resolve(self, field.data or "")
                except Missing as error:
                    if error.meant and len(field.data.split("\n")) == 1:
                        error.remedy = {name: error.meant}
                    raise

    def image_settings(self) -> dict[str, Any]:
        """Return the settings of images that no field alone decides, with a random seed if none is given."""
        return {
            "channels": _CHANNELS.get(self.channel_conversion.data) or int(self.resize_channels.data),
            "seed": secrets.randbelow(2**31) if self.seed.data is None else self.seed.data,
        }

    def fills_from(self, recipe: CreateDataset) -> bool:
        """Return whether `fill` understands the ``recipe`` of a dataset of another kind."""
        return False

    def keep_size(self) -> None:
        """Use the size of the images in the source, if it is known, and remark on it in `warnings`.

        Call this for a valid form if the request specifies no size, which in DIGITS 6 meant to keep it.
        """

    def warnings(self) -> list[str]:
        """Return how the source was understood, and remarks about valid fields that have no effect."""
        ignored = (
            f"{name}={self[name].data} is ignored: {reason}."
            for name, reason in self.IGNORED.items()
            if self[name].data != self[name].default
        )
        return [*self.notes, *ignored]

    def fill(self, job: DatasetJob) -> None:
        """Fill in the configuration, the current name and the group of another dataset."""
        self.fill_names(job)
        self.fill_compute(job.compute)
        self.fill_recipe(cast(AnyRecipe, job.recipe))

    def fill_recipe(self, recipe: AnyRecipe) -> None:
        """Fill in the fields that `recipe` reads; its inverse."""
        self.set(beside=False, channel_conversion="none", dsopts_feature_encoding="")
        if recipe.remote is not None:
            self.set(s3_endpoint_url=recipe.remote.endpoint, s3_keepcopiesondisk=recipe.remote.keep_copies)
        self.fill_source(recipe)
        self.set(seed=recipe.seed)  # even if it is the default, which an empty field replaces by a random one


class SharesForm(ImageDatasetForm[AnyRecipe], Generic[AnyRecipe]):
    """Base class of forms of datasets whose training records are divided.

    ``SHARES`` are the fields of the shares of validation and testing. A split with a source of its own takes no share.
    """

    SHARES = ("pct_val", "pct_test")

    pct_val: Any = required_integer("Validation split (%)", CreateWithShares, "pct_val")
    pct_test: Any = required_integer("Test split (%)", CreateWithShares, "pct_test")

    def own_sources(self, split: str) -> list[str]:
        """Return the names of the fields of the sources of a split."""
        return list(dict.fromkeys(name for source in self.SOURCES for name in source.own_fields(split)))

    def own_splits(self) -> set[str]:
        """Return the splits that have a source of their own."""
        return self.source.own_splits(self) if self.SOURCES else set()

    def shares(self) -> dict[str, int]:
        """Return the arguments of `CreateWithShares`."""
        own = self.own_splits()
        fields = zip(SPLITS[1:], self.SHARES, strict=True)
        return {f"pct_{split}": 0 if split in own else self[name].data or 0 for split, name in fields}

    # The error is that of the last field that the page shows.
    def validate_pct_val(self, field: IntegerField) -> None:
        if "test" in self.own_splits():
            check_shares(**self.shares())

    def validate_pct_test(self, field: IntegerField) -> None:
        if "test" not in self.own_splits():
            check_shares(**self.shares())

    def image_settings(self) -> dict[str, Any]:
        return {**super().image_settings(), **self.shares()}

    def fill_recipe(self, recipe: AnyRecipe) -> None:
        super().fill_recipe(recipe)
        own = self.own_splits()
        for split, name in zip(SPLITS[1:], self.SHARES, strict=True):
            self[name].data = self[name].default if split in own else round(getattr(recipe, f"pct_{split}"))


def check_shares(pct_val: int | None, pct_test: int | None) -> None:
    """Raise ValidationError if the validation and test splits leave nothing to train on."""
    try:
        Shares(pct_val or 0, pct_test or 0)
    except UnusableSource as error:
        raise ValidationError(error.message) from None
