"""Downloads of gradient datasets."""

from __future__ import annotations

from digits.kinds.export import TableExport

FORMATS = (TableExport,)
