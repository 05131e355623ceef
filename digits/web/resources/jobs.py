"""Jobs, as lists, pages and programs see them. Times are Unix times or durations in seconds; progress is in percent."""

from __future__ import annotations

from msgspec import Struct


class BriefJob(Struct):
    """A job as the response to creating it. ``status`` is a title, such as *Done*."""

    id: str
    name: str
    status: str


class JobRow(BriefJob):
    """A job in lists.

    ``data_kind`` is the name of the kind of a dataset, or of a model's dataset, and ``kind_title`` its title;
    ``picture`` is the URL of a thumbnail of this dataset, if its records are images. ``waiting_for`` names what a
    waiting job waits for. If a cluster has queued it, ``waiting_at`` is the title of the cluster, ``waiting_for`` the
    reason, and ``expected_start`` may be known. ``cluster`` is the title of the cluster on which a job runs, empty for
    the machine of the server. A training with early stopping ``may_end_early``, before the ``eta_seconds``. ``refs`` is
    the number of models of a dataset. ``error`` is the message of a failure. ``bytes`` is the size of a dataset's
    records.
    """

    type: str
    type_title: str
    is_imported: bool
    data_kind: str | None
    kind_title: str
    picture: str | None
    group: str
    owner: str | None
    status_label: str
    status_css: str
    waiting_for: str
    waiting_at: str
    expected_start: float | None
    cluster: str
    running: bool
    progress: float
    eta_seconds: float | None
    may_end_early: bool
    submitted: float
    elapsed: float
    url: str
    dataset_id: str | None
    dataset_name: str | None
    refs: int
    error: str | None
    detail: str
    bytes: int | None
    sparkline: list[float]
    last_accuracy: float | None
    metric: str


class JobStatus(Struct):
    """The state of a job. ``type`` is in words; ``error`` is the message of a failure."""

    error: str | None
    status: str
    name: str
    type: str
    progress: float


class JobOutput(Struct):
    """What the task of a job printed after an offset, and the ``next`` offset."""

    text: str
    next: int


class JobTexts(Struct):
    """What users can change of a job."""

    name: str
    notes: str
    group: str


class Findings(Struct):
    """What a job's tasks found: ``warnings``, and ``remarks`` about what was assumed with nothing wrong."""

    warnings: list[str]
    remarks: list[str]


class Device(Struct):
    """A device of the machine. Memory is in bytes; ``busy_with`` names the job that uses it."""

    id: str
    name: str
    is_gpu: bool
    memory_total: int | None
    memory_used: int | None
    busy_with: str | None
