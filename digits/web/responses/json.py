"""JSON of the application: resources, with the keys in the order of their fields."""

from __future__ import annotations

from typing import Any

import msgspec
from flask.json.provider import DefaultJSONProvider

from digits.web.resources.encoding import as_json


class ResourceProvider(DefaultJSONProvider):
    """Also encodes resources, in responses and in the data of pages."""

    sort_keys = False

    @staticmethod
    def default(value: Any) -> Any:
        """Return JSON values for ``value``; raises TypeError."""
        return as_json(value) if isinstance(value, msgspec.Struct) else DefaultJSONProvider.default(value)
