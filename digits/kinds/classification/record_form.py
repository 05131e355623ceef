"""Form fields for TFRecord files with an image and a label per record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wtforms import StringField
from wtforms.validators import Optional, ValidationError

from digits.core.errors import BadRequest
from digits.data.images import UnusableImage
from digits.data.record_features import ClassFeature, ImageFeature, guess_image, guess_label
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource
from digits.kinds.classification.listing import sort_labels
from digits.kinds.classification.recipe import CreateClassification, RecordSource
from digits.kinds.classification.record_files import find, map_features
from digits.kinds.dataset_form import ImageDatasetForm
from digits.kinds.form_fields import AllowedPath, OnlyIf, RequiredIf
from digits.kinds.record_form import AllowedRecords, FeatureField, ShapeField, resolve_records, shape_text
from digits.kinds.record_source import first_record
from digits.kinds.record_summary import show_features, summarize_records
from digits.kinds.source_summary import SourceSummary

METHOD = "tfrecord"
_ONLY = OnlyIf(method=METHOD)


class RecordFields(ImageDatasetForm[CreateClassification]):
    """The fields of the source ``tfrecord``."""

    RECORD_SCANNED = (
        *("record_train", "record_val", "record_test"),
        *("image_feature", "label_feature", "record_shape", "record_labels"),
    )

    record_train = StringField(
        "TFRecord files", default="", validators=[RequiredIf(method=METHOD), AllowedRecords()]
    )
    record_val = StringField("Validation files", default="", validators=[_ONLY, AllowedRecords()])
    record_test = StringField("Test files", default="", validators=[_ONLY, AllowedRecords()])
    image_feature = FeatureField("Image feature")
    label_feature = FeatureField("Label feature")
    record_shape = ShapeField("Shape of raw images", default="", validators=[_ONLY])
    record_labels = StringField(
        "Class names", default="", validators=[_ONLY, Optional(), AllowedPath("file")]
    )

    def validate_record_train(self, field: StringField) -> None:
        if self["method"].data != METHOD or field.errors:
            return
        try:
            source = self.record_source()
            map_features(find(source), source)
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def record_source(self) -> RecordSource:
        """Return the source in the fields."""
        return RecordSource(
            train=self._text("record_train"),
            val=self._text("record_val"),
            test=self._text("record_test"),
            image_feature=self._text("image_feature"),
            label_feature=self._text("label_feature"),
            labels=self._text("record_labels"),
            shape=self.record_shape.sizes,
        )

    def fill_records(self, source: RecordSource) -> None:
        """Fill in the fields from ``source``."""
        self.set(
            method=METHOD,
            record_train=source.train,
            record_val=source.val,
            record_test=source.test,
            image_feature=source.image_feature,
            label_feature=source.label_feature,
            record_labels=source.labels,
            record_shape=shape_text(source.shape),
        )

    def scan_records(self) -> Iterator[SourceSummary]:
        """Return summaries of the files; raises DigitsError for an invalid path."""
        for name in ("record_train", "record_val", "record_test"):
            if self._text(name):
                self[name].data = resolve_records(self.meta.data_roots, self[name].data)
        if self._text("record_labels"):
            self.record_labels.data = str(self.path_of("record_labels", "file"))
        try:
            source = self.record_source()
        except ValueError:
            raise BadRequest("Enter height × width × channels, such as 28×28×1.") from None
        return _summarize(source)

    def _text(self, name: str) -> str:
        return (self[name].data or "").strip()


def _summarize(source: RecordSource) -> Iterator[SourceSummary]:
    start = SourceSummary()
    try:
        files = find(source)
        features = first_record(files.splits["train"])
        image_guess = files.image or guess_image(features)
        label_guess = files.label or guess_label(features, source.image_feature or image_guess)
        guessed = {"image_feature": image_guess, "label_feature": label_guess}
        try:
            image, label, names = map_features(files, source)
        except UnusableSource as error:
            start.facts.append(files.describe())
            start.problems.append(error.sentences)
            show_features(start, features, guessed, {})
            yield start
            return
        chosen = {"image_feature": image.name, "label_feature": label.name}
        show_features(start, features, guessed, chosen, image)
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return
    yield from _count_classes(files, start, image, label, names)


def _count_classes(
    files: RecordFiles, start: SourceSummary, image: ImageFeature, label: ClassFeature, names: list[str]
) -> Iterator[SourceSummary]:
    counts: Counter[str] = Counter()
    try:
        image.encoded(first_record(files.splits["train"]))
    except UnusableImage as error:
        start.problems.append(f"The first record has no usable image: {error.reason}.")

    def describe(summary: SourceSummary) -> None:
        order = names or sort_labels(set(counts))
        summary.set_bars("Training images per class", [(name, counts[name]) for name in order])
        if summary.finished and len(counts) == 1:
            summary.problems.append("Classification requires at least two classes.")

    yield from summarize_records(
        files, start, lambda features: counts.update([label.read(features)]), describe
    )
