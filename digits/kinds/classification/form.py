"""The form of a dataset for image classification."""

from __future__ import annotations

from digits.kinds.classification.folders import CLOUD, FOLDERS, FolderFields
from digits.kinds.classification.lists import CsvLists, HuggingFace, ListFields, TextLists
from digits.kinds.classification.recipe import CreateClassification, LabeledRecords
from digits.kinds.classification.record_files import ClassMapping
from digits.kinds.forms.fields import optional_path
from digits.kinds.forms.records import OldDatasetFields, OldDatasets, RecordFields, Records, feature_field
from digits.kinds.forms.source import method_field


class DatasetForm(
    FolderFields, ListFields, RecordFields[CreateClassification], OldDatasetFields[CreateClassification]
):
    """A dataset for image classification: from folders of classes, files that list images, or files with records."""

    RECIPE = CreateClassification
    SOURCES = (
        FOLDERS,
        TextLists(),
        CsvLists(),
        HuggingFace(),
        Records(LabeledRecords, ClassMapping, attribute="files"),
        OldDatasets(),
        CLOUD,
    )

    method = method_field(SOURCES)
    label_feature = feature_field("Label feature", LabeledRecords, "label_feature")
    record_labels = optional_path("Class names", LabeledRecords, "labels", "file")

    @property
    def opens_files(self) -> bool:
        return self.method.data not in (FOLDERS.method, CLOUD.method)
