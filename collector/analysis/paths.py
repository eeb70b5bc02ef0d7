"""All paths seen, by a dense index, so that figures of all of them stand in arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, PROTOCOL_STAMP, PROTOCOL_TCP_CONNECT
from collector.analysis.elements import KINDS, Topology
from collector.model import Element, PathRow

Indexes = NDArray[np.intp]
ROUND_TRIP_PROTOCOLS = frozenset({PROTOCOL_ICMP_ECHO, PROTOCOL_TCP_CONNECT, PROTOCOL_STAMP})


@dataclass(frozen=True, slots=True)
class Membership:
    """Which paths cross which element, as pairs of indexes; elements in the order in which ties are settled."""

    elements: Sequence[Element]
    element_of: Indexes
    path_of: Indexes
    path_count: int
    ports: NDArray[np.int64]  # [path]: source port; 0 where it is no part of the path
    _slices: Sequence[Indexes]
    _order: Mapping[Element, int]

    def paths(self, element_index: int) -> Indexes:
        """Indexes of the paths that cross an element."""
        return self._slices[element_index]

    def paths_of(self, element: Element) -> Indexes:
        """The same by name; none for an element that no path crosses (any more)."""
        index = self._order.get(element)
        return np.array([], np.intp) if index is None else self._slices[index]

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over each element's paths of one value a path."""
        sums = np.bincount(self.element_of, weights=values[self.path_of], minlength=len(self.elements))
        return sums.astype(np.float64, copy=False)


class PathIndex:
    """Index, definition, agent and tokens of each defined path id. A path belongs to the node at its source, whoever
    names it first: no sample makes one."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.ids: list[int] = []
        self.rows: list[PathRow] = []
        self.agents: list[str] = []  # who speaks for it
        self.defined_at: list[int] = []  # position in the log
        self._index: dict[int, int] = {}
        self._by_token: dict[str, list[int]] = {}
        self._by_agent: dict[str, list[int]] = {}
        self._by_destination: dict[str, list[int]] = {}
        self._membership: Membership | None = None
        self._pools: dict[int, int] = {}  # id of a pool -> index of its first path
        self._pool_of: list[int] = []  # id by path
        self._leaders: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def indexes(self, path_ids: Iterable[int]) -> Indexes:
        """Indexes of several paths that are all known."""
        return np.array([self._index[path_id] for path_id in path_ids], np.intp)

    def find(self, path_id: int) -> int | None:
        """Index of a path that is known."""
        return self._index.get(path_id)

    def define(self, row: PathRow, position: int = 0) -> bool:
        """Says what a path id means from a position in the log on; True if it was not known. Only round-trip paths get
        an index here."""
        if row.protocol not in ROUND_TRIP_PROTOCOLS or row.path_id in self._index:
            return False
        index = self._index[row.path_id] = len(self.ids)
        self.ids.append(row.path_id)
        self.rows.append(row)
        self.agents.append(row.source.node)
        self.defined_at.append(position)
        self._by_agent.setdefault(row.source.node, []).append(index)
        if row.destination is not None:
            self._by_destination.setdefault(row.destination.node, []).append(index)
        pool = _pool_id(row)
        self._pool_of.append(pool)
        self._leaders.append(self._pools.setdefault(pool, index))
        for token in self.topology.path_tokens(row):
            self._by_token.setdefault(token, []).append(index)
        self._membership = None
        return True

    def of_agent(self, agent: str) -> Sequence[int]:
        """Indexes of an agent's own paths."""
        return self._by_agent.get(agent, ())

    def to_node(self, node: str) -> Sequence[int]:
        """Indexes of the paths that end at a node."""
        return self._by_destination.get(node, ())

    @property
    def leaders(self) -> Indexes:
        """[path]: index of the first path of its pool. The STAMP paths of a pair that differ in nothing but their ports
        are one pool: one port sends too little, and not for long enough, to know what is usual. All others are pools of
        one."""
        return np.array(self._leaders, np.intp)

    def pool_id(self, index: int) -> int:
        """What a path's pool is called, the same in each process; of a pool of one, the path's id."""
        return self._pool_of[index]

    def of_pool(self, pool_id: int) -> Indexes:
        """Indexes of the paths of a pool."""
        return np.array([index for index, pool in enumerate(self._pool_of) if pool == pool_id], np.intp)

    def sharing(self, tokens: Iterable[str]) -> Indexes:
        """Indexes of the paths that hold any of these tokens."""
        found: set[int] = set()
        for token in tokens:
            found.update(self._by_token.get(token, ()))
        return np.array(sorted(found), np.intp)

    @property
    def membership(self) -> Membership:
        """Made anew after new definitions."""
        if self._membership is None:
            self._membership = self._build()
        return self._membership

    def _build(self) -> Membership:
        crossing: dict[Element, list[int]] = {}
        for index in sorted(range(len(self.ids)), key=self.ids.__getitem__):  # so that sums do not depend on arrival
            for element in self.topology.elements(self.rows[index]):
                crossing.setdefault(element, []).append(index)
        elements = sorted(crossing, key=lambda element: (KINDS.index(element.kind), element.name))
        slices = [np.array(crossing[element], np.intp) for element in elements]
        lengths = [len(part) for part in slices]
        return Membership(
            elements=elements,
            element_of=np.repeat(np.arange(len(elements), dtype=np.intp), lengths),
            path_of=np.concatenate(slices) if slices else np.array([], np.intp),
            path_count=len(self.rows),
            ports=np.array([row.source_port if row is not None else 0 for row in self.rows], np.int64),
            _slices=slices,
            _order={element: index for index, element in enumerate(elements)},
        )


def _pool_id(row: PathRow) -> int:
    if row.protocol != PROTOCOL_STAMP:
        return row.path_id
    return short_id(repr((row.source, row.destination, row.ip_version, row.payload_bytes, row.dscp)).encode())
