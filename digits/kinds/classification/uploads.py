"""Uploaded files in the form of a dataset: they are kept in its job, and copied from the job that is cloned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from wtforms import HiddenField

from digits.core.files import open_plain, write_bytes
from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.forms.tables import DialectFields
from digits.kinds.jobs import DatasetJob

# The folder of a job that contains its uploaded files.
UPLOADS = "uploads"


class UploadFields(DialectFields[CreateClassification]):
    """Base class of a form with the fields ``UPLOADED``: those of files, each with that of a path that replaces it."""

    UPLOADED: ClassVar[Mapping[str, str]]

    # The dataset whose uploaded files are used, in clones.
    uploads_of = HiddenField(default="")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._saved: dict[str, Path] = {}

    def has_upload(self, name: str) -> bool:
        """Return whether there is an uploaded file for the field ``name``, in the request or the cloned job."""
        if self[name].data:
            return True
        is_replaced = name.startswith("table") and self.text_of(self.UPLOADED[name])
        return bool(self.uploads_of.data) and not is_replaced and self._previous(name).is_file()

    def read_upload(self, name: str, max_bytes: int = -1) -> bytes:
        """Return the beginning of an uploaded file, by default all of it."""
        if self[name].data:
            data = self[name].data.stream.read(max_bytes)
            self[name].data.stream.seek(0)
            return bytes(data)
        path = self._previous(name)
        with open_plain(path, below=path.parent.parent) as file:
            return bytes(file.read(max_bytes))

    def save_uploads(self, folder: Path) -> None:
        for name in self.used_uploads():
            path = folder / UPLOADS / _file_name(name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_bytes(path, self.read_upload(name))
            self._saved[name] = path

    def file_of(self, name: str) -> str:
        """Return the path of the saved upload of the field ``name``, or the path that replaces it."""
        return str(self._saved.get(name) or self.text_of(self.UPLOADED[name]))

    def fill(self, job: DatasetJob) -> None:
        super().fill(job)
        # Uploaded files are copied from that job's folder, which paths of a form cannot refer to.
        for path in self.UPLOADED.values():
            if (self[path].data or "").startswith(f"{job.folder}{os.sep}"):
                self.set(uploads_of=job.id, textfile_use_local_files=False, **{path: ""})

    def _previous(self, name: str) -> Path:
        folder: Path = self.meta.job_folder(self.uploads_of.data)
        return folder / UPLOADS / _file_name(name)


def _file_name(field: str) -> str:
    return f"{field}{'.csv' if field.startswith('table') else '.txt'}"
