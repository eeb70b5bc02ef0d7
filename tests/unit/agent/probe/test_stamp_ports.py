"""Which source ports an hour has."""

import pytest

from agent.probe.stamp_ports import FIRST_FIXED, FIRST_ROTATING, HOUR_NS, LAST_ROTATING, MAX_PORTS, source_ports
from tests.fakes.clock import START_WALL_NS


@pytest.mark.parametrize(("count", "rotating"), [(1, 0), (4, 0), (16, 3), (32, 6), (64, 12)])
def test_four_fifths_stay_and_the_rest_changes_every_hour(count: int, rotating: int) -> None:
    hours = [source_ports(count, START_WALL_NS + hour * HOUR_NS) for hour in range(24)]
    for ports in hours:
        assert len(set(ports)) == count
        assert ports[: count - rotating] == tuple(range(FIRST_FIXED, FIRST_FIXED + count - rotating))
        assert all(FIRST_ROTATING <= port <= LAST_ROTATING for port in ports[count - rotating :])
    new = {ports[count - rotating :] for ports in hours}
    assert len(new) == (24 if rotating else 1)


def test_an_hour_has_the_same_ports_from_its_first_to_its_last_nanosecond() -> None:
    begin = START_WALL_NS // HOUR_NS * HOUR_NS
    assert source_ports(64, begin) == source_ports(64, begin + HOUR_NS - 1) != source_ports(64, begin + HOUR_NS)


def test_fixed_and_rotating_ports_never_meet() -> None:
    assert FIRST_FIXED + MAX_PORTS <= FIRST_ROTATING
