"""Versions of a dataset: new datasets from its records, with changes."""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple, cast

import numpy as np
from flask import Blueprint, Response, redirect, request, url_for
from msgspec.structs import replace
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse
from wtforms import Form, IntegerField, SelectField, StringField
from wtforms.validators import NumberRange, Optional, ValidationError

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.core.schema import JsonObject, Limits
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.core.status import Status
from digits.data import manifest as manifests
from digits.data.health import health, label_check
from digits.data.loose_json import InvalidJson, load
from digits.data.manifest import Manifest
from digits.data.sources.plan import UnusableSource
from digits.kinds import kind_named
from digits.kinds.forms.dataset import ENCODINGS, RESIZE_MODES, check_shares, required_integer
from digits.kinds.forms.fields import (
    NAME_LENGTH,
    AllowedPath,
    Between,
    DecimalField,
    FlagField,
    JobForm,
    OptionalInteger,
    as_field_error,
    choices,
    errors_of,
    name_field,
    select,
)
from digits.kinds.forms.request_fields import parse_integer
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.additions import Additions, Beginning, NewImages, divide, find
from digits.kinds.versions.pending_edits import as_edits, remove_created
from digits.kinds.versions.versions import (
    EDITS_FILE,
    CreateVersion,
    Edits,
    RecordId,
    check_edits,
    load_edits,
    save_edits,
)
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.datasets.forms import (
    ADDS_TO,
    Fields,
    InvalidForm,
    draft_of,
    fields_of,
    form_page,
    source_fields,
    source_form,
)
from digits.web.datasets.submit import submit_dataset
from digits.web.jobs import serializers
from digits.web.records.pending import pending
from digits.web.resources.jobs import BriefJob
from digits.web.responses.representation import render_in_turns, respond, respond_invalid, twin
from digits.web.services import services

blueprint = Blueprint("versions", __name__)


# Before a colon, where the changes of `EditsField` are.
PENDING, VERSION, CLEANING = "pending", "version", "cleaning"


class Outlook(NamedTuple):
    """What a version will be: the ``edits`` and what is ``added`` in words, and the numbers of images."""

    edits: str
    added: str
    before: str
    after: str
    is_changed: bool


class EditsField(StringField):  # type: ignore[misc]
    """The changes of records: as JSON, or those with which a `VERSION` was created, by its id, the `PENDING` ones, or
    the `CLEANING` of findings of the health check.

    ``edits`` are the decoded ones, and ``words`` describes them.
    """

    edits: Edits = Edits()
    words = ""

    def pre_validate(self, form: Any) -> None:
        try:
            self.edits = self.read(form.meta.parent, form.meta.manifest)
            in_thread(check_edits, self.edits, form.meta.manifest)
            self.words = in_thread(self.edits.describe)
        except InvalidJson as error:
            raise ValidationError(f"The changes are not valid: {error}.") from error
        except UnusableSource as error:
            raise ValidationError(error.sentences) from error

    def read(self, parent: DatasetJob, manifest: Manifest) -> Edits:
        """Return the changes, without checking them; raises InvalidJson, ValidationError and BadRequest."""
        source, _, name = (self.data or "{}").partition(":")
        if source == PENDING:
            changes = pending(parent)
            if changes.token != name:
                raise ValidationError("The changes were edited in the meantime. Open this page again.")
            return in_thread(as_edits, changes.changes)
        if source == VERSION:
            return _edits_of(services().store.get(name, DatasetJob))
        if source == CLEANING:
            return in_thread(_cleaning, parent, manifest, name.split(","))
        edits: Edits = in_thread(load, self.data or "{}", Edits)
        return edits


class AddedField(StringField):  # type: ignore[misc]
    """The folder of the images to add; ``found`` lists them once the field is valid.

    ``is_partial``: there are more of them.
    """

    found: NewImages | None = None
    is_partial = False

    def post_validate(self, form: Form, validation_stopped: bool) -> None:
        if self.data and not self.errors:
            with as_field_error():
                progress = Beginning()
                target = form.meta.manifest.target
                self.found = in_thread(find, form.additions(), target, progress)
                self.is_partial = progress.is_partial

    @property
    def words(self) -> str:
        if self.found is None:
            return ""
        return ("at least " if self.is_partial else "") + self.found.describe()


