"""Downloads of regression datasets."""

from __future__ import annotations

from digits.kinds.versions.export import TableExport

FORMATS = (TableExport,)
