"""The paths that one prober of planned targets keeps: from targets and names to slots. No sockets.

Shared by the probers of ICMP and TCP. A change of targets or of a name's addresses is taken over at the next tick.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.clock import Anchor
from agent.probe.path_slots import Method, PathSlots
from agent.probe.resolve import MAX_NAMES, Resolver
from agent.probe.targets import PathSpec, TargetRefusedError, destination, name_to_resolve, path_of, source_version
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget


class PathBook(PathSlots[PathSpec]):
    """Slots, their paths, and what is due."""

    def __init__(
        self,
        resolver: Resolver,
        method_of: Callable[[PathSpec], Method | None],
        *,
        phase: float = 0.0,
        user_stamps: bool = False,
        tcp_fallback: bool = False,
    ) -> None:
        """``method_of``: how a path is probed on this host; None: not at all, the path gets no samples."""
        super().__init__(phase=phase, user_stamps=user_stamps)
        self._resolver = resolver
        self._method_of = method_of
        self._tcp_fallback = tcp_fallback
        self._targets: list[tuple[RoundTripTarget, str | None, PathSpec]] = []  # name: None for an address
        self._refused: list[str] = []
        self._left_out: list[str] = []
        self._dirty = False
        self._definitions: dict[int, bytes] = {}
        self._leaving: set[int] = set()

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by id, of all paths that the last drain could mention."""
        return self._definitions

    def configure(self, targets: Sequence[RoundTripTarget]) -> None:
        """These targets and no others, from the next tick on."""
        self._targets, self._refused = [], []
        for target in targets:
            try:
                name = name_to_resolve(target)
                address = destination(target) if name is None else ""
                spec = path_of(target, address, tcp_fallback=self._tcp_fallback)
            except TargetRefusedError as error:
                self._refused.append(str(error))
                continue
            self._targets.append((target, name, spec))
        beyond = self._resolver.watch(name for _, name, _ in self._targets if name is not None)
        if beyond:
            self._refused.append(f"{len(beyond)} names over the limit of {MAX_NAMES}")
        self._dirty = True

    def due(self, now: Anchor) -> Iterator[tuple[int, PathSpec]]:
        """As ``PathSlots.due``, after what has changed is taken over."""
        if self._resolver.take_changed() or self._dirty:
            self._rebuild()
        return super().due(now)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """What is resolved. Definitions of paths that ended go with the drain after their last."""
        for path_id in self._leaving:
            self._definitions.pop(path_id, None)
        batches = super().drain(monotonic_ns)
        ended = self.table.ended
        self._leaving = ended - {spec.path_id for spec, _ in self._slots} if ended else set()
        return batches

    @property
    def ending(self) -> bool:
        """Whether a change is still under way: targets not taken over, or paths that end not wholly handed out."""
        return self._dirty or len(self._specs) > len(self._slots)

    def state(self) -> tuple[str, list[str]]:
        """One word, and what keeps targets from being probed or packets from being recorded."""
        unresolved = [f"name {name}: {fault}" for name, fault in self._resolver.faults().items()]
        faults = [f"refused: {reason}" for reason in self._refused + self._left_out] + unresolved + self.not_recorded()
        return ("dns_failed" if unresolved else "degraded" if faults else "ok"), faults

    def _wanted(self) -> dict[int, PathSpec]:
        """Path id -> path, of all targets, each address of a name, and names without one."""
        wanted: dict[int, PathSpec] = {}
        for target, name, spec in self._targets:
            if name is None:
                wanted.setdefault(spec.path_id, spec)
                continue
            answer = self._resolver.answer(name)
            version = source_version(target.source.address)
            fitting = [found for found in answer.addresses if version in (0, 6 if ":" in found else 4)]
            for address in fitting:
                try:
                    path = path_of(target, address, tcp_fallback=self._tcp_fallback)
                except TargetRefusedError as error:
                    self._left_out.append(f"{name}: {error}")
                    continue
                wanted.setdefault(path.path_id, path)
            if answer.addresses and not fitting:
                self._left_out.append(f"{name}: no IPv{version} address, as {target.source.address} would need")
            if answer.fault or (answer.addresses and not fitting):
                wanted.setdefault(spec.path_id, spec)
        return wanted

    def _rebuild(self) -> None:
        self._dirty = False
        self._left_out = []
        wanted: dict[PathSpec, Method] = {}
        for spec in self._wanted().values():
            method = self._method_of(spec)
            if method is not None:
                wanted[spec] = method
        self._left_out += self.take_over(wanted)
        going_on = {spec.path_id: spec.definition for spec, _ in self._slots}
        self._definitions.update(going_on)
        self._leaving -= going_on.keys()
