"""Agent silent: nothing received for a while, by the collector's clock. Pure.

Silence counts from the last batch or from the collector's own start, whichever is later: a collector that was down, or
stood still, cannot have heard anybody. A node that was never heard of gets the same time from the start. When it
opened follows from those two times alone, not from the moment at which somebody looked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.config import SilentRule
from collector.model import Element, Flag, Incident

RULE = "agent_silent"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Heard:
    """When a configured node's agent was last heard; None: never."""

    node: str
    last_received_time_ns: int | None


def judge(
    heard: Iterable[Heard],
    started_time_ns: int,
    now_ns: int,
    open_incidents: Sequence[Incident],
    rule: SilentRule,
) -> list[Flag]:
    """Flags at ``now_ns``.

    Args:
        heard: every configured node.
        started_time_ns: when the collector last started.
        now_ns: how far the collector is known to have listened.
        open_incidents: this rule's.
        rule: after how long.
    """
    flags: list[Flag] = []
    opened = {incident.element: incident for incident in open_incidents}
    for entry in heard:
        element = Element("agent", entry.node)
        incident = opened.pop(element, None)
        last = entry.last_received_time_ns
        if incident is not None:
            if last is not None and last >= incident.opened_time_ns:
                flags.append(Flag(RULE, VERSION, element, last, "warning", False, {"clean_since_ns": last}))
            continue
        since = started_time_ns if last is None else max(last, started_time_ns)
        if now_ns - since >= rule.after:
            values: dict[str, float | int | str] = {"state": "never seen" if last is None else "silent"}
            if last is not None:
                values["last_received_time_ns"] = last
            flags.append(Flag(RULE, VERSION, element, since + rule.after, "warning", True, values))
    for element, incident in opened.items():  # nodes that are no longer configured
        closed = max(now_ns, incident.opened_time_ns)
        flags.append(Flag(RULE, VERSION, element, closed, "warning", False, {"clean_since_ns": closed}))
    return flags
