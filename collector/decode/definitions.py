"""What short ids mean. Pure.

A definition is hashed here, never taken at its word, so an id cannot be given a false meaning; a second definition
with a known id is refused, because nothing on the wire could tell the two apart.
"""

from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError

from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import CounterSet, Endpoint, Path, Profile
from collector.model import CounterSetRow, EndpointRow, PathRow, ProfileRow

M = TypeVar("M", Path, Profile, CounterSet)

MAX_DEFINITIONS = 4_000_000  # a mesh of 1,024 hosts has a million paths of each kind
MAX_DEFINITION_BYTES = 256 * 1024
MAX_COUNTERS = 4096
MAX_TEXT = 512  # of a name or an address


class DefinitionError(ValueError):
    """A definition that cannot be used; the text says why."""


class Definitions:
    """Definitions seen so far, by id. Seed it with what the store kept: agents repeat theirs only once a day."""

    def __init__(self, counter_sets: Iterable[bytes] = ()) -> None:
        """``counter_sets``: serialised CounterSets known from before."""
        self._bytes: dict[int, bytes] = {}
        self._counter_sets: dict[int, CounterSetRow] = {}
        for definition in counter_sets:
            self.counter_set(definition)

    def counters(self, counter_set_id: int) -> CounterSetRow | None:
        """The counter set with this id, if it was defined."""
        return self._counter_sets.get(counter_set_id)

    def path(self, definition: bytes) -> PathRow:
        """Reads a serialised Path.

        Raises:
            DefinitionError: unreadable, incomplete, or another definition has its id.
        """
        path = _parse(Path, definition)
        which = path.WhichOneof("destination")
        if not path.HasField("source") or which is None or not path.HasField("type_p"):
            raise DefinitionError("a path needs source, destination and Type-P")
        type_p = path.type_p
        return PathRow(
            path_id=self._claim(definition),
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
        )

    def profile(self, definition: bytes) -> ProfileRow:
        """Reads a serialised Profile.

        Raises:
            DefinitionError: unreadable, or another definition has its id.
        """
        profile = _parse(Profile, definition)
        return ProfileRow(
            profile_id=self._claim(definition),
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

    def counter_set(self, definition: bytes) -> CounterSetRow:
        """Reads a serialised CounterSet and remembers it.

        Raises:
            DefinitionError: unreadable, too many or doubled names, or another definition has its id.
        """
        names = tuple(_parse(CounterSet, definition).name)
        if not names or len(names) > MAX_COUNTERS or len(set(names)) != len(names):
            raise DefinitionError(f"a counter set needs 1 to {MAX_COUNTERS} different names")
        row = CounterSetRow(self._claim(definition), tuple(_text(name) for name in names), definition)
        self._counter_sets[row.counter_set_id] = row
        return row

    def _claim(self, definition: bytes) -> int:
        identifier = short_id(definition)
        if len(self._bytes) >= MAX_DEFINITIONS and identifier not in self._bytes:
            raise DefinitionError(f"more than {MAX_DEFINITIONS} definitions")
        if self._bytes.setdefault(identifier, definition) != definition:
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


def _parse(kind: type[M], definition: bytes) -> M:
    if len(definition) > MAX_DEFINITION_BYTES:
        raise DefinitionError(f"a definition of {len(definition)} bytes")
    try:
        return kind.FromString(definition)
    except DecodeError as error:
        raise DefinitionError(str(error)) from None
