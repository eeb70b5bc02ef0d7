"""What counts and what does not, as events come; and the file that keeps it."""

from pathlib import Path

import pytest

from bandwitness.v1.record_pb2 import (
    IDENTITY_EVENT_ADMITTED,
    IDENTITY_EVENT_ENROLLED,
    IDENTITY_EVENT_RENEWED,
    IDENTITY_EVENT_REVOKED,
    NodeIdentity,
)
from collector.enrol.registry import KEEP_ENDED_NS, MAX_TOKENS, Registry, RegistryError
from collector.enrol.tokens import Token, id_of, make

DAY_NS = 86_400 * 10**9


def event(kind: int, sha: bytes = b"", *, node: str = "n1", not_after_ns: int = 90 * DAY_NS) -> NodeIdentity:
    return NodeIdentity(
        node=node,
        event=kind,  # type: ignore[arg-type]
        certificate_sha256=sha,
        not_after_time_ns=not_after_ns,
    )


def test_what_counts_follows_the_events_and_outlives_a_restart(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r")
    assert registry.refusal("n1", b"a") == ""  # never enrolled here: certificates come from elsewhere
    steps: tuple[tuple[NodeIdentity, set[str]], ...] = (
        (event(IDENTITY_EVENT_RENEWED, b"z"), {"a", "b", "c", "d", "z"}),  # likewise
        (event(IDENTITY_EVENT_ENROLLED, b"a"), {"a"}),
        (event(IDENTITY_EVENT_RENEWED, b"b"), {"a", "b"}),
        (event(IDENTITY_EVENT_REVOKED), set()),
        (event(IDENTITY_EVENT_ENROLLED, b"c"), {"c"}),
        (event(IDENTITY_EVENT_ADMITTED, b"d"), {"d"}),
    )
    for seq, (each, counting) in enumerate(steps):
        registry.apply(each, seq, (b"chain", seq))
        registry.close()
        registry = Registry(tmp_path / "r")
        assert {sha for sha in "abcdz" if not registry.refusal("n1", sha.encode())} == counting
        assert registry.refusal("n2", b"a") == ""
    assert registry.applied_seq(b"chain") == len(steps) - 1
    assert registry.applied_seq(b"another") == 0
    assert [one.sha256 for one in registry.valid_of("n1", 0)] == [b"d"]
    registry.apply(event(IDENTITY_EVENT_ENROLLED, b"e"), 91 * DAY_NS + KEEP_ENDED_NS, (b"chain", 9))
    assert set(registry.certificates) == {b"e"}
    registry.close()


def test_a_certificate_of_one_node_does_not_count_for_another(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r")
    registry.apply(event(IDENTITY_EVENT_ENROLLED, b"a"), 1, (b"", 1))
    registry.apply(event(IDENTITY_EVENT_ENROLLED, b"b", node="n2"), 1, (b"", 2))
    assert registry.refusal("n1", b"b")
    registry.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "r"
    Registry(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(RegistryError, match="open to others"):
        Registry(path)
    path.chmod(0o600)
    path.write_bytes(b"no database" * 100)
    with pytest.raises(RegistryError, match="made anew from the control chain"):
        Registry(path)


def test_tokens_are_kept_by_their_hash_and_not_for_ever(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r")
    token, text = make("enrol", "n1", 0, DAY_NS)
    registry.put_token(token, now_ns=0)
    assert id_of("enrol", text) == token.token_id
    assert token.matches(text)
    assert not token.matches(text + "x")
    registry.close()
    assert text.rpartition("_")[2].encode() not in (tmp_path / "r").read_bytes()
    registry = Registry(tmp_path / "r")
    assert registry.tokens == {token.token_id: token}
    other, _ = make("read", "", 0, None)
    registry.put_token(other, now_ns=DAY_NS + KEEP_ENDED_NS + 1)
    assert set(registry.tokens) == {other.token_id}
    registry.tokens.update({str(number): other for number in range(MAX_TOKENS)})
    with pytest.raises(RegistryError, match="revoke some"):
        registry.put_token(token, now_ns=0)
    registry.close()


@pytest.mark.parametrize("text", ["", "bwe", "bwe__x", "bwe_1_", "bwr_1_x", "bwe_1_" + "x" * 200, "bwe_1_é", "\0"])
def test_what_is_no_token_has_no_id(text: str) -> None:
    assert id_of("enrol", text) is None


def test_a_tokens_state() -> None:
    token = Token("1", "enrol", "n1", b"", 0, 10)
    assert [token.state(now) for now in (0, 9, 10)] == ["open", "open", "expired"]
