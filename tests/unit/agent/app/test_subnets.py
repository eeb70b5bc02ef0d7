"""Two NICs in one subnet."""

from agent.app.subnets import shared_subnets


def test_only_subnets_with_more_than_one_nic() -> None:
    addresses = {
        "lo": [("127.0.0.1", "255.0.0.0")],
        "lo1": [("127.0.0.2", "255.0.0.0")],
        "ens1f0": [("10.0.1.11", "255.255.255.0"), ("10.0.1.12", "255.255.255.0")],
        "ens1f1": [("10.0.1.21", "255.255.255.0")],
        "ens2f0": [("10.0.2.11", "255.255.255.0")],
        "tun0": [("192.0.2.1", "")],
        "tun1": [("192.0.2.1", "255.255.255.255")],
    }
    assert shared_subnets(addresses) == {"10.0.1.0/24": ["ens1f0", "ens1f1"]}
    assert shared_subnets({}) == {}
