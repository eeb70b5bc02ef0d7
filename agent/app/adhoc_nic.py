"""``bandwitness-agent probe nic``: what NICs carry and what goes wrong with them, now, as a table that goes on.

What a row says is decided by pure functions of two reads; the differences are those of a live look (a counter that
fell says nothing), the collector judges the whole series.
"""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from agent.app.adhoc import UsageError, print_json
from agent.clock import Clock, SystemClock
from agent.result import NicBatch
from agent.sample.device import Identify, kernel_identity
from agent.sample.ethtool import Ioctl, kernel_ioctl
from agent.sample.nic import MAX_NICS, NicSampler
from bandwitness.counters import Meaning, ethtool, netdev, rdma
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL, COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_RDMA

SECOND_NS = 1_000_000_000
_TITLES = ("NIC", "RECEIVE", "SEND", "PEAK RX", "PEAK TX", "USE", "RDMA", "ERRORS", "PAUSED", "REMARKS")


@dataclass(slots=True)
class Sums:
    """One NIC's counters at one read, in our words."""

    time_ns: int = 0
    octets: dict[tuple[int, str], int] = field(default_factory=dict)  # source, name -> bytes
    errors: dict[str, int] = field(default_factory=dict)
    pauses: dict[str, int] = field(default_factory=dict)  # counter -> µs in which the port was not allowed to send


@dataclass(frozen=True, slots=True)
class Row:
    """One NIC over one interval. Rates in bits a second; ``None``: not known."""

    nic: str
    kind: str
    driver: str
    speed_bps: int | None
    receive_bps: float | None
    transmit_bps: float | None
    receive_peak_bps: float | None
    transmit_peak_bps: float | None
    use_ratio: float | None  # of the speed, busier direction
    rdma_ratio: float | None  # of all octets
    errors: Mapping[str, int]  # that rose in the interval
    pause_ratio: float | None
    coverage: Sequence[str]
    sources: Sequence[str]  # that can be read
    fault: str


def meaning(batch: NicBatch, name: str) -> Meaning | None:
    """A counter in our words."""
    if batch.source == COUNTER_SOURCE_NETDEV:
        return netdev(name)
    return rdma(name) if batch.source == COUNTER_SOURCE_RDMA else ethtool(batch.driver, name)


def sums(batches: Sequence[NicBatch]) -> Sums:
    """Newest values of all sources of one NIC. Pure."""
    found = Sums()
    for batch in batches:
        for name, row in zip(batch.counters, batch.values, strict=True):
            words, value = meaning(batch, name), row[-1]
            if words is None or value is None or words.gauge:
                continue
            if batch.source == COUNTER_SOURCE_NETDEV:
                found.time_ns = batch.tick_times_ns[-1]
            if words.unit == "bytes":
                key = batch.source, words.name
                found.octets[key] = found.octets.get(key, 0) + value * words.scale
            elif words.error:
                found.errors[words.name] = found.errors.get(words.name, 0) + value
            elif words.name == "receive_pause_us":
                found.pauses[name] = value
    return found


def octets(before: Sums, now: Sums, direction: str) -> tuple[int | None, int | None]:
    """Bytes of all, and of RDMA alone, in ``receive`` or ``transmit``. Pure."""

    def rise(source: int, name: str) -> int | None:
        first, last = before.octets.get((source, name)), now.octets.get((source, name))
        return None if first is None or last is None or last < first else last - first

    name = f"rdma_{direction}_bytes"
    by_rdma = rise(COUNTER_SOURCE_RDMA, name)
    by_rdma = rise(COUNTER_SOURCE_ETHTOOL, name) if by_rdma is None else by_rdma
    wire = rise(COUNTER_SOURCE_ETHTOOL, f"wire_{direction}_bytes")
    host = rise(COUNTER_SOURCE_NETDEV, "rx_bytes" if direction == "receive" else "tx_bytes")
    if wire is None and host is not None:
        wire = host + (by_rdma or 0)
    return wire, by_rdma


class Table:
    """What was seen of each NIC: the read before, and the highest rates so far."""

    def __init__(self) -> None:
        self._before: dict[str, Sums] = {}
        self._peaks: dict[str, list[float | None]] = {}

    def row(self, batches: Sequence[NicBatch], sources: Sequence[str]) -> Row:
        """A NIC's row from the batches of its newest read; without rates at the first."""
        first, nic = batches[0], batches[0].nic
        now, before = sums(batches), self._before.get(nic)
        self._before[nic] = now
        rates: list[float | None] = [None, None]
        share = pause = None
        errors: dict[str, int] = {}
        if before is not None and now.time_ns > before.time_ns:
            span_ns = now.time_ns - before.time_ns
            both = [octets(before, now, direction) for direction in ("receive", "transmit")]
            rates = [None if all_of is None else all_of * 8 * SECOND_NS / span_ns for all_of, _ in both]
            by_rdma = [part for _, part in both if part is not None]
            total = sum(all_of or 0 for all_of, _ in both)
            share = min(1.0, sum(by_rdma) / total) if by_rdma and total else None
            errors = {
                name: count - before.errors[name]
                for name, count in now.errors.items()
                if count > before.errors.get(name, count)
            }
            shares = [
                min(1.0, (us - before.pauses[name]) * 1_000 / span_ns)
                for name, us in now.pauses.items()
                if us >= before.pauses.get(name, us + 1)
            ]
            pause = max(shares, default=None)
        peaks = self._peaks.setdefault(nic, [None, None])
        for place, rate in enumerate(rates):
            if rate is not None:
                peaks[place] = max(rate, peaks[place] or 0.0)
        busiest = max((rate for rate in rates if rate is not None), default=None)
        return Row(
            nic=nic,
            kind=first.kind,
            driver=first.driver,
            speed_bps=first.speed_bps,
            receive_bps=rates[0],
            transmit_bps=rates[1],
            receive_peak_bps=peaks[0],
            transmit_peak_bps=peaks[1],
            use_ratio=None if busiest is None or not first.speed_bps else busiest / first.speed_bps,
            rdma_ratio=share,
            errors=errors,
            pause_ratio=pause,
            coverage=first.coverage,
            sources=sources,
            fault=next((batch.fault for batch in batches if batch.fault), ""),
        )


