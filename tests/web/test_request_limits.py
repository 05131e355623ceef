"""The integers of requests that are not in a form."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from flask import get_template_attribute

from digits.core.errors import BadRequest
from digits.web.request_limits import LIMITS, limited
from tests.site import Site


@pytest.mark.parametrize("name", LIMITS)
def test_a_page_renders_the_limits_that_the_views_check(site: Site, name: str) -> None:
    with site.app.test_request_context():
        html = get_template_attribute("_macros.html", "integer")(name)
    low, high = (int(re.search(rf' {limit}="(\d+)"', html)[1]) for limit in ("min", "max"))  # type: ignore[index]
    for value, is_allowed in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        refused = nullcontext() if is_allowed else pytest.raises(BadRequest)
        with site.app.test_request_context(query_string={name: value}), refused:
            assert limited(name) == value
    with site.app.test_request_context():
        assert limited(name) == LIMITS[name][0]
