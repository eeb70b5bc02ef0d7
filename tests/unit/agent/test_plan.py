"""Which plan is taken, which is refused, and what survives a restart."""

from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.plan import MAX_PINS, PLAN_FILE, PlanError, PlanKeeper
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Plan

SECOND = 1_000_000_000
NOW = 1_767_225_600 * SECOND
NODE = "gpu-r1-01"


class Collector:
    """Signs plans."""

    def __init__(self, seed: int = 1, name: str = "collector") -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public_key = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.name = name

    def batch(
        self,
        *plans: Plan,
        batch_class: "pb.BatchClass.ValueType" = pb.BATCH_CLASS_CONTROL,
    ) -> pb.SignedBatch:
        records = [
            pb.Record(salt=b"s" * 16, plan_issued=pb.PlanIssued(node=plan.node, plan=plan.SerializeToString()))
            for plan in plans
        ]
        header = pb.Header(agent_id=self.name, chain_id=b"c" * 16, batch_class=batch_class, public_key=self.public_key)
        return chain.seal(header, [record.SerializeToString() for record in records], chain.ORIGIN, self.key.sign)


def plan(version: int = 1, node: str = NODE, expires_in_s: int = 86_400) -> Plan:
    return Plan(version=version, node=node, issued_time_ns=NOW, expiry_time_ns=NOW + expires_in_s * SECOND)


def keeper(directory: Path, collector: Collector | None = None) -> PlanKeeper:
    kept = PlanKeeper(directory, NODE)
    kept.load()
    collector = collector or Collector()
    kept.pin(collector.name, collector.public_key)
    return kept


def test_a_valid_plan_is_kept_through_a_restart(tmp_path: Path) -> None:
    batch = Collector().batch(plan(3))
    offered = keeper(tmp_path).offer(batch, NOW)
    assert offered is not None
    assert offered.plan == plan(3)
    assert offered.plan_hash == sha256(plan(3).SerializeToString()).digest()
    assert offered.head == chain.header_hash(batch.header)
    assert keeper(tmp_path).current == offered
    assert (tmp_path / PLAN_FILE).read_bytes() == batch.SerializeToString()
    assert keeper(tmp_path).state(NOW).state == "ok"


def test_the_higher_version_wins_and_the_same_plan_is_no_news(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    kept.offer(Collector().batch(plan(3)), NOW)
    assert kept.offer(Collector().batch(plan(3)), NOW) is None
    for version in (2, 3):
        with pytest.raises(PlanError, match=f"version {version} is not above 3"):
            kept.offer(Collector().batch(plan(version, expires_in_s=99)), NOW)
    newer = kept.offer(Collector().batch(plan(4)), NOW)
    assert newer is not None
    assert kept.current == newer


def test_a_collector_that_counts_anew_is_heard_once_the_plan_has_expired(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    kept.offer(Collector().batch(plan(9, expires_in_s=60)), NOW)
    later = NOW + 60 * SECOND
    assert kept.state(later).state == "plan_expired"
    assert kept.offer(Collector().batch(plan(1)), later) is not None


def test_an_expired_plan_still_loads_but_says_so(tmp_path: Path) -> None:
    keeper(tmp_path).offer(Collector().batch(plan(expires_in_s=60)), NOW)
    kept = keeper(tmp_path)
    assert kept.current is not None
    assert not kept.current.expired(NOW + 59 * SECOND)
    state = kept.state(NOW + 60 * SECOND)
    assert (state.working, state.state) == (False, "plan_expired")
    assert "no throughput tests" in state.detail


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (Collector(seed=2).batch(plan()), "not signed with the pinned key"),
        (Collector(name="another").batch(plan()), "not signed with the pinned key of collector another"),
        (Collector().batch(plan(node="gpu-r1-02")), "0 plans for gpu-r1-01"),
        (Collector().batch(plan(1), plan(2)), "2 plans for gpu-r1-01"),
        (Collector().batch(), "0 plans"),
        (Collector().batch(plan(version=0)), "has no version"),
        (Collector().batch(plan(), batch_class=pb.BATCH_CLASS_EVIDENCE), "not a control batch"),
        (pb.SignedBatch(header=b"\xff"), "unreadable_header"),
        (pb.SignedBatch(), "unreadable_header"),
    ],
)
def test_what_is_not_a_plan_for_us_is_refused_and_nothing_changes(
    tmp_path: Path, batch: pb.SignedBatch, why: str
) -> None:
    kept = keeper(tmp_path)
    with pytest.raises(PlanError, match=why):
        kept.offer(batch, NOW)
    assert kept.current is None
    assert not (tmp_path / PLAN_FILE).exists()


@pytest.mark.parametrize("field", ["header", "payload", "signature"])
def test_a_changed_byte_anywhere_is_refused(tmp_path: Path, field: str) -> None:
    batch = Collector().batch(plan())
    changed = bytearray(getattr(batch, field))
    changed[-1] ^= 1
    setattr(batch, field, bytes(changed))
    with pytest.raises(PlanError):
        keeper(tmp_path).offer(batch, NOW)


def test_the_collectors_key_is_pinned_at_first_sight(tmp_path: Path) -> None:
    keeper(tmp_path)
    kept = PlanKeeper(tmp_path, NODE)
    kept.load()
    kept.pin("collector", Collector().public_key)
    with pytest.raises(PlanError, match=r"another key than before.*remove .*collectors\.json"):
        kept.pin("collector", Collector(seed=2).public_key)
    kept.pin("second", Collector(seed=2).public_key)


def test_pins_are_bounded_and_checked(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    with pytest.raises(PlanError, match="no name or no key"):
        kept.pin("", Collector().public_key)
    with pytest.raises(PlanError, match="no name or no key"):
        kept.pin("short", b"key")
    for i in range(MAX_PINS - 1):
        kept.pin(f"collector-{i}", Collector().public_key)
    with pytest.raises(PlanError, match="collectors are known already"):
        kept.pin("one-more", Collector().public_key)


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"\x0a\x02"])
def test_a_damaged_plan_file_is_a_state(tmp_path: Path, content: bytes) -> None:
    keeper(tmp_path)
    (tmp_path / PLAN_FILE).write_bytes(content)
    kept = keeper(tmp_path)
    assert kept.current is None
    assert "cannot be used" in kept.state(NOW).detail
    assert kept.offer(Collector().batch(plan()), NOW) is not None
    assert kept.state(NOW).state == "ok"


@pytest.mark.parametrize("content", ["", "[]", "[" * 60_000, '{"collector": 5}', '{"collector": "zz"}'])
def test_damaged_pins_are_a_state_with_the_cure(tmp_path: Path, content: str) -> None:
    (tmp_path / "collectors.json").write_text(content)
    kept = PlanKeeper(tmp_path, NODE)
    assert kept.load() is None
    assert "remove it to trust" in kept.state(NOW).detail
    with pytest.raises(PlanError, match="remove it to trust"):
        kept.pin("collector", Collector().public_key)


def test_without_a_plan_the_state_says_what_is_waited_for(tmp_path: Path) -> None:
    state = keeper(tmp_path).state(NOW)
    assert (state.working, state.state) == (False, "no_plan")
    assert "waiting for a plan" in state.detail