def shown_rate(bps: float | None) -> str:
    """A rate for people; ``-`` where there is none."""
    if bps is None:
        return "-"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bps >= size:
            return f"{bps / size:.3g} {unit}bit/s" if bps < size * 999.5 else f"{bps / size:.0f} {unit}bit/s"
    return f"{bps:.0f} bit/s"


def shown_ratio(ratio: float | None) -> str:
    """A share for people."""
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def lines(rows: Sequence[Row]) -> list[str]:
    """The table. Pure."""
    cells = [_TITLES] + [
        (
            row.nic, shown_rate(row.receive_bps), shown_rate(row.transmit_bps), shown_rate(row.receive_peak_bps),
            shown_rate(row.transmit_peak_bps), shown_ratio(row.use_ratio), shown_ratio(row.rdma_ratio),
            "-" if row.fault else str(sum(row.errors.values())), shown_ratio(row.pause_ratio), _remarks(row),
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[place]) for line in cells) for place in range(len(_TITLES))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _remarks(row: Row) -> str:
    found = [row.fault] if row.fault else []
    if row.coverage:
        found.append(f"coverage partial: {', '.join(row.coverage)}")
    found += [f"{name} +{count}" for name, count in sorted(row.errors.items())]
    return "; ".join(found)


def names_of(root: Path) -> list[str]:
    """NICs worth a look when none is asked for: all but the loopback.

    Raises:
        UsageError: there is none.
    """
    try:
        found = sorted(entry.name for entry in (root / "sys/class/net").iterdir() if (entry / "statistics").is_dir())
    except OSError:
        found = []
    found = [name for name in found if name != "lo"]
    ports = [name for name in found if (root / "sys/class/net" / name / "device").exists()]
    found = (ports + [name for name in found if name not in ports])[:MAX_NICS]
    if not found:
        raise UsageError("no network device but the loopback in this network namespace")
    return found


async def nic(
    asked: Sequence[str],
    out: TextIO,
    *,
    count: int | None,
    interval_ns: int,
    as_json: bool,
    root: Path = Path("/"),
    clock: Clock | None = None,
    identify: Identify | None = kernel_identity,
    ask: Ioctl | None = kernel_ioctl,
) -> int:
    """Looks ``count`` times (None: until interrupted); exit code 0 when every NIC asked for could be read.

    Raises:
        UsageError: no NIC at all, or one asked for is not there.
    """
    clock = clock or SystemClock()
    names = list(dict.fromkeys(asked)) or names_of(root)
    for name in names:
        if not (root / "sys/class/net" / name).exists():
            raise UsageError(f"no network device {name} in this network namespace; 'ip link' lists them")
    sampler = NicSampler(root, clock, identify=identify, ethtool=ask, of_host=())
    sampler.configure(names, interval_ns)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    table = Table()
    rows: list[Row] = []
    look = 0
    next_ns = clock.monotonic_ns()
    try:
        while count is None or look <= count:  # the first read shows no rates yet
            await clock.sleep_until(next_ns)
            if stop.is_set():
                break
            rows = _look(sampler, table)
            if look and as_json:
                print_json({"time_ns": clock.wall_ns(), "nics": [asdict(row) for row in rows]}, out)
            elif look:
                print("\n".join(lines(rows)), end="\n\n", file=out, flush=True)
            look += 1
            next_ns += interval_ns
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        sampler.close()
    return 0 if rows and not any(row.fault for row in rows) else 1


def _look(sampler: NicSampler, table: Table) -> list[Row]:
    sampler.tick()
    sampler.ask_drivers(again=True)
    by_nic: dict[str, list[NicBatch]] = {}
    for batch in sampler.drain():
        by_nic.setdefault(batch.nic, []).append(batch)
    found = []
    for name, batches in by_nic.items():
        unit = sampler.units[name]
        sources = ["netdev"] + ["rdma"] * bool(unit.rdma)
        if unit.statistics is not None and unit.statistics.supported:
            sources.append("ethtool")
        found.append(table.row(batches, sources))
    return found
