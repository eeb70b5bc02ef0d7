"""What a judge remembers beside the windows, as text for the store and back. Pure."""

import json
from dataclasses import dataclass, field

from collector.model import Element, Incident
from collector.store.rows import dump, incident_values, read_incident


@dataclass(slots=True)
class State:
    """All that a judge remembers beside the windows."""

    incidents: list[Incident] = field(default_factory=list)
    over_until: dict[Element, int] = field(default_factory=dict)  # loss before that belongs to a closed incident
    frozen_p99_ns: dict[int, int] = field(default_factory=dict)  # pool id -> baseline while it is accused
    seen_ns: dict[str, int] = field(default_factory=dict)  # incident id -> when its paths were last measured

    def encode(self) -> str:
        """Text for the store; empty for a state with nothing in it."""
        if not (self.incidents or self.over_until):
            return ""
        return dump(
            {
                "incidents": [incident_values(incident) for incident in self.incidents],
                "over": sorted([element.kind, element.name, until] for element, until in self.over_until.items()),
                "frozen": {f"{pool_id:016x}": p99 for pool_id, p99 in self.frozen_p99_ns.items()},
                "seen": self.seen_ns,
            }
        )

    @staticmethod
    def decode(text: str) -> "State":
        """The state again."""
        if not text:
            return State()
        values = json.loads(text)
        return State(
            incidents=[read_incident(incident) for incident in values["incidents"]],
            over_until={Element(kind, name): until for kind, name, until in values["over"]},
            frozen_p99_ns={int(pool_id, 16): p99 for pool_id, p99 in values["frozen"].items()},
            seen_ns=values["seen"],
        )