_SHARE = [
    Optional(),
    Between(Limits(low=0, high=99), "Enter a number from {low} to {high}, or nothing to keep the splits."),
]


class VersionForm(JobForm):
    """A version of the dataset whose manifest is ``meta.manifest``, with a change of it."""

    LONG_FIELDS = frozenset({"edits"})

    dataset_name = name_field("Name", "Enter a name for the dataset.")
    edits = EditsField("Changes", default="")
    added_folder = AddedField("Images to add", validators=[AllowedPath("folder", may_be_empty=True)])
    added_class = SelectField("Class", default="")
    new_classes = FlagField("Add classes that the dataset does not have", default=False)
    added_split = SelectField(
        "Split", choices=choices(("", "As in the dataset"), *SPLIT_TITLES.items()), default=""
    )
    keep = DecimalField("Images to keep (%)", default=100, validators=[NumberRange(0.01, 100)])
    pct_val = OptionalInteger("Validation split", validators=_SHARE)
    pct_test = OptionalInteger("Test split", validators=_SHARE)
    resize_width = required_integer("Width", CreateVersion, "width")
    resize_height = required_integer("Height", CreateVersion, "height")
    resize_mode = select("Resize mode", RESIZE_MODES, CreateVersion, "resize_mode")
    encoding = select("Image encoding", ENCODINGS, CreateVersion, "encoding")
    seed = IntegerField("Random seed", default=0, validators=[NumberRange(0, 2**31 - 1)])

    def validate(self, *arguments: Any, **keywords: Any) -> bool:
        if not super().validate(*arguments, **keywords):
            return False
        if self.edits.words or self.additions() or self.has_changed_settings():
            return True
        self.edits.errors = ["Nothing would change. Add images, change some in Explore, or change a setting."]
        return False

    def additions(self) -> Additions | None:
        """Return the images to add, those of a source without its recipe."""
        takes_folder = "added_folder" in self
        if not (self.added_folder.data if takes_folder else self.meta.source):
            return None
        return Additions(
            folder=self.added_folder.data if takes_folder else "",
            label=self.added_class.data or "" if takes_folder else "",
            new_classes="new_classes" in self and self.new_classes.data,
            split=self.added_split.data or None,
        )

    def _chooses_records(self) -> bool:
        """Return whether records are chosen or divided again, by class, which gives other numbers by a few."""
        shares = self.pct_val.data, self.pct_test.data
        return (self.keep.data or 100) < 100 or shares != (None, None)

    def has_changed_settings(self) -> bool:
        inherited = _image_settings(self.meta.manifest).values()
        return self._chooses_records() or any(
            self[name].data != value for name, value in inherited if name in self
        )

    def outlook(self) -> Outlook:
        """Return what the form amounts to, even if some fields are invalid."""
        before = {split: item.count for split, item in self.meta.manifest.splits.items()}
        words, after = self._edited(before)
        if added := self._found():
            after = self._with_added(added, Counter(after), before)
        if (shares := (self.pct_val.data, self.pct_test.data)) != (None, None):
            total = sum(after.values())
            val, test = (round(total * (share or 0) / 100) for share in shares)
            after = {"train": max(0, total - val - test), "val": val, "test": test}
        left = {split: round(count * float(self.keep.data or 100) / 100) for split, count in after.items()}
        about = "about " if added or self._chooses_records() else ""
        return Outlook(
            words,
            self.added_folder.words if added else "",
            _in_words(before),
            about + (_in_words(left) or "none"),
            bool(words or added) or self.has_changed_settings(),
        )

    def _with_added(self, added: NewImages, after: Counter[str], before: dict[str, int]) -> Counter[str]:
        """Return the numbers ``after`` with those of the ``added`` images, some of which may be left out."""
        manifest, chosen = self.meta.manifest, self.added_split.data
        for label, files in added.files.items():
            place = manifest.target.labels.index(label) if label in manifest.target.labels else None
            own = (
                {}
                if place is None
                else {name: split.counts[place] for name, split in manifest.splits.items()}
            )
            after.update([chosen] * len(files) if chosen else divide(files, own, before))
        return after

    def _found(self) -> NewImages | None:
        """Return the images to add, if the fields are valid."""
        if "added_folder" not in self or not self.additions():
            return None
        field = self.added_folder
        if not (field.found or field.errors):
            field.validate(self)
        return field.found

    def _edited(self, counts: dict[str, int]) -> tuple[str, dict[str, int]]:
        """Return the changes of records in words, and the ``counts`` of the splits after them."""
        parent = self.meta.parent
        if (self.edits.data or "").startswith(f"{PENDING}:"):  # a million of them are counted already
            changes = pending(parent)
            return changes.words, in_thread(changes.splits, counts)
        try:
            edits = self.edits.read(parent, self.meta.manifest)
        except (InvalidJson, ValidationError, BadRequest):
            return "", counts
        return in_thread(edits.describe), in_thread(edits.splits, counts)

    def validate_pct_val(self, field: OptionalInteger) -> None:
        check_shares(field.data, self.pct_test.data)

    def recipe(self, parent: DatasetJob, manifest: Manifest) -> CreateVersion:
        """Return the recipe of the validated form, without its file of edits."""
        image: dict[str, Any] = {}
        for name, (field, inherited) in _image_settings(manifest).items():
            image[name] = self[field].data if field in self else inherited
        return CreateVersion(
            kind=manifest.kind,
            parent=str(parent.folder),
            parent_id=parent.id,
            parent_name=parent.name,
            original=JsonObject(parent.kind_recipe.as_json()),
            changes=self.edits.words,
            added=self.additions(),
            keep=self.keep.data,
            pct_val=self.pct_val.data,
            pct_test=self.pct_test.data,
            channels=1 if manifest.channels % 3 else 3,
            **image,
            seed=self.seed.data,
        )


