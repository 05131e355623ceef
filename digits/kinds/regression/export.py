"""Downloads of regression datasets."""

from __future__ import annotations

from digits.kinds.export import TableExport

FORMATS = (TableExport,)
