"""Which signed records an incident's figures stand on. Pure.

Of loss: records that hold a lost packet of the paths it names. Of delay: with a round trip above their usual p99, as
the incident has it. Packets that verdicts leave out (a test of ours, and for delay a host in doubt) are no evidence.
"""

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from collector.analysis.rules import burst_contention, delay, link_degraded, loss
from collector.analysis.window import IS_LOST, IS_SENT, SECOND, WINDOW_NS
from collector.model import EvidenceRecord, Incident, NicSamples, RoundTripSamples

OF_PATHS = (loss.RULE, delay.RULE, burst_contention.RULE)
OF_NICS = (link_degraded.RULE,)
BEFORE_NS = 60 * SECOND  # what made an incident open, where its values do not say over how long
Span = tuple[int, int]


def span_of(incident: Incident) -> Span:
    """The time its figures are about: from what made it open to where it closed, or was judged last."""
    over = incident.values.get("over_s")
    before_ns = int(over) * SECOND if over is not None else BEFORE_NS
    end_ns = incident.closed_time_ns if incident.closed_time_ns is not None else incident.updated_time_ns
    return incident.opened_time_ns - before_ns, max(end_ns, incident.opened_time_ns)


def of_round_trips(
    incident: Incident, records: Iterable[RoundTripSamples], left_out: Collection[tuple[int, int]], span: Span
) -> Iterator[EvidenceRecord]:
    """Records with what speaks against the paths.

    Args:
        incident: of loss, delay or contention; its children are path ids.
        records: of the agents that measured.
        left_out: path id and start of windows that verdicts leave out.
        span: packets sent in ``[from, to)``.
    """
    children = np.array([int(child, 16) for child in incident.children], np.uint64)
    usual = incident.values.get("baseline_p99_ns")
    for samples in records:
        ids = np.repeat(np.asarray(samples.path_ids), np.asarray(samples.sample_counts))
        times, outcomes = np.asarray(samples.send_times_ns), np.asarray(samples.outcomes)
        chosen = np.isin(ids, children) & (times >= span[0]) & (times < span[1])
        if left_out:
            starts = (times[chosen] // WINDOW_NS * WINDOW_NS).tolist()
            pairs = zip(ids[chosen].tolist(), starts, strict=True)
            chosen[chosen] = [pair not in left_out for pair in pairs]
        delays = np.asarray(samples.round_trip_delays_ns)
        lost = chosen & IS_LOST[outcomes] if incident.rule != delay.RULE else np.zeros_like(chosen)
        slow = chosen & (delays > int(usual)) if usual is not None else np.zeros_like(chosen)
        bad = lost | slow
        if bad.any():
            with_delay = delays[chosen & (delays >= 0)]
            yield EvidenceRecord(
                source=samples.source,
                from_time_ns=int(times[bad].min()),
                to_time_ns=int(times[bad].max()),
                sent=int(np.count_nonzero(chosen & IS_SENT[outcomes])),
                lost=int(np.count_nonzero(chosen & IS_LOST[outcomes])),
                slow=int(np.count_nonzero(slow)) if usual is not None else None,
                delay_max_ns=int(with_delay.max()) if len(with_delay) else None,
            )


def of_counters(incident: Incident, records: Iterable[NicSamples], span: Span) -> Iterator[EvidenceRecord]:
    """Records that hold a read of the NIC the incident names."""
    for samples in records:
        times = np.asarray(samples.tick_times_ns)
        times = times[(times >= span[0]) & (times < span[1])]
        if incident.element.name == f"{samples.node}/{samples.nic}" and len(times):
            yield EvidenceRecord(samples.source, int(times.min()), int(times.max()))
