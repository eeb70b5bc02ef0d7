"""What a timetable costs before anything is sent: bytes, minutes, and what it may do to a bill by the 95th percentile.
Pure.

Such a bill (95 计费) cuts a month of 30 days into 8,640 windows of five minutes, takes the mean rate of each, drops the
highest 432 and charges the next one. A test raises the mean of the windows it lies in by its bytes. What that does to
the charged one depends on the other traffic, which no plan knows; two things are known of it: how many windows are
raised, and by how much at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.config import Config
from collector.model import EndpointRow, SlotRow

SECOND = 1_000_000_000
BILL_WINDOW_NS = 300 * SECOND
MONTH_DAYS = 30
MONTH_WINDOWS = MONTH_DAYS * 288
DROPPED_WINDOWS = MONTH_WINDOWS // 20
ASSUMED_BPS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class LinkCost:
    """What tests do to one link in a day. Of figures that have a direction the larger is given."""

    token: str  # nic:…, uplink:…, site_link:…
    tests: int  # both directions
    held_ns: int  # margins included
    bytes: int  # of one direction
    bill_windows: int  # windows of five minutes with test traffic in one direction
    added_bps: float  # to the mean of the window with most of it

    @property
    def month_windows(self) -> int:
        return self.bill_windows * MONTH_DAYS

    @property
    def bill_ratio(self) -> float:
        """Share of a month's windows that tests raise."""
        return self.month_windows / MONTH_WINDOWS


@dataclass(frozen=True, slots=True)
class Cost:
    """Of all tests of a timetable."""

    tests: int
    bytes: int
    test_ns: int  # time in which a test sends, tests side by side counted each
    assumed: bool  # a rate had to be assumed for some NIC
    links: Sequence[LinkCost]  # uplinks and site links, then NICs, in order of name


def cost_of(config: Config, slots: Sequence[SlotRow], *, assumed_bps: int = ASSUMED_BPS) -> Cost:
    """What ``slots`` cost, each at the speed of the slower of its two NICs, or at the rate of UDP.

    Args:
        config: knows the speeds, where they are written down.
        slots: a day of them.
        assumed_bps: of NICs whose speed is not in the configuration.
    """
    throughput = config.measure.throughput
    speeds: Mapping[tuple[str, str], int | None] = {
        (node.name, end.nic): end.speed for node in config.nodes for end in node.endpoints
    }
    place = {node.name: (node.site, node.rack) for node in config.nodes}
    test_ns = throughput.duration + throughput.omit
    links: dict[str, _Link] = {}
    total, assumed = 0, False
    for slot in slots:
        known = [speeds[end.node, end.nic] for end in (slot.client, slot.server)]
        assumed = assumed or None in known
        bps = min(speed if speed is not None else assumed_bps for speed in known)
        if throughput.udp_rate is not None:
            bps = min(bps, throughput.udp_rate)
        ways = (True, False) if throughput.bidirectional else (True,)
        total += len(ways) * (bps * test_ns // (8 * SECOND))
        source, destination = (slot.server, slot.client) if slot.reverse else (slot.client, slot.server)
        for token in slot.tokens:
            link = links.setdefault(token, _Link())
            outward = _leaves(token, source, destination, place)
            for way in ways:
                link.add(slot, outward=outward is way, bps=bps, test_ns=test_ns)
            link.hold(slot)
    ordered = sorted(links.items(), key=lambda item: (item[0].startswith("nic:"), item[0]))
    return Cost(len(slots), total, test_ns * len(slots), assumed, [link.cost(token) for token, link in ordered])


def _leaves(token: str, source: EndpointRow, destination: EndpointRow, place: Mapping[str, tuple[str, str]]) -> bool:
    """Whether the data of a test go out of what the token is named for; of a site link: of its first site."""
    kind, _, name = token.partition(":")
    if kind == "nic":
        return name == f"{source.node}/{source.nic}"
    site, rack = place[source.node]
    return name == f"{site}/{rack}" if kind == "uplink" else name.partition("|")[0] == site


class _Link:
    def __init__(self) -> None:
        self._tests = self._held_ns = 0
        self._windows: dict[tuple[bool, int], float] = {}  # direction and number of the window -> bytes

    def hold(self, slot: SlotRow) -> None:
        self._tests += 1
        self._held_ns += slot.end_time_ns - slot.start_time_ns + slot.margin_ns

    def add(self, slot: SlotRow, *, outward: bool, bps: int, test_ns: int) -> None:
        begin, end = slot.start_time_ns, slot.start_time_ns + test_ns
        while begin < end:
            window = begin // BILL_WINDOW_NS
            until = min(end, (window + 1) * BILL_WINDOW_NS)
            key = (outward, window)
            self._windows[key] = self._windows.get(key, 0.0) + bps * (until - begin) / (8 * SECOND)
            begin = until

    def cost(self, token: str) -> LinkCost:
        by_direction = [
            [count for (outward, _), count in self._windows.items() if outward is direction]
            for direction in (True, False)
        ]
        return LinkCost(
            token=token,
            tests=self._tests,
            held_ns=self._held_ns,
            bytes=round(max(map(sum, by_direction))),
            bill_windows=max(map(len, by_direction)),
            added_bps=max(self._windows.values()) * 8 * SECOND / BILL_WINDOW_NS,
        )
