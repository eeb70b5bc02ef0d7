"""STAMP between two endpoints over a stretch of time: what was lost, which way, and over which source ports."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from bandwitness.v1.record_pb2 import LOSS_DIRECTION_FORWARD, LOSS_DIRECTION_REVERSE, PROTOCOL_STAMP
from collector.model import PairLoss, PathRow, PortLoss
from collector.store import tables
from collector.store.rows import read_path, unsigned

Counted = tuple[int, int]  # packets in the loss ratio, of these lost


def pair_losses(connection: Connection, from_ns: int, to_ns: int) -> list[PairLoss]:
    """All pairs with a STAMP path, over the 10 s windows that start in ``[from, to)``."""
    paths, windows, losses = tables.paths, tables.round_trip_windows, tables.one_way_losses
    known = [
        read_path(dict(row))
        for row in connection.execute(select(paths).where(paths.c.protocol == PROTOCOL_STAMP)).mappings()
    ]
    of_stamp = select(paths.c.path_id).where(paths.c.protocol == PROTOCOL_STAMP)
    lost = windows.c.lost + windows.c.unreachable + windows.c.corrupt
    start, sent_at = windows.c.start_time_ns, losses.c.send_time_ns
    counted = {
        unsigned(path_id): (sent, gone)
        for path_id, sent, gone in connection.execute(
            select(windows.c.path_id, func.sum(windows.c.sent), func.sum(lost))
            .where(start >= from_ns, start < to_ns, windows.c.path_id.in_(of_stamp))
            .group_by(windows.c.path_id)
        )
    }
    directed = {
        (unsigned(path_id), direction): count
        for path_id, direction, count in connection.execute(
            select(losses.c.path_id, losses.c.direction, func.sum(losses.c.lost))
            .where(sent_at >= from_ns, sent_at < to_ns)
            .group_by(losses.c.path_id, losses.c.direction)
        )
    }
    return fold_pairs(known, counted, directed)


def fold_pairs(
    paths: Iterable[PathRow], counted: Mapping[int, Counted], directed: Mapping[tuple[int, int], int]
) -> list[PairLoss]:
    """Paths that differ only in their source port are one pair. Ports that sent nothing are left out. Pure.

    Args:
        paths: STAMP paths.
        counted: by path id.
        directed: lost packets by path id and LossDirection.
    """
    pairs: dict[tuple[Any, ...], list[PathRow]] = {}
    for path in paths:
        if path.destination is not None and counted.get(path.path_id, (0, 0))[0]:
            pairs.setdefault((path.source, path.destination), []).append(path)
    return [_pair(members, counted, directed) for members in pairs.values()]


def _pair(members: list[PathRow], counted: Mapping[int, Counted], directed: Mapping[tuple[int, int], int]) -> PairLoss:
    by_port: dict[int, PortLoss] = {}
    for path in members:  # paths of other Type-P over the same port add up
        sent, lost = counted[path.path_id]
        forward = directed.get((path.path_id, LOSS_DIRECTION_FORWARD), 0)
        reverse = directed.get((path.path_id, LOSS_DIRECTION_REVERSE), 0)
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
