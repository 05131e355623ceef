"""Form fields for TFRecord files with an image and a label per record."""

from __future__ import annotations

from wtforms import StringField
from wtforms.validators import Optional

from digits.kinds.classification.recipe import CreateClassification, LabeledRecords
from digits.kinds.classification.record_files import LabelMapping
from digits.kinds.form_fields import AllowedPath
from digits.kinds.record_form import FeatureField, RecordForm
from digits.kinds.record_source import first_record


class RecordFields(RecordForm[CreateClassification]):
    """The fields of the source ``tfrecord``."""

    RECORD_FIELDS = (*RecordForm.RECORD_FIELDS, "record_labels")
    RECORD_SCANNED = (*RECORD_FIELDS, "image_feature", "label_feature", "record_shape")

    label_feature = FeatureField("Label feature")
    record_labels = StringField("Class names", default="", validators=[Optional(), AllowedPath("file")])

    def record_source(self) -> LabeledRecords:
        return LabeledRecords(
            label_feature=self.entered("label_feature"),
            labels=self.entered("record_labels"),
            **self.record_settings(),
        )

    def check_records(self) -> None:
        source = self.record_source()
        files = source.find()
        LabelMapping(source, files, first_record(files.splits["train"]))

    def fill_labeled_records(self, source: LabeledRecords) -> None:
        """Fill in the fields from ``source``."""
        self.fill_records(source)
        self.set(label_feature=source.label_feature, record_labels=source.labels)
