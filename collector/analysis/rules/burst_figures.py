"""A burst as the rule of contention sees it, figures of NICs and of the burst itself, and words for them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collector.analysis import statistics
from collector.config import BurstContentionRule
from collector.model import Element

SECOND = 1_000_000_000
USUAL_TIMES = 3.0  # a NIC's figure counts only if it is that much above its own quiet hour
MIN_NODES = 3  # for a median of write rates
MIN_EARLIER = 3  # bursts, for a usual length
Values = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class InBurst:
    """One burst as the rule sees it: a cluster burst, or one node's that belongs to none."""

    burst_id: str
    kind: str  # save, restore
    lane: str
    start_time_ns: int
    end_time_ns: int | None  # None while it is open
    marked: bool
    nics: frozenset[str]  # node/NIC of its members
    members: frozenset[str] = frozenset()  # burst ids of a cluster burst's single ones
    job: str = ""
    step: int | None = None
    element: Element | None = None  # the rack or node that writes; None: the first of its nodes
    rates_bps: Mapping[str, float] = field(default_factory=dict)  # mean rate by node
    usual_length_ns: int | None = None  # median of earlier ones of the same job or rack
    earlier: int = 0  # how many these were

    @property
    def during(self) -> str:
        """Label of incidents that start inside it."""
        return "checkpoint" if self.marked else "burst"

    @property
    def nodes(self) -> list[str]:
        return sorted({nic.split("/")[0] for nic in self.nics})


@dataclass(frozen=True, slots=True)
class NicFigure:
    """One figure of a NIC (or of a node's TCP, with an empty NIC) inside the burst so far."""

    node: str
    nic: str
    what: str  # retransmit_ratio, pause_ratio, rx_discards, tx_discards
    value: float
    baseline: float | None  # quiet hour; None where it is not known
    before: float | None  # in the minute before the burst
    samples: int  # N behind the value: segments, milliseconds, seconds


def of_burst(burst: InBurst) -> Values:
    told: Values = {
        "burst_id": burst.burst_id,
        "during": burst.during,
        "burst_kind": burst.kind,
        "burst_lane": burst.lane,
        "burst_start_ns": burst.start_time_ns,
        "burst_by": "marked" if burst.marked else "inferred",
    }
    if burst.job:
        told["job"] = burst.job
    if burst.step is not None:
        told["step"] = burst.step
    return told


def beyond(
    burst: InBurst, figures: Sequence[NicFigure], time_ns: int, rule: BurstContentionRule
) -> list[tuple[Element, str, Values]]:
    """What else broke: where, which node, and the figures."""
    found: list[tuple[Element, str, Values]] = []
    limits = {"retransmit_ratio": rule.retransmit_ratio, "pause_ratio": rule.pause_ratio}
    for figure in figures:
        least = max(limits.get(figure.what, 0.0), USUAL_TIMES * (figure.baseline or 0.0))
        least = max(least, USUAL_TIMES * (figure.before or 0.0))  # it was so before the burst
        if figure.value > least:
            element = Element("endpoint", f"{figure.node}/{figure.nic}") if figure.nic else Element("node", figure.node)
            values: Values = {figure.what: figure.value, f"{figure.what}_n": figure.samples}
            if figure.baseline is not None:
                values[f"baseline_{figure.what}"] = figure.baseline
            found.append((element, figure.node, values))
    rates = burst.rates_bps
    middle = statistics.median(list(rates.values()))
    if burst.end_time_ns is not None and middle and len(rates) >= MIN_NODES:
        for node, rate in sorted(rates.items()):
            if rate < rule.write_ratio * middle:
                told: Values = {"write_bps": rate, "baseline_write_bps": middle, "write_n": len(rates)}
                found.append((Element("node", node), node, told))
    end = time_ns if burst.end_time_ns is None else burst.end_time_ns
    if burst.usual_length_ns and burst.earlier >= MIN_EARLIER:
        length = end - burst.start_time_ns
        if length > rule.length_factor * burst.usual_length_ns:
            found.append((burst.element or Element("node", burst.nodes[0]), "", {
                "length_s": round(length / SECOND, 3),
                "baseline_length_s": round(burst.usual_length_ns / SECOND, 3),
                "length_n": burst.earlier,
            }))  # fmt: skip
    return found


NAMES = {
    "retransmit_ratio": "retransmits",
    "pause_ratio": "pause",
    "rx_discards": "discards",
    "tx_discards": "discards",
    "write_bps": "write_rate",
    "length_s": "length",
}


def broke(values: Mapping[str, float | int | str]) -> list[str]:
    return sorted({name for key, name in NAMES.items() if key in values})


def summary(where: str, values: Mapping[str, float | int | str]) -> str:
    """One line for people: which burst, what broke, on how many samples."""
    told = []
    if "loss_ratio" in values:
        told.append(
            f"{float(values['loss_ratio']):.2%} of round trips lost ({values['lost']} of {values['sent']},"
            f" usually {float(values['baseline_loss_ratio']):.2%})"
        )
    if "slow_ratio" in values:
        told.append(
            f"p99 {float(values['delay_p99_ns']) / 1e6:.2f} ms, usually {float(values['baseline_p99_ns']) / 1e6:.2f} ms"
            f" ({values['slow']} of {values['samples']} slow)"
        )
    for key, name in (("retransmit_ratio", "segments sent again"), ("pause_ratio", "of the time paused")):
        if key in values:
            usual = values.get(f"baseline_{key}")
            told.append(
                f"{float(values[key]):.2%} {name}"
                + (f", usually {float(usual):.2%}" if usual is not None else "")
                + f" (N {values[f'{key}_n']})"
            )
    discards = int(values.get("rx_discards", 0)) + int(values.get("tx_discards", 0))
    if discards:
        told.append(f"{discards} packets discarded at {values.get('discards_node', '')}")
    if "write_bps" in values:
        told.append(
            f"{values['write_rate_node']} writes {float(values['write_bps']) / 1e6:.0f} Mbit/s, the middle of"
            f" {values['write_n']} nodes {float(values['baseline_write_bps']) / 1e6:.0f} Mbit/s"
        )
    if "length_s" in values:
        told.append(
            f"it takes {float(values['length_s']):.0f} s, usually {float(values['baseline_length_s']):.0f} s"
            f" (of {values['length_n']} before)"
        )
    of_job = f" of {values['job']}" if values.get("job") else ""
    step = f", step {values['step']}" if "step" in values else ""
    shared = f"; lanes share a way: {values['shared_lanes']}" if values.get("shared_lanes") else ""
    what = "Checkpoint" if values["burst_by"] == "marked" else "Burst"
    return (
        f"{what} {str(values['burst_id'])[:12]}{of_job}{step} ({values['burst_by']}, {values['burst_kind']} on"
        f" {values['burst_lane']}) hurts {where}: {'; '.join(told)}{shared}"
    )