@blueprint.get("/datasets/<job_id>/versions/new")
@blueprint.get("/datasets/<job_id>/add", endpoint="add")
def new(job_id: str) -> str | Response | AnyResponse:
    """Show the form of a version, for the class of the argument ``class`` if images are to be added."""
    parent, manifest = _parent(job_id)
    adds = request.endpoint == "versions.add"
    if adds and not parent.takes_images:
        kind = views_of(parent.data_kind)
        raise BadRequest(
            f"A version cannot add {kind.records} to a dataset for {parent.data_kind.title.lower()}.",
            f"Add them to the source of “{parent.name}”, then clone it to create it again.",
        )
    values: dict[str, Any] = {
        "seed": secrets.randbelow(2**31),
        "dataset_name": _next_name(parent),
        "added_class": request.args.get("class", ""),
    }
    source: Fields | None = MultiDict({ADDS_TO: job_id, "beside": "y"}) if adds else None
    if clone := request.args.get("clone"):
        cloned = services().store.get(clone, DatasetJob)
        values |= _settings_of(cloned)
        if added := cast(CreateVersion, cloned.recipe).added:
            values["new_classes"] |= "new_classes" in request.args
        if added and added.source:
            if not adds:
                fields: dict[str, Any] = {**request.args}
                return redirect(url_for("versions.add", job_id=job_id, **fields))
            source = MultiDict({**fields_of(parent, manifest, added.source), **request.args})
    elif findings := request.args.getlist("clean"):
        in_thread(_cleaning, parent, manifest, findings)  # raises the reason why it is impossible
        values["edits"] = f"{CLEANING}:{','.join(findings)}"
    elif (changes := pending(parent)).changes:
        values["edits"] = f"{PENDING}:{changes.token}"
    if source is not None:
        source.setdefault("dataset_name", values["dataset_name"])
    return _page(parent, _form(parent, manifest, None, source, **values))


