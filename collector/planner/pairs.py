"""Who tests whom on a day, and in which order a first fit packs it best. Pure.

Up to ``EVERY_PAIR_UP_TO`` endpoints of a lane: every ordered pair. Above that the unit is the rack pair: one host of
each rack, both directions, other hosts every day; inside a rack, one round of the circle method a day. The pairs of a
day are the same in all its windows: a comparison of peak with off-peak then compares the network and not the hosts.

Order: the circle method (round-robin tournament) over racks, and over the hosts of two racks a Latin square, so that
tests that may run together stand together. Where no uplink limits, the circle method over all endpoints.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

from collector.planner.endpoints import Pair, PlacedEndpoint, lanes, pair, racks

T = TypeVar("T")

EVERY_PAIR_UP_TO = 8  # endpoints of a lane


def pairs_of_day(endpoints: Sequence[PlacedEndpoint], day: int, uplink_tokens: int) -> list[Pair]:
    """The directed pairs to test on ``day`` (an ordinal, as of ``date.toordinal``)."""
    found: list[Pair] = []
    for lane_endpoints in lanes(endpoints).values():
        if len(lane_endpoints) <= EVERY_PAIR_UP_TO:
            found += every_pair(lane_endpoints, uplink_tokens)
        else:
            found += rack_pairs(lane_endpoints, day)
    return found


def every_pair(endpoints: Sequence[PlacedEndpoint], uplink_tokens: int) -> list[Pair]:
    """All ordered pairs of the endpoints of one lane."""
    by_rack = list(racks(endpoints).values())
    one_site = len({endpoint.site for endpoint in endpoints}) == 1
    if one_site and (len(by_rack) == 1 or max(map(len, by_rack)) <= uplink_tokens):
        return list(_both_ways((a, b) for together in circle(endpoints) for a, b in together))
    found: list[Pair] = []
    for turn, together in enumerate(circle(by_rack)):
        for rack_a, rack_b in together:
            outward = _latin_square(_in_turn(rack_a, 2 * turn), _in_turn(rack_b, 2 * turn))
            homeward = _latin_square(_in_turn(rack_b, 2 * turn + 1), _in_turn(rack_a, 2 * turn + 1))
            found += [*_pairs(outward), *_pairs(homeward)]
    # These hold no uplink and fill what is free beside the others.
    for rack in by_rack:
        found += _both_ways((a, b) for together in circle(rack) for a, b in together)
    return found


def rack_pairs(endpoints: Sequence[PlacedEndpoint], day: int) -> list[Pair]:
    """One host pair for each two racks of a lane, and one round of pairs inside each rack; both directions."""
    by_rack = racks(endpoints)
    found: list[Pair] = []
    for together in circle(list(by_rack)):
        for a, b in together:
            of_a, of_b = by_rack[a], by_rack[b]
            # A turn of its own for each rack pair, else the first host of every rack would do all the work of day one.
            turn = int.from_bytes(sha256(repr((a, b)).encode()).digest()[:8], "big")
            combination = (day + turn) % (len(of_a) * len(of_b))
            first, second = _square_place(combination, len(of_a), len(of_b))
            found += _both_ways([(of_a[first], of_b[second])])
    for rack in by_rack.values():
        matchings = list(circle(rack))
        if matchings:
            found += _both_ways(matchings[day % len(matchings)])
    return found


def circle(things: Sequence[T]) -> Iterator[list[tuple[T, T]]]:
    """The rounds of a tournament in which each meets each once: n - 1 rounds for an even number of things, n for an odd
    one (each then sits out once)."""
    count = len(things)
    if count < 2:
        return
    ring = list(range(count + count % 2))
    for _ in range(len(ring) - 1):
        matches = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        yield [(things[a], things[b]) for a, b in matches if a < count and b < count]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def _square_place(number: int, size_a: int, size_b: int) -> tuple[int, int]:
    """The ``number``-th cell of a size_a × size_b table; neighbours in this order share neither row nor column."""
    if size_a < size_b:
        b, a = _square_place(number, size_b, size_a)
        return a, b
    turn, a = divmod(number, size_a)
    return a, (a + turn) % size_b


def _in_turn(rack: Sequence[PlacedEndpoint], turn: int) -> Sequence[PlacedEndpoint]:
    """The hosts of a rack in another order each turn, with those side by side that meet in one round of a tournament:
    while some of them test across the uplink, others are free to test each other."""
    matchings = list(circle(rack))
    if not matchings:
        return rack
    paired = [host for match in matchings[turn % len(matchings)] for host in match]
    return paired + [host for host in rack if host not in paired]


def _latin_square(
    rack_a: Sequence[PlacedEndpoint], rack_b: Sequence[PlacedEndpoint]
) -> Iterator[tuple[PlacedEndpoint, PlacedEndpoint]]:
    for number in range(len(rack_a) * len(rack_b)):
        a, b = _square_place(number, len(rack_a), len(rack_b))
        yield rack_a[a], rack_b[b]


def _both_ways(matches: Iterable[tuple[PlacedEndpoint, PlacedEndpoint]]) -> Iterator[Pair]:
    """All matches in one direction, then all in the other."""
    kept = list(matches)
    return _pairs(kept + [(b, a) for a, b in kept])


def _pairs(matches: Iterable[tuple[PlacedEndpoint, PlacedEndpoint]]) -> Iterator[Pair]:
    for source, destination in matches:
        found = pair(source, destination)
        if found is not None:
            yield found
