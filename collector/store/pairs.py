"""STAMP between two endpoints over a stretch of time: what was lost, which way, over which source ports, and how long
each way took."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from bandwitness.v1.record_pb2 import LOSS_DIRECTION_FORWARD, LOSS_DIRECTION_REVERSE, PROTOCOL_STAMP
from collector.model import PairLoss, PairOneWay, PathRow, PortLoss
from collector.store import spread, tables
from collector.store.rows import read_path, signed, unsigned

WINDOW_NS = 10_000_000_000
Counted = tuple[int, int]  # packets in the loss ratio, of these lost
# What a rule calls the ports of a pair that loses: ports, and [port, step of time] packets sent and lost.
PatternOf = Callable[[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]], str]
STEPS = 60  # into which the time is cut to see whether the same ports go on losing
MAX_ONE_WAY_WINDOWS = 100_000  # read for one answer, newest first
MAX_PATTERNS = 500  # pairs looked at closely for one answer, those that lost most first


@dataclass(slots=True)
class OneWaySums:
    """One-way delays of some paths and windows."""

    from_time_ns: int = 1 << 62
    samples: int = 0
    our_error_ns: int = 0
    their_error_ns: int = 0
    forward: list[bytes] = field(default_factory=list)
    reverse: list[bytes] = field(default_factory=list)


def pair_losses(connection: Connection, from_ns: int, to_ns: int, pattern_of: PatternOf) -> list[PairLoss]:
    """All pairs with a STAMP path, over the 10 s windows that start in ``[from, to)``."""
    paths, windows, losses = tables.paths, tables.round_trip_windows, tables.one_way_losses
    known = [
        read_path(dict(row))
        for row in connection.execute(select(paths).where(paths.c.protocol == PROTOCOL_STAMP)).mappings()
    ]
    of_stamp = select(paths.c.path_id).where(paths.c.protocol == PROTOCOL_STAMP)
    start, sent_at = windows.c.start_time_ns, losses.c.send_time_ns
    counted = {
        unsigned(path_id): (sent, gone)
        for path_id, sent, gone in connection.execute(
            select(windows.c.path_id, func.sum(windows.c.sent), func.sum(_LOST))
            .where(start >= from_ns, start < to_ns, windows.c.path_id.in_(of_stamp))
            .group_by(windows.c.path_id)
        )
    }
    directed = {
        (unsigned(path_id), direction): count
        for path_id, direction, count in connection.execute(
            # Only of windows that are closed: a gap is told of up to 10 s before the window that it began in.
            select(losses.c.path_id, losses.c.direction, func.sum(losses.c.lost))
            .join(windows, (windows.c.path_id == losses.c.path_id) & (start == sent_at - sent_at % WINDOW_NS))
            .where(sent_at >= from_ns, sent_at < to_ns + WINDOW_NS, start >= from_ns, start < to_ns)
            .group_by(losses.c.path_id, losses.c.direction)
        )
    }
    pairs = fold_pairs(known, counted, directed)
    members = members_of(known, counted)
    lossy = sorted((pair for pair in pairs if pair.lost), key=lambda pair: -pair.lost)
    patterns = {
        _key_of(pair): _pattern(connection, from_ns, to_ns, members[_key_of(pair)], pattern_of)
        for pair in lossy[:MAX_PATTERNS]
    }
    delays = _one_way(connection, from_ns, to_ns, known)
    return [
        replace(
            pair,
            pattern=patterns.get(_key_of(pair), "unclear") if pair.lost else "none",
            one_way=_told(delays.get(_key_of(pair))),
        )
        for pair in pairs
    ]


def members_of(paths: Iterable[PathRow], counted: Mapping[int, Counted]) -> dict[tuple[Any, ...], list[PathRow]]:
    """Paths that differ only in their source port are one pair. Ports that sent nothing are left out. Pure."""
    pairs: dict[tuple[Any, ...], list[PathRow]] = {}
    for path in paths:
        if path.destination is not None and counted.get(path.path_id, (0, 0))[0]:
            pairs.setdefault(_key(path), []).append(path)
    return pairs


def fold_pairs(
    paths: Iterable[PathRow], counted: Mapping[int, Counted], directed: Mapping[tuple[int, int], int]
) -> list[PairLoss]:
    """What each pair lost. Pure.

    Args:
        paths: STAMP paths.
        counted: by path id.
        directed: lost packets by path id and LossDirection.
    """
    return [_pair(members, counted, directed) for members in members_of(paths, counted).values()]


_LOST = tables.round_trip_windows.c.lost + tables.round_trip_windows.c.unreachable + tables.round_trip_windows.c.corrupt


def _key(path: PathRow) -> tuple[Any, ...]:
    assert path.destination is not None
    source, destination = path.source, path.destination
    return source.node, destination.node, source.lane, source.address, destination.address


def _key_of(pair: PairLoss) -> tuple[Any, ...]:
    return pair.src, pair.dst, pair.lane, pair.src_address, pair.dst_address


def _pattern(
    connection: Connection, from_ns: int, to_ns: int, members: Sequence[PathRow], pattern_of: PatternOf
) -> str:
    """Between the first and the last window in which the pair lost anything, cut into steps."""
    windows = tables.round_trip_windows
    start = windows.c.start_time_ns
    place = {signed(path.path_id): at for at, path in enumerate(members)}
    rows = connection.execute(
        select(windows.c.path_id, start, windows.c.sent, _LOST).where(
            start >= from_ns, start < to_ns, windows.c.path_id.in_(list(place))
        )
    ).all()
    lossy = [start_ns for _, start_ns, _, lost in rows if lost]
    if not lossy:
        return "none"
    first, span = min(lossy), max(lossy) + 1 - min(lossy)
    sent_by, lost_by = (np.zeros((len(members), STEPS)) for _ in range(2))
    for path_id, start_ns, sent, lost in rows:
        step = (start_ns - first) * STEPS // span
        if 0 <= step < STEPS:
            sent_by[place[path_id], step] += sent
            lost_by[place[path_id], step] += lost
    return pattern_of(np.array([path.source_port for path in members], np.int64), sent_by, lost_by)


def _one_way(
    connection: Connection, from_ns: int, to_ns: int, paths: Iterable[PathRow]
) -> dict[tuple[Any, ...], OneWaySums]:
    """By pair: one-way delays of the newest windows."""
    keys = {path.path_id: _key(path) for path in paths if path.destination is not None}
    delays = tables.one_way_delays
    start = delays.c.start_time_ns
    rows = connection.execute(
        select(delays).where(start >= from_ns, start < to_ns).order_by(start.desc()).limit(MAX_ONE_WAY_WINDOWS)
    )
    found: dict[tuple[Any, ...], OneWaySums] = {}
    for row in rows:
        key = keys.get(unsigned(row.path_id))
        if key is None:
            continue
        sums = found.setdefault(key, OneWaySums())
        sums.from_time_ns = min(sums.from_time_ns, row.start_time_ns)
        sums.samples += row.samples
        sums.our_error_ns = max(sums.our_error_ns, row.sender_clock_error_ns)
        sums.their_error_ns = max(sums.their_error_ns, row.reflector_clock_error_ns)
        sums.forward.append(row.forward_histogram)
        sums.reverse.append(row.reverse_histogram)
    return found


def _told(sums: OneWaySums | None) -> PairOneWay | None:
    if sums is None:
        return None
    forward, reverse = spread.unpack(sums.forward), spread.unpack(sums.reverse)
    there, there_slow, back, back_slow = (
        spread.quantile(way, percent) or 0 for way in (forward, reverse) for percent in (50, 99)
    )
    bound_ns = sums.our_error_ns + sums.their_error_ns
    return PairOneWay(
        from_time_ns=sums.from_time_ns,
        samples=sums.samples,
        sender_clock_error_ns=sums.our_error_ns,
        reflector_clock_error_ns=sums.their_error_ns,
        clock_error_ns=bound_ns,
        forward_delay_p50_ns=there,
        forward_delay_p99_ns=there_slow,
        forward_known=there > bound_ns,
        reverse_delay_p50_ns=back,
        reverse_delay_p99_ns=back_slow,
        reverse_known=back > bound_ns,
    )


def _within(lost: int, forward: int, reverse: int) -> tuple[int, int]:
    """Both directions, together no more than what was lost: a gap that began in the last window may go on behind it,
    and then part of it was lost later. Which part is not known, so each direction keeps its share."""
    told = forward + reverse
    return (forward, reverse) if told <= lost else (forward * lost // told, reverse * lost // told)


def _pair(members: list[PathRow], counted: Mapping[int, Counted], directed: Mapping[tuple[int, int], int]) -> PairLoss:
    by_port: dict[int, PortLoss] = {}
    for path in members:  # paths of other Type-P over the same port add up
        sent, lost = counted[path.path_id]
        forward, reverse = _within(
            lost,
            directed.get((path.path_id, LOSS_DIRECTION_FORWARD), 0),
            directed.get((path.path_id, LOSS_DIRECTION_REVERSE), 0),
        )
        known = by_port.get(path.source_port, PortLoss(path.source_port, 0, 0, 0, 0))
        by_port[path.source_port] = PortLoss(
            path.source_port,
            known.sent + sent,
            known.lost + lost,
            known.forward_lost + forward,
            known.reverse_lost + reverse,
        )
    ports = [by_port[port] for port in sorted(by_port)]
    sent, lost, forward, reverse = (
        sum(getattr(port, name) for port in ports) for name in ("sent", "lost", "forward_lost", "reverse_lost")
    )
    source, destination = members[0].source, members[0].destination
    assert destination is not None
    return PairLoss(
        src=source.node,
        dst=destination.node,
        lane=source.lane,
        src_address=source.address,
        dst_address=destination.address,
        sent=sent,
        lost=lost,
        loss_ratio=lost / sent,
        forward_lost=forward,
        reverse_lost=reverse,
        either_lost=max(0, lost - forward - reverse),
        ports=ports,
    )
