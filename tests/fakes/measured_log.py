"""A log of a fleet that measures: what each agent would have signed, entry by entry, without agents or disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from agent.record.columns import fill_nic, fill_one_way, fill_round_trip, fill_self_check
from agent.record.ways import fill_path_mtu, fill_route_trace
from agent.result import (
    Hop,
    Mark,
    MtuTrial,
    NicBatch,
    OneWayBatch,
    OneWayDelay,
    PathMtu,
    RoundTripBatch,
    RouteTrace,
    SelfCheck,
)
from bandwitness.chain import Tip, header_hash, seal
from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, Plan, Slot
from collector.config import Config, EndpointConfig, Node, Rules, Site
from collector.model import LogEntry
from tests.fakes.batches import START_NS, FakeChain
from tests.fakes.traffic import FleetTraffic

SECOND = 1_000_000_000
FLUSH_NS = 2 * SECOND
DELAY_NS = 100_000
Packet = tuple[int, int | None]  # outcome, delay
Fate = Callable[[str, str, int, int], Packet]  # source, destination, sequence, time of sending
Doubt = Callable[[str, int], Sequence[str]]  # node, begin of a check of itself; why it doubts its delays


def replied(_: str, __: str, sequence: int, ___: int) -> Packet:
    """A healthy network: 100 µs, a little more now and then."""
    return pb.PACKET_OUTCOME_REPLIED, DELAY_NS + sequence % 7 * 1_000


def fleet_config(racks: int = 2, hosts: int = 2, *, rules: Rules | None = None, uplink_tokens: int = 1) -> Config:
    """Racks r1, r2 … with nodes r1n1, r1n2 … of one NIC each."""
    nodes = tuple(
        Node(
            name=f"r{rack}n{host}",
            site="s",
            rack=f"r{rack}",
            endpoints=(EndpointConfig(nic="eth0", address=f"10.0.{rack}.{host}", lane="rail0"),),
        )
        for rack in range(1, racks + 1)
        for host in range(1, hosts + 1)
    )
    config = Config(sites=(Site(name="s"),), nodes=nodes, rules=rules or Rules())
    throughput = config.measure.throughput
    throughput = msgspec.structs.replace(throughput, uplink_tokens=uplink_tokens)
    return msgspec.structs.replace(config, measure=msgspec.structs.replace(config.measure, throughput=throughput))


def endpoint(node: str) -> pb.Endpoint:
    """The only endpoint of a node of ``fleet_config``."""
    rack, host = node[1:].split("n")
    return pb.Endpoint(node=node, nic="eth0", address=f"10.0.{rack}.{host}", lane="rail0")


def echo_path(source: str, destination: str) -> bytes:
    """Serialised Path of an echo probe."""
    type_p = pb.TypeP(protocol=pb.PROTOCOL_ICMP_ECHO, ip_version=4, payload_bytes=56)
    return canonical(pb.Path(source=endpoint(source), endpoint=endpoint(destination), type_p=type_p))


def target_path(source: str, target: str) -> bytes:
    """Serialised Path of an echo probe to a target without an agent."""
    type_p = pb.TypeP(protocol=pb.PROTOCOL_ICMP_ECHO, ip_version=4, payload_bytes=56)
    far = pb.Target(name=target, address=f"192.0.2.{sum(target.encode()) % 250 + 1}")
    return canonical(pb.Path(source=endpoint(source), target=far, type_p=type_p))


def stamp_path(source: str, destination: str, port: int) -> bytes:
    """Serialised Path of a STAMP probe from one source port."""
    type_p = pb.TypeP(
        protocol=pb.PROTOCOL_STAMP, ip_version=4, payload_bytes=44, source_port=port, destination_port=8620
    )
    return canonical(pb.Path(source=endpoint(source), endpoint=endpoint(destination), type_p=type_p))


PROFILE = canonical(pb.Profile(engine=pb.ENGINE_IPERF3, streams=4, duration_ns=10 * SECOND, omit_ns=2 * SECOND))


def throughput_path(source: str, destination: str) -> bytes:
    """Serialised Path of a throughput test."""
    type_p = pb.TypeP(protocol=pb.PROTOCOL_TCP_THROUGHPUT, ip_version=4, profile_id=short_id(PROFILE))
    return canonical(pb.Path(source=endpoint(source), endpoint=endpoint(destination), type_p=type_p))


def planned_slot(number: int, source: str, destination: str, start_ns: int, window: int) -> Slot:
    """A slot of 10 s with 2 s omitted and 2 s margin, data from ``source`` to ``destination``."""
    tokens = [f"nic:{source}/eth0", f"nic:{destination}/eth0"]
    if source.split("n", maxsplit=1)[0] != destination.split("n", maxsplit=1)[0]:
        tokens += [f"uplink:s/{node.split('n')[0]}" for node in (source, destination)]
    return Slot(
        slot_id=number.to_bytes(16, "big"),
        group_id=number.to_bytes(16, "big"),
        purpose=SLOT_PURPOSE_PAIR,
        window=window,  # type: ignore[arg-type]
        start_time_ns=start_ns,
        margin_ns=2 * SECOND,
        client=endpoint(source),
        server=endpoint(destination),
        port=5201,
        profile=PROFILE,
        path=throughput_path(source, destination),
        token=tokens,
    )


@dataclass
class Member:
    """One agent's side."""

    evidence: FakeChain
    telemetry: FakeChain
    sequences: dict[str, int] = field(default_factory=dict)
    defined: bool = False
    pending: list[bytes] = field(default_factory=list)  # records for the next evidence batch
    held: list[LogEntry] | None = None  # away from the collector: batches wait here


