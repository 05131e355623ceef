"""Projects, as pages and programs see them."""

from __future__ import annotations

from msgspec import Struct

from digits.core.splits import Split
from digits.web.resources.datasets import VersionOf
from digits.web.resources.jobs import BriefJob


class ProjectVersion(BriefJob):
    """A dataset of a project, with the number of records of each split.

    A version has a ``parent``, than which it has ``change`` more records, and ``models`` is the number of its models.
    """

    url: str
    parent: VersionOf | None
    change: int
    splits: dict[str, int]
    models: int


class ProjectModel(BriefJob):
    """A model of a project, with the ``value`` of the metric in its best ``evaluation`` on the split, else null."""

    url: str
    dataset_id: str
    evaluation: str | None
    value: float | None


class ProjectBest(Struct):
    """The ``model`` with the best ``value`` of the metric, with its 95% interval if it is known.

    ``second`` is the next one; it ``is_certain`` whether the best one is better, by the test of comparisons.
    """

    model: str
    value: float
    interval: tuple[float, float] | None
    second: str | None
    is_certain: bool


class Project(Struct):
    """A dataset with its ``versions``, the newest first, and their ``models``, the best first.

    The models are compared by the ``metric`` on the ``split`` of the dataset ``dataset_id``, which are null if none was
    evaluated.
    """

    name: str
    kind: str
    metric: str
    dataset_id: str | None
    split: Split | None
    best: ProjectBest | None
    versions: list[ProjectVersion]
    models: list[ProjectModel]