@blueprint.post("/datasets/<job_id>/versions/form")
def change(job_id: str) -> str:
    """Render the form after a change: what the version will be."""
    parent, manifest = _parent(job_id)
    form = _form(parent, manifest, request.form, request.form)
    if (form.edits.data or "").startswith(f"{PENDING}:"):
        form.edits.data = f"{PENDING}:{pending(parent).token}"
    return _page(parent, form)


@twin(blueprint, "/datasets/<job_id>/versions", BriefJob)
def create(job_id: str) -> AnyResponse:
    """Create a version of a dataset."""
    parent, manifest = _parent(job_id)
    form = _form(parent, manifest, request.form, request.form, seed=secrets.randbelow(2**31))
    try:
        if not form.validate():
            raise InvalidForm
        recipe = form.recipe(parent, manifest)
        with services().store.creation() as new_folder:
            folder = new_folder()
            if recipe.changes:
                in_thread(save_edits, folder / EDITS_FILE, form.edits.edits)
                recipe.edits = str(folder / EDITS_FILE)
            if recipe.added and (source := form.meta.source):
                draft = draft_of(parent.data_kind, source, form.meta.source_fields, folder)
                recipe.added = replace(recipe.added, source=JsonObject(draft.recipe))
                recipe.notes = draft.recipe["notes"]
            compute = services().runner.executors.available(parent.compute)
            job = submit_dataset(folder, recipe, form, compute)
    except InvalidForm:
        errors = errors_of(form) | errors_of(form.meta.source or form)
        if ADDS_TO in request.form and "edits" in errors:  # its page has no field for them
            errors["dataset_name"] = errors.pop("edits")
        return respond_invalid(errors, lambda: _page(parent, form, is_refused=True))
    with suppress(UnreadableFile, OSError):  # the version exists in any case
        in_thread(remove_created, parent.folder, form.edits.edits)
    return respond(serializers.brief(job), created=url_for("dataset_page.show", job_id=job.id))


def _parent(job_id: str) -> tuple[DatasetJob, Manifest]:
    job = services().store.get(job_id, DatasetJob)
    if job.status is not Status.DONE:
        raise BadRequest(f"“{job.name}” has no records yet: it is {job.status.title}, not Done.")
    return job, job.manifest() or manifests.load(job.folder)  # raises the reason


def _form(
    parent: DatasetJob, manifest: Manifest, given: Any, source: Fields | None = None, **values: Any
) -> VersionForm:
    """Return the form; what is not ``given`` has these ``values``, or is taken over from the parent.

    The fields of the ``source`` are those of the form of the kind, if it can add one.
    """
    inherited = dict(_image_settings(manifest).values())
    meta = {"parent": parent, "manifest": manifest, "data_roots": services().roots, "source": None}
    if (adds_sources := views_of(parent.data_kind).adds_sources) and source is not None:
        fields = source_fields(parent, manifest, source)
        added = source_form(parent, manifest, fields)
        if ADDS_TO in source or added.text_of(added.source.path):
            meta |= {"source": added, "source_fields": fields}
    form = VersionForm(given, data={**inherited, **values}, meta=meta)
    has_images = views_of(kind_named(manifest.kind)).shows_images and manifest.dtype == "uint8"
    names = manifest.target.names
    form.added_class.choices = choices(("", "By folder"), *zip(names, names, strict=True))
    unused = [] if has_images else [*inherited]
    unused += ["added_folder", "added_class"] if adds_sources or not parent.takes_images else []
    unused += [] if adds_sources or (parent.takes_images and manifest.target.labels) else ["new_classes"]
    unused += [] if parent.takes_images else ["added_split"]
    for name in unused:
        del form[name]
    if added := form.meta.source:
        added._fields["new_classes"] = form.new_classes
    return form


