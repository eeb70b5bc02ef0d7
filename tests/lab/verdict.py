"""What the collector's API says at the end of an evening, and whether that is what the lab was built to show. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.topology import Topology

Item = Mapping[str, Any]
RULE = "oversubscription"


def oversold_paths(topology: Topology) -> set[tuple[str, str]]:
    """(source, destination) of every path across the uplink that a tenant shares. The lab's own knowledge: for the
    final check only."""
    if topology.tenant is None:
        return set()
    return {
        (source.name, destination.name)
        for source in topology.hosts
        for destination in topology.hosts
        if source.rack != destination.rack and topology.tenant.rack in (source.rack, destination.rack)
    }


def all_paths(topology: Topology) -> set[tuple[str, str]]:
    return {(a.name, b.name) for a in topology.hosts for b in topology.hosts if a != b}


def is_the_tenants_doing(slot: Item, topology: Topology) -> bool:
    """A test that did not end in time beside the tenant: retransmissions in the queue they share. A failure that is
    recorded as one, and no fault of ours."""
    ends = (slot["client"]["node"], slot["server"]["node"])
    return slot["window"] == "peak" and slot["outcome"] == "timeout" and ends in oversold_paths(topology)


def document(paths: Sequence[Item], incidents: Sequence[Item], elapsed_s: float) -> dict[str, Any]:
    """The final table as the demo's ``--json`` writes it."""
    figures = ("offpeak_bps", "peak_bps", "swing_ratio", "flagged", "tests_offpeak", "tests_peak")
    return {
        "paths": [
            {"src": path["src"], "dst": path["dst"], **{name: path["throughput"][name] for name in figures}}
            for path in paths
        ],
        "incidents": [dict(incident) for incident in incidents],
        "elapsed_s": round(elapsed_s, 1),
    }


def faults(paths: Sequence[Item], incidents: Sequence[Item], topology: Topology) -> list[str]:
    """What is not as the lab was built, in plain sentences; empty when the verdict is right.

    Args:
        paths: items as ``document`` makes them.
        incidents: the API's items.
        topology: what was built.
    """
    found = {(path["src"], path["dst"]): path for path in paths}
    wanted = oversold_paths(topology)
    lines = [f"{a} → {b}: the collector has no throughput path" for a, b in sorted(all_paths(topology) - set(found))]
    for (a, b), path in sorted(found.items()):
        tests = f"{path['tests_offpeak']} off-peak and {path['tests_peak']} peak tests"
        if path["swing_ratio"] is None:
            lines.append(f"{a} → {b}: no verdict from {tests}")
        elif path["flagged"] and (a, b) not in wanted:
            lines.append(f"{a} → {b}: flagged with a swing of {path['swing_ratio']:.0%}, but no tenant shares its way")
        elif not path["flagged"] and (a, b) in wanted:
            lines.append(
                f"{a} → {b}: not flagged with a swing of {path['swing_ratio']:.0%}, but a tenant shares its way"
            )
    opened = [incident for incident in incidents if incident["rule"] == RULE]
    if wanted and not opened:
        lines.append("no incident names the oversold uplink")
    if opened and not wanted:
        lines.append(f"an incident was opened though no tenant was there: {opened[0]['summary']}")
    return lines
