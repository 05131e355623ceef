"""Downloads of multi-label datasets: the CSV file has a column of zeros and ones for each label."""

from __future__ import annotations

from digits.kinds.export import TableExport

FORMATS = (TableExport,)
