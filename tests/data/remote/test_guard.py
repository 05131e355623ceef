"""Addresses that the whole internet shares, and all others."""

from __future__ import annotations

import pytest

from digits.data.remote.guard import is_public


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)
    if "." in address:
        assert is_public(f"::ffff:{address}")


@pytest.mark.parametrize(
    "address",
    # In the order of IANA's registries of special IPv4 and IPv6 addresses, and of the space of IPv6.
    """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 169.254.169.254 172.16.0.1 192.0.0.1 192.0.0.8 192.0.0.170 192.0.2.1
    192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::808:808 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1
    64:ff9b:1::1 64:ff9b:1:a00::1 100::1 100:0:0:1::1 200::1 2001::1 2001:1::1 2001:2::1 2001:10::1 2001:20::1
    2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 4000::1 5f00::1 e000::1 fc00::1 fd00::1 fe80::1 fe80::1%eth0
    fec0::1 ff0e::1 localhost 0x7f.1 2130706433
    """.split(),
)  # fmt: skip
def test_other_addresses(address: str) -> None:
    assert not is_public(address)
