"""A cache of rendered rows of job lists, because most jobs have ended and do not change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from digits.web.resources.jobs import JobRow
from digits.web.template_filters import ago

MAX_ROWS = 2000


class RowCache:
    """Cache the HTML of rows. A row is rendered again when its data or its displayed age changes."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str], tuple[JobRow, str, Markup]] = OrderedDict()

    def render(self, table: str, row: JobRow, macro: Callable[..., Markup], *arguments: Any) -> Markup:
        """Return ``macro(row, *arguments)`` for a row of `serializers.row` in the list ``table``."""
        key, age = (table, row.id), ago(row.submitted)
        known = self._rows.get(key)
        if known is None or known[0] != row or known[1] != age:
            known = self._rows[key] = row, age, macro(row, *arguments)
        self._rows.move_to_end(key)
        if len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)
        return known[2]
