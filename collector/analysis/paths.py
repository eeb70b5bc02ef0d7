"""All paths seen, by a dense index, so that figures of all of them stand in arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
