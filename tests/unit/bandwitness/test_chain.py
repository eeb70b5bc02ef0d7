"""Sealing and checking: every kind of tampering has its own name, and openssl alone can check a batch."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from bandwitness import chain
from bandwitness.chain import ChainError, ChainFault, Tip
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, Gap, Header, Record, SignedBatch

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)


def records(count: int) -> list[bytes]:
    return [Record(salt=bytes([index]) * 16, gap=Gap(from_time_ns=index)).SerializeToString() for index in range(count)]


def header() -> Header:
    return Header(
        agent_id="gpu-r1-01",
        chain_id=b"c" * 16,
        batch_class=BATCH_CLASS_EVIDENCE,
        public_key=KEY.public_key().public_bytes_raw(),
    )


def sealed(length: int) -> list[SignedBatch]:
    tip, batches = chain.ORIGIN, []
    for count in range(length):
        batches.append(chain.seal(header(), records(count), tip, KEY.sign))
        tip = Tip(count + 1, chain.header_hash(batches[-1].header))
    return batches


def verify(batches: list[SignedBatch]) -> None:
    tip = chain.ORIGIN
    for batch in batches:
        parsed = chain.read_header(batch.header)
        chain.check_signature(batch.header, parsed, batch.signature)
        chain.check_link(parsed, tip)
        if batch.payload or not parsed.record_count:
            chain.read_payload(parsed, batch.payload)
        tip = Tip(parsed.seq, chain.header_hash(batch.header))


def test_a_chain_verifies() -> None:
    verify(sealed(5))


def test_a_withheld_payload_leaves_the_chain_whole() -> None:
    batches = sealed(5)
    batches[3].payload = b""
    verify(batches)


def _rewrite(batches: list[SignedBatch], index: int, change: Callable[[Header], None], *, sign: bool) -> None:
    parsed = Header.FromString(batches[index].header)
    change(parsed)
    batches[index].header = parsed.SerializeToString(deterministic=True)
    if sign:
        batches[index].signature = KEY.sign(batches[index].header)


def flip_payload(batches: list[SignedBatch]) -> None:
    batches[3].payload = batches[3].payload[:-1] + bytes([batches[3].payload[-1] ^ 1])


def swap_records(batches: list[SignedBatch]) -> None:
    batches[3].payload = sealed(5)[4].payload


def delete_middle(batches: list[SignedBatch]) -> None:
    del batches[2]


def cut_head(batches: list[SignedBatch]) -> None:
    del batches[:2]


def swap_order(batches: list[SignedBatch]) -> None:
    batches[1], batches[2] = batches[2], batches[1]


def edit_header(batches: list[SignedBatch]) -> None:
    _rewrite(batches, 2, lambda parsed: setattr(parsed, "last_event_time_ns", 7), sign=False)


def rewrite_with_own_signature(batches: list[SignedBatch]) -> None:
    _rewrite(batches, 2, lambda parsed: setattr(parsed, "last_event_time_ns", 7), sign=True)


def forge_signature(batches: list[SignedBatch]) -> None:
    batches[2].signature = Ed25519PrivateKey.generate().sign(batches[2].header)


def garbage_header(batches: list[SignedBatch]) -> None:
    batches[2].header = b"\xff\xff\xff"


def other_algorithm(batches: list[SignedBatch]) -> None:
    _rewrite(batches, 2, lambda parsed: parsed.ClearField("hash_algorithm"), sign=True)


def garbage_payload(batches: list[SignedBatch]) -> None:
    batches[3].payload = b"\xff\xff\xff"


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (flip_payload, ChainFault.PAYLOAD_MISMATCH),
        (swap_records, ChainFault.PAYLOAD_MISMATCH),
        (delete_middle, ChainFault.GAP),
        (cut_head, ChainFault.GAP),
        (swap_order, ChainFault.GAP),
        (edit_header, ChainFault.BAD_SIGNATURE),
        (rewrite_with_own_signature, ChainFault.BROKEN_LINK),
        (forge_signature, ChainFault.BAD_SIGNATURE),
        (garbage_header, ChainFault.UNREADABLE_HEADER),
        (other_algorithm, ChainFault.UNSUPPORTED_ALGORITHM),
        (garbage_payload, ChainFault.UNREADABLE_PAYLOAD),
    ],
)
def test_damage_has_its_name(damage: Callable[[list[SignedBatch]], None], fault: ChainFault) -> None:
    batches = sealed(5)
    damage(batches)
    with pytest.raises(ChainError) as caught:
        verify(batches)
    assert caught.value.fault == fault


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_a_chain_error(garbage: bytes) -> None:
    try:
        parsed = chain.read_header(garbage)
        chain.check_signature(garbage, parsed, garbage[:64])
    except ChainError:
        return
    raise AssertionError("garbage passed for a signed header")


def test_openssl_and_protoc_alone_check_a_batch(tmp_path: Path) -> None:
    """The steps of proto/bandwitness/README.md, section 1."""
    first, second = sealed(2)
    (tmp_path / "key.pem").write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "header.bin").write_bytes(first.header)
    (tmp_path / "signature.bin").write_bytes(first.signature)
    verify_command = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in header.bin -sigfile signature.bin"
    subprocess.run(verify_command.split(), cwd=tmp_path, check=True, capture_output=True)

    proto = Path(__file__).parents[3] / "proto"
    decode = ["protoc", "--decode", "bandwitness.v1.Header", "-I", str(proto), "bandwitness/v1/record.proto"]
    text = subprocess.run(decode, input=first.header, check=True, capture_output=True).stdout.decode()
    assert 'agent_id: "gpu-r1-01"' in text
    assert "seq: 1" in text

    digest = subprocess.run(["sha256sum", "header.bin"], cwd=tmp_path, check=True, capture_output=True).stdout.split()[
        0
    ]
    assert Header.FromString(second.header).previous_header_hash.hex() == digest.decode()

    (tmp_path / "header.bin").write_bytes(first.header[:-1] + bytes([first.header[-1] ^ 1]))
    assert subprocess.run(verify_command.split(), cwd=tmp_path, check=False, capture_output=True).returncode != 0
