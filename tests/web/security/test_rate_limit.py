"""The limit of logins."""

from __future__ import annotations

import pytest

from digits.web.security import rate_limit
from digits.web.security.rate_limit import RateLimiter


def test_rate_limiter_counts_networks_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_REMEMBERED_ADDRESSES", 3)
    limiter = RateLimiter(1, clock=lambda: 0.0)
    assert limiter.take("2001:db8::1") and not limiter.take("2001:db8::2")
    assert limiter.take("2001:db8:0:1::1")
    assert limiter.take("not an address") and not limiter.take("not an address")
    for number in range(3):
        assert limiter.take(f"10.0.0.{number}")
    assert len(limiter) == 3
