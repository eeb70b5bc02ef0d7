"""Link-local addresses and their zones (RFC 4007). Pure.

A zone names a device of the host that uses the address (RFC 4007 section 6), so a peer's own spelling of its address
(``fe80::2%eth1``, where ``eth1`` is a device over there) has to be spelled with our device here.
"""

from ipaddress import IPv6Address, ip_address


class ZoneError(ValueError):
    """A link-local address that cannot be used from here; the text says why."""


def from_here(address: str, nic: str, *, peer: bool = False) -> str:
    """The address as sockets of this host have to be given it.

    Args:
        address: IPv4 or IPv6, in any spelling; anything else comes back as it is.
        nic: our device that it is used from; empty: not known.
        peer: the zone is the other host's, and counts for nothing here.

    Raises:
        ZoneError: link-local, and neither its zone nor ``nic`` says on which link, or the two contradict each other.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address) or not parsed.is_link_local:
        return str(parsed)
    host, zone = str(parsed).partition("%")[0], "" if peer else parsed.scope_id or ""
    if nic and zone not in ("", nic):
        raise ZoneError(f"{address} is on the link of {zone}, not of {nic}")
    if not nic and not zone:
        raise ZoneError(f"{address} is link-local: say on which link, such as {host}%eth0")
    return f"{host}%{nic or zone}"
