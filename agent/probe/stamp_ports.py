"""Source ports of a pair's STAMP sessions: most stay for ever, some change every hour. Pure.

Switches choose among equal paths (ECMP) by a hash over addresses and ports. Ports that stay give series that can be
compared over weeks; ports that change come by members that the others never hash to, and out of a small stock, so
that they too come back and the paths of a pair stay countable. 16 ports meet all of 4 equal paths
with probability 0.95, 38 all of 8 (coupon collector).
"""

from hashlib import blake2b

MIN_PORTS, MAX_PORTS = 1, 64
DEFAULT_PORTS = 16
# Dynamic ports (RFC 6335) above what Linux gives to others (net.ipv4.ip_local_port_range ends at 60999).
FIRST_FIXED = 61_000
FIRST_ROTATING = 62_000
LAST_ROTATING = 62_063  # few, so that they come back: each port of a pair is a path with a history
HOUR_NS = 3_600_000_000_000


def source_ports(count: int, wall_ns: int) -> tuple[int, ...]:
    """``count`` ports of the hour of ``wall_ns``: the first four fifths fixed, the others new each hour."""
    assert MIN_PORTS <= count <= MAX_PORTS
    rotating = count // 5
    return tuple(range(FIRST_FIXED, FIRST_FIXED + count - rotating)) + rotating_ports(rotating, wall_ns)


def rotating_ports(count: int, wall_ns: int) -> tuple[int, ...]:
    """``count`` ports that change every hour.

    Every node has the same ones: a socket a port serves all peers, and the ports of a pair can be looked up.
    """
    assert 0 <= count <= MAX_PORTS
    size = LAST_ROTATING - FIRST_ROTATING + 1
    chosen: dict[int, None] = {}
    hour = wall_ns // HOUR_NS
    turn = 0
    while len(chosen) < count:
        digest = blake2b(f"{hour}/{turn}".encode(), digest_size=8).digest()
        chosen[FIRST_ROTATING + int.from_bytes(digest, "big") % size] = None
        turn += 1
    return tuple(chosen)
