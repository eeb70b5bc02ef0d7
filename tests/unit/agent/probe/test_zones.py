"""Link-local addresses as this host has to spell them."""

import pytest

from agent.probe.zones import ZoneError, from_here


@pytest.mark.parametrize(
    ("address", "nic", "spelled"),
    [
        ("192.0.2.1", "eth0", "192.0.2.1"),
        ("2001:DB8::1", "eth0", "2001:db8::1"),
        ("", "eth0", ""),
        ("gw.example", "", "gw.example"),
        ("FE80::1%eth0", "", "fe80::1%eth0"),
        ("fe80::1%eth0", "eth0", "fe80::1%eth0"),
        ("fe80::1", "eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_of_ours_or_a_targets(address: str, nic: str, spelled: str) -> None:
    assert from_here(address, nic) == spelled


def test_a_peers_zone_is_a_device_over_there() -> None:
    assert from_here("fe80::2%eth1", "eth0", peer=True) == "fe80::2%eth0"
    assert from_here("2001:db8::2", "eth0", peer=True) == "2001:db8::2"


@pytest.mark.parametrize(
    ("address", "nic", "peer", "words"),
    [
        ("fe80::1", "", False, "say on which link, such as fe80::1%eth0"),
        ("fe80::1%eth1", "", True, "say on which link"),
        ("fe80::1%eth1", "eth0", False, "on the link of eth1, not of eth0"),
    ],
)
def test_no_link_or_two_is_refused(address: str, nic: str, peer: bool, words: str) -> None:
    with pytest.raises(ZoneError, match=words):
        from_here(address, nic, peer=peer)
