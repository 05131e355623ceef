"""The health check of a dataset, as pages and programs see it."""

from __future__ import annotations

from digits.data.health.health import Health
from digits.data.health.label_check import LabelCheck
from digits.web.resources.tasks import ActivityState


class HealthState(ActivityState, kw_only=True):
    """The state of the check, its ``result``, and the result of the search for wrong ``labels``."""

    result: Health | None
    labels: LabelCheck | None
