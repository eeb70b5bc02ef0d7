"""Figures of ``measure`` and ``rules`` that are out of bounds or contradict each other. Pure."""

from collections.abc import Iterator

from bandwitness.settings import Duration, Place
from collector.config.schema import DAY_S, SECOND, Measure, Rules, TargetConfig, Throughput

MS = SECOND // 1000
MINUTE = 60 * SECOND
DAY = DAY_S * SECOND
MAX_DURATION = 10 * SECOND
MAX_UDP_RATE_BPS = 10_000_000_000  # the agents' own limit
MAX_TESTS_A_DAY = 12  # of a pair in one direction
INTERVAL = (20 * MS, 3600 * SECOND)  # of one path
WAITING_TIME = (10 * MS, 10 * SECOND)
SOURCE_PORTS = (61_000, 62_063)  # of STAMP probes
Faults = Iterator[tuple[Place, str]]
Bound = tuple[Place, "int | None", int, int]  # value, at least, at most; ns

_UNITS = ((DAY, "d"), (3600 * SECOND, "h"), (MINUTE, "m"), (SECOND, "s"), (MS, "ms"), (1000, "us"), (1, "ns"))


def shown(duration_ns: int) -> str:
    """``90000000000`` as ``90s``: in the largest unit that leaves no fraction."""
    return next(
        (f"{duration_ns // unit}{name}" for unit, name in _UNITS if duration_ns and duration_ns % unit == 0), "0s"
    )


def measure_faults(measure: Measure) -> Faults:
    """(place, message) of what is wrong with ``measure``."""
    echo, throughput = measure.echo, measure.throughput
    yield from _bounds(
        # Agents hold what is measured for 8 s at most; a slower flush would lose turns.
        (("measure", "flush"), measure.flush, 100 * MS, 5 * SECOND),
        (("measure", "plan_expiry"), measure.plan_expiry, MINUTE, 7 * DAY),
        (("measure", "counters", "interval"), measure.counters.interval, 100 * MS, MINUTE),
        (("measure", "counters", "burst_interval"), measure.counters.burst_interval, 100 * MS, MINUTE),
        (("measure", "echo", "interval"), echo.interval, *INTERVAL),
        (("measure", "echo", "waiting_time"), echo.waiting_time, *WAITING_TIME),
        (("measure", "echo", "waiting_time_across_sites"), echo.waiting_time_across_sites, *WAITING_TIME),
        (("measure", "path_mtu", "interval"), measure.path_mtu.interval, MINUTE, 7 * DAY),
        (("measure", "stamp", "interval"), measure.stamp.interval, *INTERVAL),
        # The cap on the harm one test may do.
        (("measure", "throughput", "duration"), throughput.duration, SECOND, MAX_DURATION),
        (("measure", "throughput", "omit"), throughput.omit, 0, 10 * SECOND),
        (("measure", "throughput", "margin"), throughput.margin, 100 * MS, MINUTE),
        (("measure", "throughput", "slot"), throughput.slot, SECOND, 3600 * SECOND),
        (("measure", "throughput", "offline_test_grace"), throughput.offline_test_grace, 0, 7 * DAY),
    )
    yield from _throughput(throughput)
    if SOURCE_PORTS[0] <= measure.stamp.port <= SOURCE_PORTS[1]:
        expected = f"expected a port outside of {SOURCE_PORTS[0]} to {SOURCE_PORTS[1]}, which probes are sent from"
        yield ("measure", "stamp", "port"), f"{expected}, found {measure.stamp.port}"


def target_bounds(place: Place, target: TargetConfig) -> Faults:
    """(place, message) of a target's own times that are out of bounds; the agents refuse them too."""
    yield from _bounds(
        ((*place, "interval"), target.interval, *INTERVAL),
        ((*place, "waiting_time"), target.waiting_time, *WAITING_TIME),
    )


def _throughput(throughput: Throughput) -> Faults:
    place = ("measure", "throughput")
    for name, value in (("duration", throughput.duration), ("omit", throughput.omit)):
        if value % SECOND:
            yield (*place, name), f"expected whole seconds (iperf3 takes no others), found {shown(value)}"
    if throughput.udp_rate is not None and not 0 < throughput.udp_rate <= MAX_UDP_RATE_BPS:
        found = f"expected at most 10G, because UDP yields to nobody, found {throughput.udp_rate} bit/s"
        yield (*place, "udp_rate"), found
    tests = 2 * throughput.planned + throughput.around_the_clock
    if tests > MAX_TESTS_A_DAY:
        words = f"expected at most {MAX_TESTS_A_DAY} tests of a pair a day and direction, found 2 × planned "
        words += f"{throughput.planned} + around_the_clock {throughput.around_the_clock} = {tests}"
        yield (*place, "planned"), words
    if throughput.slot is not None and throughput.slot < throughput.hold_ns:
        parts = f"duration {shown(throughput.duration)} + omit {shown(throughput.omit)}"
        parts += f" + 2 × margin {shown(throughput.margin)}"
        found = f"expected at least {shown(throughput.hold_ns)} ({parts}), found {shown(throughput.slot)}"
        yield (*place, "slot"), found


def rules_faults(rules: Rules, measure: Measure) -> Faults:
    """(place, message) of what is wrong with ``rules``."""
    loss, delay, swing = rules.loss, rules.delay, rules.oversubscription
    yield from _bounds(
        (("rules", "oversubscription", "trailing"), swing.trailing, MINUTE, 90 * DAY),
        (("rules", "loss", "critical", "over"), loss.critical.over, SECOND, DAY),
        (("rules", "loss", "warning", "over"), loss.warning.over, SECOND, DAY),
        (("rules", "delay", "baseline"), delay.baseline, SECOND, 7 * DAY),
        (("rules", "delay", "over"), delay.over, SECOND, DAY),
        (("rules", "agent_silent", "after"), rules.agent_silent.after, SECOND, DAY),
    )
    if swing.clear >= swing.threshold:
        # At the key that was written: the other one may be a default that stands in no line.
        yield (
            ("rules", "oversubscription", "clear"),
            f"expected less than threshold ({swing.threshold:g}), else it would flap, found {swing.clear:g}",
        )
    if None not in (loss.warning.ratio, loss.critical.ratio) and loss.warning.ratio > loss.critical.ratio:
        yield (
            ("rules", "loss", "warning", "ratio"),
            f"expected at most the ratio of critical ({loss.critical.ratio:g}), found {loss.warning.ratio:g}",
        )
    if rules.agent_silent.after <= 2 * measure.flush:
        yield (
            ("rules", "agent_silent", "after"),
            f"expected more than two flushes ({shown(2 * measure.flush)}), found {shown(rules.agent_silent.after)}",
        )
    if delay.baseline <= delay.over:
        yield (
            ("rules", "delay", "baseline"),
            f"expected more than over ({shown(delay.over)}), found {shown(delay.baseline)}",
        )


def _bounds(*bounds: "tuple[Place, Duration | None, int, int]") -> Faults:
    for place, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            yield place, f"expected {shown(least)} to {shown(most)}, found {shown(value)}"
