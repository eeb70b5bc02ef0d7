"""Flags into incidents: one that opens, changes, moves to another element, closes. Pure.

Hysteresis is the rules' part: a rule raises a flag where its threshold is passed, and says ``raised=False`` only once
the element has been inside the clearing threshold for long enough (``clean_since_ns`` in the flag's values says since
when). Between the two it says nothing, and nothing changes here.

When a rule lays the same cause to a larger or smaller element than before (``Flag.replaces``), the incident moves: it
gets the identity of the new element with the opening time of the old one, and the old one is withdrawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from collector.analysis.rules import burst_contention, burst_figures, link_degraded
from collector.model import Element, Flag, Incident

SECOND = 1_000_000_000
REFRESH_NS = 60 * SECOND  # figures of an open incident are brought up to date this often
MAX_CHILDREN = 500
MAX_EVIDENCE = 1000
_SEVERITY = {"warning": 0, "critical": 1}
_TELLING = ("during", "burst_id", "predates_burst", "broke", "shared_lanes")  # a change in one of these is told at once
Key = tuple[str, Element]


@dataclass(frozen=True, slots=True)
class Change:
    """What an evaluation changed: an incident as it is now, or one that is no longer held (``withdrawn``)."""

    incident: Incident
    decided_time_ns: int
    withdrawn: bool = False


def incident_id(rule: str, element: Element, opened_time_ns: int) -> str:
    """The same through restart and re-analysis."""
    return sha256(f"{rule}|{element.kind}|{element.name}|{opened_time_ns}".encode()).hexdigest()


class Book:
    """Open incidents of some rules."""

    def __init__(self, incidents: Iterable[Incident] = ()) -> None:
        self._open: dict[Key, Incident] = {(incident.rule, incident.element): incident for incident in incidents}

    def open(self, rule: str | None = None) -> list[Incident]:
        """Open incidents, of one rule or all, oldest first."""
        chosen = [incident for incident in self._open.values() if rule is None or incident.rule == rule]
        return sorted(chosen, key=lambda incident: (incident.opened_time_ns, incident.incident_id))

    def find(self, rule: str, element: Element) -> Incident | None:
        """The open incident of a rule on an element."""
        return self._open.get((rule, element))

    def apply(self, flags: Sequence[Flag]) -> list[Change]:
        """Takes in what a rule said at one moment."""
        changes: list[Change] = []
        for flag in flags:
            changes += self._raise(flag) if flag.raised else self._clear(flag)
        return changes

    def close(self, incident: Incident, closed_time_ns: int, decided_time_ns: int, reason: str) -> Change:
        """Closes an incident for a reason of its own."""
        del self._open[(incident.rule, incident.element)]
        closed = replace(
            incident,
            closed_time_ns=max(closed_time_ns, incident.opened_time_ns),
            updated_time_ns=decided_time_ns,
            values={**incident.values, "closed_because": reason},
            revision=incident.revision + 1,
        )
        return Change(closed, decided_time_ns)

    def _raise(self, flag: Flag) -> list[Change]:
        changes: list[Change] = []
        opened = flag.time_ns if flag.since_ns is None else flag.since_ns
        for element in flag.replaces:
            old = self._open.pop((flag.rule, element), None)
            if old is not None:
                opened = min(opened, old.opened_time_ns)
                changes.append(Change(old, flag.time_ns, withdrawn=True))
        key = (flag.rule, flag.element)
        known = self._open.get(key)
        if known is not None and opened < known.opened_time_ns:  # it takes over an older one: so is its identity
            changes.append(Change(known, flag.time_ns, withdrawn=True))
            self._open.pop(key)
        if key not in self._open:
            changes.append(self._put(_opened(flag, opened), flag.time_ns))
        elif known is not None and _matters(known, flag):
            changes.append(self._put(_updated(known, flag), flag.time_ns))
        return changes

    def _clear(self, flag: Flag) -> list[Change]:
        known = self._open.get((flag.rule, flag.element))
        if known is None:
            return []
        since = flag.values.get("clean_since_ns", flag.time_ns)
        return [self.close(known, int(since), flag.time_ns, "clean")]

    def _put(self, incident: Incident, decided_time_ns: int) -> Change:
        self._open[(incident.rule, incident.element)] = incident
        return Change(incident, decided_time_ns)


def _opened(flag: Flag, opened_time_ns: int) -> Incident:
    return Incident(
        incident_id=incident_id(flag.rule, flag.element, opened_time_ns),
        rule=flag.rule,
        rule_version=flag.rule_version,
        element=flag.element,
        severity=flag.severity,
        opened_time_ns=opened_time_ns,
        closed_time_ns=None,
        updated_time_ns=flag.time_ns,
        summary=summary(flag.rule, flag.element, flag.values),
        values=flag.values,
        children=tuple(sorted(set(flag.children)))[:MAX_CHILDREN],
        evidence=tuple(flag.evidence)[:MAX_EVIDENCE],
    )


def _matters(known: Incident, flag: Flag) -> bool:
    """A change worth a revision: worse, wider, other evidence, or figures grown old."""
    return (
        _SEVERITY[flag.severity] > _SEVERITY[known.severity]
        or not set(flag.children) <= set(known.children)
        or tuple(flag.evidence)[:MAX_EVIDENCE] != known.evidence
        or flag.values.get("ports_pattern", "unclear") not in ("unclear", known.values.get("ports_pattern"))
        or any(flag.values.get(key, "") != known.values.get(key, "") for key in _TELLING)
        or flag.time_ns - known.updated_time_ns >= REFRESH_NS
    )


def _updated(known: Incident, flag: Flag) -> Incident:
    children = tuple(sorted(set(flag.children) | set(known.children)))[:MAX_CHILDREN]
    return replace(
        known,
        rule_version=flag.rule_version,
        severity=max(known.severity, flag.severity, key=_SEVERITY.__getitem__),
        updated_time_ns=flag.time_ns,
        summary=summary(flag.rule, flag.element, flag.values),
        values=flag.values,
        children=children,
        evidence=tuple(flag.evidence)[:MAX_EVIDENCE],
        revision=known.revision + 1,
    )


def _ports(values: Mapping[str, float | int | str]) -> str:
    pattern = values.get("ports_pattern")
    if pattern == "some":
        if "ports_slow" in values:
            return f"; {values['ports_slow']} of {values['ports_probed']} source ports"
        return f"; the same {values['ports_lossy']} of {values['ports_probed']} source ports"
    return f"; all {values['ports_probed']} source ports" if pattern == "all" else ""


def _burst(values: Mapping[str, float | int | str]) -> str:
    if values.get("during"):
        what = "checkpoint" if values["during"] == "checkpoint" else "burst"
        return f"; began in {what} {str(values['burst_id'])[:12]}"
    if values.get("predates_burst"):
        return f"; predates burst {str(values['predates_burst'])[:12]}"
    return ""


def _path_mtu(where: str, values: Mapping[str, float | int | str]) -> str:
    usually = f" (usually {values['usual_mtu_bytes']})" if "usual_mtu_bytes" in values else ""
    if int(values.get("paths", 1)) > 1:
        where += f" ({values['paths']} paths)"
    if values["black_hole"]:
        return (
            f"Packets above {values['mtu_bytes']} bytes{usually} vanish on {where}, and no router says so"
            f" ({values.get('packets_lost', '?')} lost beside small ones that came back)"
        )
    said = f", says {values['reporter']}" if "reporter" in values else ""
    return f"The MTU of {where} fell to {values['mtu_bytes']} bytes{usually}{said}"


def summary(rule: str, element: Element, values: Mapping[str, float | int | str]) -> str:
    """One line for people. Never a claim: what was seen, on how many samples."""
    where = f"{element.kind.replace('_', ' ')} {element.name}"
    if rule == "loss":
        return (
            f"{float(values['loss_ratio']):.2%} of round trips lost on {where}"
            f" ({values['lost']} of {values['sent']} in {values['over_s']} s{_ports(values)}){_burst(values)}"
        )
    if rule == "delay":
        return (
            f"Round trips on {where} slower than three times their usual p99"
            f" ({values['slow']} of {values['samples']} in {values['over_s']} s, p99"
            f" {float(values['delay_p99_ns']) / 1e6:.2f} ms, usually {float(values['baseline_p99_ns']) / 1e6:.2f} ms"
            f"{_ports(values)}){_burst(values)}"
        )
    if rule == burst_contention.RULE:
        return burst_figures.summary(where, values)
    if rule.startswith("oversubscription"):
        return (
            f"Throughput on {where} swings by {float(values['swing_ratio']):.0%}:"
            f" {float(values['peak_bps']) / 1e6:.0f} Mbit/s in {values['peak_name']}, "
            f"{float(values['offpeak_bps']) / 1e6:.0f} Mbit/s in {values['offpeak_name']}"
            f" ({values['paths_flagged']} of {values['paths_judged']} paths, at least"
            f" {values['min_tests_peak']} and {values['min_tests_offpeak']} tests each)"
        )
    if rule == "path_mtu":
        return _path_mtu(where, values)
    if rule == link_degraded.RULE:
        return link_degraded.summary(element.name, values)
    if rule == "agent_silent":
        return f"Nothing received from {element.name} ({values['state']})"
    return f"{rule} on {where}"
