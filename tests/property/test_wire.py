"""Whatever comes from a network: a typed refusal or nothing, and what is right goes on beside it."""

import asyncio
import errno
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from agent.plan import PLAN_FILE, PlanError, PlanKeeper
from agent.probe.icmp import EchoSession
from agent.probe.resolve import Resolver
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_TIMESTAMPING, ErrorReport
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_CORRUPT, PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_UNREACHABLE
from collector.ingest.chains import AgentChains, WrongAgentError
from collector.ingest.cursor import Stored
from collector.log import ChainKey
from tests.fakes.batches import START_NS, FakeChain
from tests.fakes.clock import FakeClock
from tests.fakes.network import (
    IPV4_HEADER,
    MILLISECOND,
    SECOND,
    FakeNetwork,
    Host,
    outcomes_by_address,
    round_trip_target,
    samples,
)
from tests.unit.collector.export.test_http import client, rows

__all__ = ["client", "rows"]  # fixtures

V4, V6 = "198.51.100.7", "2001:db8::7"
REPLIED = PACKET_OUTCOME_REPLIED
SIGNER = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)


def damage(data: bytes, draw: st.DataObject) -> bytes:
    """A few bytes changed, cut off, or doubled."""
    found = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        if not found:
            break
        at = draw.draw(st.integers(0, len(found) - 1))
        match draw.draw(st.sampled_from(["change", "cut", "double"])):
            case "change":
                found[at] ^= draw.draw(st.integers(1, 255))
            case "cut":
                del found[at : at + draw.draw(st.integers(1, 40))]
            case _:
                found[at:at] = found[at : at + 20]
    return bytes(found)


# ---------------------------------------------------------------- echo


