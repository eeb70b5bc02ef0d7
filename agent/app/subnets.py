"""Which subnets several NICs share. Pure."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_interface


def shared_subnets(addresses: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, list[str]]:
    """Subnet -> NICs, for those with more than one.

    Args:
        addresses: NIC -> (address, netmask), IPv4.
    """
    nics: dict[str, list[str]] = {}
    for nic, entries in addresses.items():
        for address, netmask in entries:
            network = ip_interface(f"{address}/{netmask or '255.255.255.255'}").network
            if network.prefixlen < 31 and not network.is_loopback and nic not in nics.setdefault(str(network), []):
                nics[str(network)].append(nic)
    return {network: names for network, names in nics.items() if len(names) > 1}