class MeasuredLog:
    """``collector.analysis.runner.Log`` over entries made by hand."""

    def __init__(self, config: Config, *, fate: Fate = replied, interval_ns: int = SECOND // 5) -> None:
        self.entries: list[LogEntry] = []
        self.now_ns = START_NS
        self.fate = fate
        self.interval_ns = interval_ns
        self.doubt: Doubt | None = None  # None: agents that do not check themselves
        self.ports: Callable[[int], Sequence[int]] | None = None  # source ports of STAMP at a time; None: none
        self.targets: Sequence[str] = ()  # without an agent; probed by all nodes
        self.of_port: Fate = replied  # the fate of its packets, with the port in place of the sequence
        self.ahead_ns: Callable[[str], int] | None = None  # how far a node's clock is; None: no one-way delays
        self.clock_error_ns = 20_000  # bound of each node's clock
        self.signed = False  # with the keys of the chains; it takes time
        self.visible = 1 << 62
        self.traffic: FleetTraffic | None = None  # counters are sent too, if there is any
        self.hop_limits: dict[tuple[str, str], int] = {}  # of replies, by source and destination
        self._marks: dict[str, list[Mark]] = {}
        self.control = FakeChain("collector", pb.BATCH_CLASS_CONTROL, bytes(15) + b"\xff", 99)
        self.members = {
            node.name: Member(
                FakeChain(node.name, pb.BATCH_CLASS_EVIDENCE, number.to_bytes(16, "big"), number + 1),
                FakeChain(node.name, pb.BATCH_CLASS_TELEMETRY, (number + (1 << 64)).to_bytes(16, "big"), number + 1),
            )
            for number, node in enumerate(config.nodes)
        }
        self.started()

    # ------------------------------------------------------------ what analysis sees

    @property
    def last_position(self) -> int:
        return min(len(self.entries), self.visible)

    def read(self, after_position: int, limit: int) -> Sequence[LogEntry]:
        return self.entries[after_position : min(after_position + limit, self.last_position)]

    # ------------------------------------------------------------ what happens

    def started(self) -> None:
        """The collector starts."""
        self._control(pb.Record(collector_started=pb.CollectorStarted(collector_id="collector")))

    def plan(self, slots: Sequence[Slot], *, version: int = 1) -> None:
        """The collector issues plans to all nodes, each with its own slots."""
        for node in self.members:
            mine = [slot for slot in slots if node in (slot.client.node, slot.server.node)]
            plan = Plan(version=version, node=node, issued_time_ns=self.now_ns, slot=mine)
            self._control(pb.Record(plan_issued=pb.PlanIssued(node=node, plan=canonical(plan))))

    def run(self, slot: Slot, role: int, *, mbps: float = 400.0, **changes: object) -> None:
        """A node records its end of a slot; ``changes`` are fields of ThroughputRun."""
        record = pb.ThroughputRun(
            slot_id=slot.slot_id,
            group_id=slot.group_id,
            role=role,  # type: ignore[arg-type]
            path_id=short_id(slot.path),
            profile=PROFILE,
            outcome=pb.RUN_OUTCOME_OK,
            start_time_ns=slot.start_time_ns,
            end_time_ns=slot.start_time_ns + 12 * SECOND,
            elapsed_ns=12 * SECOND,
            engine_version="3.12",
        )
        record.receiver_bytes = int(mbps * 1e6 / 8 * 10)
        record.receiver_duration_ns = 10 * SECOND
        for name, value in changes.items():
            if name in ("gate", "flag"):
                getattr(record, name).extend(value)
            elif value is None:
                record.ClearField(name)  # type: ignore[arg-type]
            else:
                setattr(record, name, value)
        node = slot.client.node if role == pb.RUN_ROLE_CLIENT else slot.server.node
        self.members[node].pending += [
            pb.Record(definition=pb.Definition(path=slot.path)).SerializeToString(),
            pb.Record(throughput_run=record).SerializeToString(),
        ]

    def pass_time(self, seconds: float, *, without: Sequence[str] = ()) -> None:
        """All agents measure and flush every 2 s; those in ``without`` do not run."""
        end = self.now_ns + round(seconds * SECOND)
        while self.now_ns + FLUSH_NS <= end:
            self.now_ns += FLUSH_NS
            for node in self.members:
                if node not in without:
                    self._flush(node)
                    if self.traffic is not None:
                        self.nic(node, self.traffic.batch(node, self.now_ns - FLUSH_NS, self.now_ns))

    def cut_off(self, node: str) -> None:
        """The agent goes on measuring, but nothing arrives any more."""
        self.members[node].held = []

    def reconnect(self, node: str) -> None:
        """All that waited arrives now."""
        held, self.members[node].held = self.members[node].held or [], None
        for entry in held:
            self._append(entry)

    def telemetry(self, node: str, record: bytes) -> None:
        """One telemetry batch with one record."""
        self._deliver(node, self.members[node].telemetry, [record], self.now_ns)

    def nic(self, node: str, batch: NicBatch) -> None:
        """Counters of one NIC."""
        counter_set = canonical(pb.CounterSet(name=list(batch.counters)))
        record = pb.Record()
        fill_nic(record.nic, batch, short_id(counter_set))
        definition = pb.Record(definition=pb.Definition(counter_set=counter_set))
        self._deliver(
            node,
            self.members[node].telemetry,
            [definition.SerializeToString(), record.SerializeToString()],
            self.now_ns,
        )

    def say(self, node: str, mark: pb.TrainerMark) -> None:
        """A trainer tells its agent."""
        self.members[node].pending.append(pb.Record(trainer_mark=mark).SerializeToString())

    def mark(self, source: str, destination: str, sequence: int, kind: int) -> None:
        """A duplicate or a late reply, in the agent's next record."""
        self._marks.setdefault(source, []).append(Mark(short_id(echo_path(source, destination)), sequence, kind, None))

    def trace(
        self, source: str, destination: str, routers: Sequence[str], *, reached: bool = True, ago_ns: int = 2 * SECOND
    ) -> None:
        """A trace over these routers (empty text: silent), in the agent's next record."""
        hops = [
            Hop(at, pb.HOP_OUTCOME_TIME_EXCEEDED if router else pb.HOP_OUTCOME_SILENT, router, DELAY_NS)
            for at, router in enumerate(routers, 1)
        ]
        if reached:
            hops.append(Hop(len(routers) + 1, pb.HOP_OUTCOME_REPLIED, endpoint(destination).address, DELAY_NS))
        record = pb.Record()
        trace = RouteTrace(
            echo_path(source, destination), self.now_ns - ago_ns, pb.TRACE_REASON_REFERENCE, "", hops, reached
        )
        fill_route_trace(record.route_trace, trace)
        self.members[source].pending.append(record.SerializeToString())

    def path_mtu(
        self,
        source: str,
        destination: str,
        mtu_bytes: int | None,
        *,
        interface: int = 9000,
        black_hole: bool = False,
        ago_ns: int = 2 * SECOND,
    ) -> None:
        """A path MTU check, in the agent's next record."""
        trials = [MtuTrial(56, pb.MTU_OUTCOME_REPLIED, 1, 1)]
        if black_hole and mtu_bytes is not None:
            trials += [MtuTrial(mtu_bytes - 27, pb.MTU_OUTCOME_SILENT, 5, 0)] * 2
        elif mtu_bytes is not None and mtu_bytes < interface:
            trials.append(MtuTrial(8972, pb.MTU_OUTCOME_TOO_BIG, 1, 0, "10.9.9.9", mtu_bytes))
        record = pb.Record()
        path = echo_path(source, destination)
        found = PathMtu(path, self.now_ns - ago_ns, trials, mtu_bytes, interface, black_hole)
        fill_path_mtu(record.path_mtu, found)
        self.members[source].pending.append(record.SerializeToString())

    # ------------------------------------------------------------ records

    def _flush(self, node: str) -> None:
        member = self.members[node]
        records = []
        peers = [peer for peer in self.members if peer != node]
        if not member.defined:
            records = [
                pb.Record(definition=pb.Definition(path=echo_path(node, peer))).SerializeToString() for peer in peers
            ]
            member.defined = True
        records.append(self._round_trips(node, peers))
        if self.targets:
            records += self._to_targets(node)
        if self.ports is not None:
            records += self._stamp(node, peers, self.ports(self.now_ns - 3 * SECOND))
        if self.doubt is not None:
            records.append(self._self_check(node, self.doubt(node, self.now_ns - FLUSH_NS)))
        records += member.pending
        member.pending = []
        self._deliver(node, member.evidence, records, self.now_ns - SECOND)

    def _round_trips(self, node: str, peers: Sequence[str]) -> bytes:
        """What was sent from 3 s to 1 s ago: the waiting time of later ones is not over."""
        times: list[int] = []
        outcomes: list[int] = []
        delays: list[int] = []
        firsts: list[int] = []
        counts: list[int] = []
        for peer in peers:
            sequence = member_sequence = self.members[node].sequences.get(peer, 0)
            for time_ns in range(self.now_ns - 3 * SECOND, self.now_ns - SECOND, self.interval_ns):
                outcome, delay = self.fate(node, peer, sequence, time_ns)
                times.append(time_ns)
                outcomes.append(outcome)
                if outcome == pb.PACKET_OUTCOME_REPLIED:
                    delays.append(delay or 0)
                sequence += 1
            firsts.append(member_sequence)
            counts.append(sequence - member_sequence)
            self.members[node].sequences[peer] = sequence
        batch = RoundTripBatch(
            method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
            stamp_source=pb.STAMP_SOURCE_KERNEL,
            interval_ns=self.interval_ns,
            waiting_time_ns=SECOND,
            path_ids=[short_id(echo_path(node, peer)) for peer in peers],
            first_sequences=firsts,
            sample_counts=counts,
            send_times_ns=times,
            outcomes=outcomes,
            round_trip_delays_ns=delays,
            marks=self._marks.pop(node, []),
            hop_limits=[self.hop_limits.get((node, peer), 0) for peer in peers],
        )
        record = pb.Record()
        fill_round_trip(record.round_trip, batch)
        return record.SerializeToString()

    def _to_targets(self, node: str) -> list[bytes]:
        """Five packets a second to each target, as of ``_round_trips``; their fate is asked with its name."""
        paths = [target_path(node, target) for target in self.targets]
        step = SECOND // 5
        times = range(self.now_ns - 3 * SECOND, self.now_ns - SECOND, step)
        fates = [(at, *self.fate(node, target, at // step, at)) for target in self.targets for at in times]
        batch = RoundTripBatch(
            method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
            stamp_source=pb.STAMP_SOURCE_KERNEL,
            interval_ns=step,
            waiting_time_ns=SECOND,
            path_ids=[short_id(path) for path in paths],
            first_sequences=[times[0] // step] * len(paths),
            sample_counts=[len(times)] * len(paths),
            send_times_ns=[time_ns for time_ns, _, _ in fates],
            outcomes=[outcome for _, outcome, _ in fates],
            round_trip_delays_ns=[delay or 0 for _, outcome, delay in fates if outcome == pb.PACKET_OUTCOME_REPLIED],
            hop_limits=[self.hop_limits.get((node, target), 0) for target in self.targets],
        )
        record = pb.Record()
        fill_round_trip(record.round_trip, batch)
        definitions = [pb.Record(definition=pb.Definition(path=path)).SerializeToString() for path in paths]
        return [*definitions, record.SerializeToString()]

    def _stamp(self, node: str, peers: Sequence[str], ports: Sequence[int]) -> list[bytes]:
        """One packet a second from each port to each peer, as of ``_round_trips``."""
        fresh = [stamp_path(node, peer, port) for peer in peers for port in ports]
        times = range(self.now_ns - 3 * SECOND, self.now_ns - SECOND, SECOND)
        fates = [
            (time_ns, *self.of_port(node, peer, port, time_ns)) for peer in peers for port in ports for time_ns in times
        ]
        batch = RoundTripBatch(
            method=pb.ROUND_TRIP_METHOD_STAMP,
            stamp_source=pb.STAMP_SOURCE_KERNEL,
            interval_ns=SECOND,
            waiting_time_ns=SECOND,
            path_ids=[short_id(path) for path in fresh],
            first_sequences=[times[0] // SECOND] * len(fresh),
            sample_counts=[len(times)] * len(fresh),
            send_times_ns=[time_ns for time_ns, _, _ in fates],
            outcomes=[outcome for _, outcome, _ in fates],
            round_trip_delays_ns=[delay or 0 for _, outcome, delay in fates if outcome == pb.PACKET_OUTCOME_REPLIED],
        )
        record = pb.Record()
        fill_round_trip(record.round_trip, batch)
        definitions = [pb.Record(definition=pb.Definition(path=path)).SerializeToString() for path in fresh]
        if self.ahead_ns is None:
            return [*definitions, record.SerializeToString()]
        told = pb.Record()
        sent_over = [
            (peer, path_id)
            for (peer, path_id) in zip([peer for peer in peers for _ in ports], batch.path_ids, strict=True)
            for _ in times
        ]
        fill_one_way(
            told.one_way,
            OneWayBatch(
                delays=[
                    self._one_way(node, peer, path_id, time_ns, delay or 0)
                    for (peer, path_id), (time_ns, outcome, delay) in zip(sent_over, fates, strict=True)
                    if outcome == pb.PACKET_OUTCOME_REPLIED
                ]
            ),
        )
        return [*definitions, record.SerializeToString(), told.SerializeToString()]

    def _one_way(self, node: str, peer: str, path_id: int, time_ns: int, delay_ns: int) -> OneWayDelay:
        """Half of the round trip each way, as two clocks that differ have it."""
        assert self.ahead_ns is not None
        ahead, error = self.ahead_ns(peer) - self.ahead_ns(node), self.clock_error_ns
        half = delay_ns // 2
        return OneWayDelay(path_id, time_ns // SECOND, half + ahead, half - ahead, error, error + 1_000, time_ns)

    def _self_check(self, node: str, reasons: Sequence[str]) -> bytes:
        check = SelfCheck(self.now_ns - FLUSH_NS, self.now_ns, 8, 0, 15_000, 40_000, reasons=reasons)
        record = pb.Record()
        fill_self_check(record.self_check, check)
        return record.SerializeToString()

    def _control(self, record: pb.Record) -> None:
        self._append(self._seal(self.control, [record.SerializeToString()], self.now_ns))

    def _deliver(self, node: str, chain: FakeChain, records: Sequence[bytes], last_event_ns: int) -> None:
        entry = self._seal(chain, records, last_event_ns)
        held = self.members[node].held
        if held is None:
            self._append(entry)
        else:
            held.append(entry)

    def _seal(self, chain: FakeChain, records: Sequence[bytes], last_event_ns: int) -> LogEntry:
        header = chain.header()
        header.last_event_time_ns = last_event_ns
        header.anchor.wall_time_ns = self.now_ns
        batch = seal(header, records, chain.tip, chain.sign if self.signed else lambda _: bytes(64))
        chain.tip = Tip(chain.tip.seq + 1, header_hash(batch.header))
        return LogEntry(
            position=0,
            received_time_ns=0,
            agent_id=chain.agent_id,
            chain_id=chain.chain_id,
            batch_class=chain.batch_class,
            seq=chain.tip.seq,
            quarantine="",
            header=batch.header,
            payload=batch.payload,
            signature=batch.signature,
        )

    def _append(self, entry: LogEntry) -> None:
        position = len(self.entries) + 1
        received = self.now_ns + position % 1000 * 1000  # never two at the same moment
        self.entries.append(replace(entry, position=position, received_time_ns=received))
