"""Decoded counter records, one line each."""

from collections.abc import Mapping, Sequence

import numpy as np

from bandwitness.v1.record_pb2 import BATCH_CLASS_TELEMETRY, COUNTER_SOURCE_NETDEV
from collector.model import NicSamples, Source

SECOND = 1_000_000_000
T0 = 1_767_225_600 * SECOND


def record(
    counters: Mapping[str, Sequence[int | None]],
    *,
    at: Sequence[int] | None = None,
    start_s: float = 0,
    interval_ns: int = SECOND,
    source: int = COUNTER_SOURCE_NETDEV,
    nic: str = "eth0",
    speed_bps: int | None = 10**10,
    driver: str = "",
    coverage: Sequence[str] = (),
    link_layer: str = "",
    position: int = 1,
) -> NicSamples:
    """Counters by name, one value a tick (None: missed). ``at``: wall times, or one every interval from ``start_s``."""
    ticks = max((len(row) for row in counters.values()), default=0)
    times = list(at) if at is not None else [T0 + int(start_s * SECOND) + tick * interval_ns for tick in range(ticks)]
    rows = [[0 if value is None else value for value in row] for row in counters.values()]
    seen = [[value is not None for value in row] for row in counters.values()]
    return NicSamples(
        source=Source("n1", bytes(16), BATCH_CLASS_TELEMETRY, position, 0, position),
        node="n1",
        nic=nic,
        counters=tuple(counters),
        tick_times_ns=np.array(times, np.int64),
        values=np.array(rows, np.uint64).reshape(len(counters), ticks),
        present=np.array(seen, np.bool_).reshape(len(counters), ticks),
        speed_bps=speed_bps,
        mtu_bytes=1500,
        carrier=True,
        fault="",
        counter_source=source,
        driver=driver,
        coverage=tuple(coverage),
        interval_ns=interval_ns,
        link_layer=link_layer,
    )