class Bench:
    """A prober with one packet a second to each of two hosts, whose replies are half a second on their way."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        for address in (V4, V6):
            self.network.hosts[address] = Host(delays=(SECOND // 2,))
        self.session = EchoSession(
            self.clock, opener=self.network.open, resolver=Resolver(self.clock, lambda _: []), random=Random(1)
        )
        self.network.sockets.clear()
        self.session.configure([round_trip_target(V4), round_trip_target(V6)])

    def pass_time(self, duration_ns: int) -> None:
        for _ in range(duration_ns // (10 * MILLISECOND)):
            self.clock.move(10 * MILLISECOND)
            self.session.tick()

    def finish(self) -> tuple[dict[str, list[int]], int]:
        """Outcomes by address, and how many marks."""
        self.session.configure([])
        self.pass_time(2 * SECOND)
        batches = self.session.drain(self.clock.monotonic_ns())
        assert list(samples(batches))
        return outcomes_by_address(batches, self.session.definitions), sum(len(batch.marks) for batch in batches)


REPORTS = st.builds(
    ErrorReport,
    st.sampled_from([ORIGIN_ICMP, ORIGIN_ICMP6, 0, 1, 5, 255]),
    st.sampled_from([errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EMSGSIZE, 0, 4095]),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**63 - 1),
)
FROM = st.sampled_from([V4, V6, "192.0.2.9", "::", "", "fe80::1%eth0", "no address"])


@given(
    packets=st.lists(st.tuples(st.binary(max_size=120), FROM), max_size=20),
    quotes=st.lists(st.tuples(st.binary(max_size=120), FROM, REPORTS), max_size=20),
)
@settings(max_examples=60)
def test_garbage_never_makes_or_unmakes_an_echo_reply(
    packets: Sequence[tuple[bytes, str]], quotes: Sequence[tuple[bytes, str, ErrorReport]]
) -> None:
    bench = Bench()
    bench.pass_time(2200 * MILLISECOND)
    for opened in bench.network.sockets:
        now = bench.clock.monotonic_ns()
        for data, address in packets:
            header = IPV4_HEADER if opened.source.ip_version == 4 else b""
            opened._replies.append((now, header + data, address, 64))
            opened._replies.append((now, data, address, 64))
        opened._errors += [(now, quoted, address, report) for quoted, address, report in quotes]
    outcomes, marks = bench.finish()
    assert {address: set(found) for address, found in outcomes.items()} == {V4: {REPLIED}, V6: {REPLIED}}
    assert marks == 0


@given(data=st.data())
@settings(max_examples=60)
def test_damaged_replies_and_quotes_give_an_outcome_of_their_packet_or_nothing(data: st.DataObject) -> None:
    bench = Bench()
    bench.network.hosts[V4].damage = lambda reply: damage(reply, data)
    bench.network.hosts[V6].damage = lambda reply: damage(reply, data)
    bench.pass_time(1200 * MILLISECOND)
    for opened in bench.network.sockets:
        for address, packet in list(bench.network.sent):
            opened.report(damage(packet, data), address)
        key = data.draw(st.integers(-1, 2**32))
        stamp = ErrorReport(ORIGIN_TIMESTAMPING, 42, 0, 0, key, data.draw(st.integers(0, 2**62)))
        opened._errors.append((bench.clock.monotonic_ns(), b"", "", stamp))
    outcomes, _ = bench.finish()
    known = {REPLIED, PACKET_OUTCOME_CORRUPT, PACKET_OUTCOME_UNREACHABLE, pb.PACKET_OUTCOME_LOST}
    assert {outcome for found in outcomes.values() for outcome in found} <= known


# ---------------------------------------------------------------- plans, at the agent


def signed(plan: Plan, payload: bytes | None = None) -> pb.SignedBatch:
    record = pb.Record(salt=b"s" * 16, plan_issued=pb.PlanIssued(node="n1", plan=plan.SerializeToString()))
    header = pb.Header(
        agent_id="collector",
        chain_id=b"c" * 16,
        batch_class=pb.BATCH_CLASS_CONTROL,
        public_key=SIGNER.public_key().public_bytes_raw(),
    )
    records = [record.SerializeToString() if payload is None else payload]
    return chain.seal(header, records, chain.ORIGIN, SIGNER.sign)


def offered(batch: pb.SignedBatch) -> bool:
    with tempfile.TemporaryDirectory() as name:
        keeper = PlanKeeper(Path(name), "n1")
        keeper.load()
        keeper.pin("collector", SIGNER.public_key().public_bytes_raw())
        try:
            return keeper.offer(batch, START_NS) is not None
        except PlanError:
            return False


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=80))
@settings(max_examples=60)
def test_a_plan_of_garbage_is_refused(header: bytes, payload: bytes, signature: bytes) -> None:
    assert not offered(pb.SignedBatch(header=header, payload=payload, signature=signature))


@given(data=st.data())
@settings(max_examples=100)
def test_a_damaged_plan_is_refused(data: st.DataObject) -> None:
    """Also one that the collector signed as it is: what it holds is no plan."""
    good = signed(Plan(version=3, node="n1", issued_time_ns=START_NS, expiry_time_ns=START_NS + SECOND))
    field = data.draw(st.sampled_from(["header", "payload", "signature", "record"]))
    if field == "record":
        payload = chain.read_payload(chain.read_header(good.header), good.payload)[0]
        offered(signed(Plan(), damage(payload, data)))  # may still be a plan
        return
    before = getattr(good, field)
    after = damage(before, data)
    setattr(good, field, after)
    assert offered(good) == (before == after)


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_a_kept_plan_of_garbage_is_a_state(kept: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / PLAN_FILE).write_bytes(kept)
        assert PlanKeeper(Path(name), "n1").load() is None


# ---------------------------------------------------------------- batches, at the collector


async def nothing(_: ChainKey, __: int) -> Stored:
    return ()


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=80), st.data())
@settings(max_examples=150)
def test_any_batch_is_judged_or_of_another_agent(
    header: bytes, payload: bytes, signature: bytes, data: st.DataObject
) -> None:
    good = FakeChain().next()
    match data.draw(st.sampled_from(["garbage", "header", "payload", "signature"])):
        case "garbage":
            batch = pb.SignedBatch(header=header, payload=payload, signature=signature)
        case "header":
            batch = pb.SignedBatch(header=damage(good.header, data), payload=good.payload, signature=good.signature)
        case "payload":
            batch = pb.SignedBatch(header=good.header, payload=damage(good.payload, data), signature=good.signature)
        case _:
            batch = pb.SignedBatch(header=good.header, payload=good.payload, signature=damage(good.signature, data))
    try:
        judged = asyncio.run(AgentChains("n1", {}, nothing).judge(batch, START_NS))
    except WrongAgentError:
        return
    # Without its payload it is one that was dropped on the way, and stands.
    assert batch == good or judged.arrival.quarantine or judged.duplicate or not batch.payload


# ---------------------------------------------------------------- queries

OPENAPI = "/api/v1/openapi.json"
NAMES = ("from", "to", "cursor", "limit", "active", "node", "nic", "path", "counter", "step", "kind", "job", "lane")
VALUES = st.one_of(
    st.text(max_size=30),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["2026-12-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-01-01", "nan", "1e400", "ffffffffffffffff"]),
)


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_is_more_than_refused(client: TestClient, data: st.DataObject) -> None:
    paths = sorted(client.get(OPENAPI).json()["paths"])
    path = data.draw(st.sampled_from(paths))
    while "{" in path:
        start, end = path.index("{"), path.index("}")
        filling = data.draw(
            st.text(
                st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/?#%\\", codec="utf-8"),
                min_size=1,
                max_size=10,
            )
        )
        path = path[:start] + filling + path[end + 1 :]
    query: list[tuple[str, str | int | float | bool | None]] = data.draw(
        st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5)
    )
    answer = client.get(path, params=query)
    assert answer.status_code < 500, (path, query, answer.text)
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