def _image_settings(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """Return the form field and the parent's value of each setting of the images."""
    return {
        "width": ("resize_width", manifest.width),
        "height": ("resize_height", manifest.height),
        "resize_mode": ("resize_mode", manifest.resize_mode),
        "encoding": ("encoding", manifest.encoding),
    }


def _settings_of(job: DatasetJob) -> dict[str, Any]:
    """Return the fields of the form with which the version ``job`` was created."""
    recipe = job.recipe
    if not isinstance(recipe, CreateVersion):
        raise BadRequest(f"“{job.name}” is not a version of another dataset.")
    return {
        "dataset_name": job.name,
        "group_name": job.group,
        "edits": f"{VERSION}:{job.id}",
        **_additions_of(recipe),
        "keep": recipe.keep,
        "pct_val": None if recipe.pct_val is None else int(recipe.pct_val),
        "pct_test": None if recipe.pct_test is None else int(recipe.pct_test),
        "resize_width": recipe.width,
        "resize_height": recipe.height,
        "resize_mode": recipe.resize_mode,
        "encoding": recipe.encoding,
        "seed": recipe.seed,
    }


def _additions_of(recipe: CreateVersion) -> dict[str, Any]:
    """Return the fields of the images that a version added."""
    added = recipe.added
    if added is None:
        return {}
    folder = {"added_folder": added.folder, "added_class": added.label} if added.source is None else {}
    return {**folder, "new_classes": added.new_classes, "added_split": added.split or ""}


def _edits_of(job: DatasetJob) -> Edits:
    """Return the changes with which the version ``job`` was created; raises BadRequest if they cannot be read."""
    if not getattr(job.recipe, "edits", None):
        return Edits()
    try:
        return in_thread(load_edits, job.folder / EDITS_FILE, job.folder)
    except UnreadableFile as error:
        raise BadRequest(f"The changes of “{job.name}” cannot be read: {error}.") from error


def _cleaning(job: DatasetJob, manifest: Manifest, findings: list[str]) -> Edits:
    """Return the edits that exclude the removable images of findings of the health check; raises BadRequest.

    Reads files; there may be as many images as in the dataset.
    """
    of_health = [name for name in findings if name != label_check.FINDING]
    records: dict[str, set[int]] = {split: set() for split in SPLITS}
    try:
        if label_check.FINDING in findings:
            label_check.load(job.folder, manifest)
            errors = label_check.load_errors(job.folder, manifest)
            for place, split in enumerate(SPLITS):
                records[split].update(errors["number"][errors["split"] == place].tolist())
        if of_health:
            checked = health.load(job.folder, manifest)
            known = [finding.id for finding in checked.findings]
            if unknown := set(of_health) - set(known):
                raise BadRequest(f"The health check of “{job.name}” has no finding “{min(unknown)}”.")
            for name, number in health.removable_records(job.folder, checked, of_health):
                records[name].add(number)
    except UnreadableFile as error:
        raise BadRequest(
            f"The health of “{job.name}” cannot be read: {error}.", "Check the dataset again."
        ) from error
    edits = Edits()
    for name, numbers in sorted(records.items()):
        # NumPy lets others run while it sorts.
        in_order = np.sort(np.fromiter(numbers, np.int64, len(numbers))).tolist()
        edits.exclude += [cast(RecordId, (name, number)) for number in in_order]
    return edits


def _next_name(parent: DatasetJob) -> str:
    """Return a name for a version: *Flowers, version 2*."""
    name, separator, number = parent.name.rpartition(", version ")
    count = parse_integer(number) if separator else None
    return f"{parent.name if count is None else name}, version {(count or 1) + 1}"[:NAME_LENGTH]


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{counts[split]:,} {title.lower()}" for split, title in SPLIT_TITLES.items() if counts.get(split)
    )


def _page(parent: DatasetJob, form: VersionForm, *, is_refused: bool = False) -> str:
    if source := form.meta.source:
        return form_page(
            parent.data_kind,
            source,
            adds_to=serializers.row(parent),
            records=views_of(parent.data_kind).records,
            manifest=form.meta.manifest,
            version_form=form,
            outlook=form.outlook(),
        )
    return render_in_turns(
        "version_new.html",
        adds=request.endpoint == "versions.add" or bool(form.additions()),
        is_refused=is_refused,
        job=serializers.row(parent),
        form=form,
        outlook=form.outlook(),
    )
