"""What short ids mean. Pure.

A definition is hashed here, never taken at its word, so an id cannot be given a false meaning; a second definition
with a known id is refused, because nothing on the wire could tell the two apart.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

from google.protobuf.message import DecodeError

from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import CounterSet, Endpoint, Path, Profile
from collector.model import CounterSetRow, EndpointRow, PathRow, ProfileRow

M = TypeVar("M", Path, Profile, CounterSet)

MAX_DEFINITIONS = 4_000_000  # a mesh of 1,024 hosts has a million paths of each kind
MAX_DEFINITIONS_OF_AGENT = 20_000  # ten hundred peers over eight lanes, twice
MAX_COUNTER_SETS_OF_AGENT = 64  # a set a kind of NIC
MAX_DEFINITION_BYTES = 8 * 1024
MAX_COUNTER_SET_BYTES = 256 * 1024
MAX_COUNTERS = 4096
MAX_TEXT = 512  # of a name or an address


class DefinitionError(ValueError):
    """A definition that cannot be used; the text says why."""


class Definitions:
    """Definitions seen so far, by id. Seed it with what the store kept: agents repeat theirs only once a day."""

    def __init__(self, counter_sets: Iterable[bytes] = ()) -> None:
        """``counter_sets``: serialised CounterSets known from before."""
        self._digests: dict[int, bytes] = {}
        self._counter_sets: dict[int, CounterSetRow] = {}
        self._of_agent: Counter[str] = Counter()
        self._counter_sets_of_agent: Counter[str] = Counter()
        for definition in counter_sets:
            self.counter_set(definition)

    def counters(self, counter_set_id: int) -> CounterSetRow | None:
        """The counter set with this id, if it was defined."""
        return self._counter_sets.get(counter_set_id)

    def known(self, definition: bytes, agent: str) -> None:
        """Remembers a definition that was read before."""
        self._claim(definition, agent)

    def path(self, definition: bytes, agent: str = "") -> PathRow:
        """Reads a serialised Path.

        Args:
            definition: the bytes.
            agent: who sent it; empty for the collector itself, whose definitions are not limited.

        Raises:
            DefinitionError: unreadable, incomplete, one too many, or another definition has its id.
        """
        path = _parse(Path, definition)
        which = path.WhichOneof("destination")
        if not path.HasField("source") or which is None or not path.HasField("type_p"):
            raise DefinitionError("a path needs source, destination and Type-P")
        type_p = path.type_p
        return PathRow(
            path_id=self._claim(definition, agent),
            source=endpoint_row(path.source),
            destination=endpoint_row(path.endpoint) if which == "endpoint" else None,
            target=_text(path.target.name) if which == "target" else None,
            target_address=_text(path.target.address) if which == "target" else None,
            protocol=type_p.protocol,
            ip_version=type_p.ip_version,
            payload_bytes=type_p.payload_bytes,
            dscp=type_p.dscp,
            profile_id=type_p.profile_id or None,
            definition=definition,
            source_port=type_p.source_port,
            destination_port=type_p.destination_port,
        )

    def profile(self, definition: bytes, agent: str = "") -> ProfileRow:
        """Reads a serialised Profile.

        Raises:
            DefinitionError: unreadable, one too many, or another definition has its id.
        """
        profile = _parse(Profile, definition)
        return ProfileRow(
            profile_id=self._claim(definition, agent),
            engine=profile.engine,
            streams=profile.streams,
            duration_ns=bounded(profile.duration_ns),
            omit_ns=bounded(profile.omit_ns),
            congestion_control=_text(profile.congestion_control),
            mss_bytes=profile.mss_bytes,
            dscp=profile.dscp,
            udp_rate_bps=bounded(profile.udp_rate_bps),
            definition=definition,
        )

    def counter_set(self, definition: bytes, agent: str = "") -> CounterSetRow:
        """Reads a serialised CounterSet and remembers it.

        Raises:
            DefinitionError: unreadable, too many or doubled names, or another definition has its id.
        """
        names = tuple(_parse(CounterSet, definition, MAX_COUNTER_SET_BYTES).name)
        if not names or len(names) > MAX_COUNTERS or len(set(names)) != len(names):
            raise DefinitionError(f"a counter set needs 1 to {MAX_COUNTERS} different names")
        row = CounterSetRow(self._claim(definition, agent), tuple(_text(name) for name in names), definition)
        if agent and row.counter_set_id not in self._counter_sets:
            if self._counter_sets_of_agent[agent] >= MAX_COUNTER_SETS_OF_AGENT:
                raise DefinitionError(f"more than {MAX_COUNTER_SETS_OF_AGENT} counter sets of {agent}")
            self._counter_sets_of_agent[agent] += 1
        self._counter_sets[row.counter_set_id] = row
        return row

    def _claim(self, definition: bytes, agent: str = "") -> int:
        identifier, digest = short_id(definition), sha256(definition).digest()
        known = self._digests.get(identifier)
        if known is None:
            if len(self._digests) >= MAX_DEFINITIONS:
                raise DefinitionError(f"more than {MAX_DEFINITIONS} definitions")
            if agent and self._of_agent[agent] >= MAX_DEFINITIONS_OF_AGENT:
                raise DefinitionError(f"more than {MAX_DEFINITIONS_OF_AGENT} definitions of {agent}")
            self._of_agent[agent] += 1
            self._digests[identifier] = digest
        elif known != digest:
            raise DefinitionError(f"id {identifier:016x} already means something else")
        return identifier


def endpoint_row(endpoint: Endpoint) -> EndpointRow:
    """Raises DefinitionError on names of absurd length."""
    return EndpointRow(_text(endpoint.node), _text(endpoint.nic), _text(endpoint.address), _text(endpoint.lane))


def bounded(value: int) -> int:
    """``value`` if it fits a signed 64-bit column; times and sizes beyond that are nonsense."""
    if value >= 1 << 63:
        raise DefinitionError(f"{value} is beyond 63 bits")
    return value


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise DefinitionError(f"a name of {len(text)} characters")
    return text


def _parse(kind: type[M], definition: bytes, max_bytes: int = MAX_DEFINITION_BYTES) -> M:
    if len(definition) > max_bytes:
        raise DefinitionError(f"a definition of {len(definition)} bytes")
    try:
        return kind.FromString(definition)
    except DecodeError as error:
        raise DefinitionError(str(error)) from None
