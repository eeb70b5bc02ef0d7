"""Link degraded: a NIC's speed fell, or its link's errors rose. Pure.

Speed: it reads lower than the highest the NIC has held for a minute in the last day; a speed that nobody knows (link
down, virtual device) says nothing, neither way. It is clean once the speed is back.

Errors: checksum, symbol and forward-error-correction counters, and the link's going down, belong to cable and optics
and not to load. In ten minutes at least 10 errors, and more than ten times as many a second as over the day before; or
the link went down. Clean after ten minutes without.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from collector.model import Element, Flag, Incident

RULE = "link_degraded"
VERSION = 1
SECOND = 1_000_000_000
OVER_NS = 600 * SECOND
MIN_ERRORS = 10
FACTOR = 10.0
# Names of the vocabulary (bandwitness.counters) that speak of the link and not of what is sent over it.
LINK_ERRORS = frozenset({
    "crc_errors", "symbol_errors", "fec_uncorrectable", "link_faults", "rx_crc_errors", "rx_frame_errors",
    "tx_carrier_errors", "rdma_symbol_errors", "rdma_link_integrity_errors",
})  # fmt: skip
DOWNS = frozenset({"link_down_events", "rdma_link_downs"})


@dataclass(frozen=True, slots=True)
class Link:
    """One NIC's link at a time."""

    node: str
    nic: str
    time_ns: int
    speed_bps: int | None  # None: not known now
    best_bps: int | None  # highest that held for a minute in the last day
    errors: Mapping[str, int] = field(default_factory=dict)  # of the last ten minutes
    usual_per_s: float | None = None  # link errors a second over the day before; None: not known


def judge(links: Iterable[Link], find: Callable[[str, Element], Incident | None]) -> list[Flag]:
    """Flags of some NICs; ``find`` gives the open incident of a rule on an element."""
    flags = []
    for link in links:
        element = Element("endpoint", f"{link.node}/{link.nic}")
        values = _speed(link) | _errors(link)
        if values:
            keys = (("speed", "speed_bps"), ("errors", "errors"), ("down", "downs"))
            told = {**values, "broke": " ".join(name for name, key in keys if key in values)}
            flags.append(Flag(RULE, VERSION, element, link.time_ns, "warning", True, told))
        elif (known := find(RULE, element)) is not None and _is_clean(link, known):
            clean = {"clean_since_ns": link.time_ns}
            flags.append(Flag(RULE, VERSION, element, link.time_ns, known.severity, False, clean))
    return flags


def _is_clean(link: Link, known: Incident) -> bool:
    """No more errors than twice the usual, and where the speed had fallen, it is known to be back."""
    if "speed_bps" in known.values and link.speed_bps is None:
        return False
    usual = (link.usual_per_s or 0.0) * (OVER_NS / SECOND)
    return sum(link.errors.values()) <= 2 * usual


def _speed(link: Link) -> dict[str, float | int | str]:
    if link.speed_bps is None or link.best_bps is None or link.speed_bps >= link.best_bps:
        return {}
    return {"speed_bps": link.speed_bps, "baseline_speed_bps": link.best_bps}


def _errors(link: Link) -> dict[str, float | int | str]:
    found: dict[str, float | int | str] = {}
    downs = sum(count for name, count in link.errors.items() if name in DOWNS)
    if downs:
        found["downs"] = downs
    errors = {name: count for name, count in link.errors.items() if name in LINK_ERRORS and count}
    total = sum(errors.values())
    if total >= MIN_ERRORS and total > FACTOR * (link.usual_per_s or 0.0) * (OVER_NS / SECOND):
        found |= {
            "errors": total,
            "over_s": OVER_NS // SECOND,
            "counters": " ".join(sorted(errors)),
        }
        if link.usual_per_s is not None:
            found["baseline_errors_per_s"] = link.usual_per_s
    return found


def summary(where: str, values: Mapping[str, float | int | str]) -> str:
    """One line for people."""
    told = []
    if "speed_bps" in values:
        told.append(
            f"speed fell to {float(values['speed_bps']) / 1e9:g} Gbit/s from"
            f" {float(values['baseline_speed_bps']) / 1e9:g} Gbit/s"
        )
    if "downs" in values:
        told.append(f"the link went down {values['downs']} times")
    if "errors" in values:
        told.append(f"{values['errors']} errors in {values['over_s']} s ({values['counters']})")
    return f"Link at {where} is degraded: {'; '.join(told)}"
