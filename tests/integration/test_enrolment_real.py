"""Enrolment, renewal and revocation over real ports: who gets in, who does not, and what is on record of it."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from agent.enrol.files import Request, keep, make_request
from agent.enrol.issue import IssueError, renew
from agent.enrol.pin import PinError, parse_fingerprint, pinned, shown_chain
from bandwitness.v1.record_pb2 import IdentityEvent
from collector.config import Tls
from collector.enrol.authority import nodes_of
from collector.log import LogError
from tests.fakes.batches import FakeChain
from tests.fakes.trust import Trusting, credentials, make_certificates, trusting
from tests.fakes.uplink_client import UplinkClient


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return make_certificates(tmp_path_factory.mktemp("pki"), ("n3",))


@pytest.fixture
async def running(tmp_path: Path, tls: Tls) -> AsyncIterator[Trusting]:
    async with trusting(tmp_path, tls) as one:
        yield one


def words_of(running: Trusting) -> list[str]:
    return [IdentityEvent.Name(event.event).removeprefix("IDENTITY_EVENT_").lower() for event in running.events()]


async def refused(client: UplinkClient) -> tuple[grpc.StatusCode, str]:
    """How a Hello is answered by a collector that lets its sender not in."""
    try:
        await client.hello("n1")
    except grpc.aio.AioRpcError:
        return await client.status()  # a write that failed knows less than the end of the stream
    raise AssertionError("it was welcomed")


async def test_a_token_gets_a_node_its_certificate_once_and_on_record(running: Trusting, tmp_path: Path) -> None:
    files = await running.enrolled("n1", tmp_path / "n1")
    assert [oct(path.stat().st_mode & 0o777) for path in (files.ca, files.certificate)] == ["0o600", "0o600"]
    chain = FakeChain()
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        await client.hello("n1", [chain])
        await client.send(chain.next())
        await client.acknowledged(1)
    (event,) = running.events()
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert event.node == "n1"
    assert event.certificate_sha256 == certificate.fingerprint(hashes.SHA256())
    assert event.token_id
    assert {token.state(0) for token in running.identities.registry.tokens.values()} == {"used"}


async def test_the_certificate_holds_nothing_of_the_request_but_its_key(running: Trusting) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n2")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier("bandwitness://node/n2"), x509.DNSName("collector")]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    issued = await running.ask(await running.token("n1"), Request(pem, request.public_bytes(Encoding.DER)))
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert nodes_of(certificate) == ["n1"]
    assert len(list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)) == 1
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert certificate.subject.rfc4514_string() == "CN=n1"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one.dotted_string for one in usage] == ["1.3.6.1.5.5.7.3.2"]  # clientAuth alone


async def test_a_token_that_does_not_count_gets_nothing(running: Trusting) -> None:
    request = make_request("n1")
    good = await running.token("n1")
    expired = await running.token("n1", ttl_ns=-1)
    revoked = await running.token("n1")
    await running.identities.revoke_token(revoked.split("_")[1])
    reader = (await running.identities.create_token("read", "", None))[1]
    for text, words in (
        ("", "no such token"),
        ("bwe_00_x", "no such token"),
        (good[:-1] + ("A" if good[-1] != "A" else "B"), "no such token"),
        (reader, "no such token"),
        (reader.replace("bwr", "bwe"), "no such token"),
        (expired, "the token is expired"),
        (revoked, "the token is revoked"),
    ):
        with pytest.raises(IssueError, match=words):
            await running.ask(text, request)
    with pytest.raises(IssueError, match="the token is for n1, this agent is called n2"):
        await running.ask(good, make_request("n2"), "n2")
    assert running.events() == []
    await running.ask(good, request, "n1")  # none of that has used it up
    with pytest.raises(IssueError, match="the token is used"):
        await running.ask(good, make_request("n1"))
    assert words_of(running) == ["enrolled"]


async def test_an_answer_that_was_lost_can_be_asked_for_again_with_the_same_key(running: Trusting) -> None:
    token, request = await running.token("n1"), make_request("n1")
    first, second = await running.ask(token, request), await running.ask(token, request)
    assert running.identities.refusal("n1", _sha(second.certificate)) == ""
    assert "counts no more" in running.identities.refusal("n1", _sha(first.certificate))


def _sha(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256())


@pytest.mark.parametrize("wrong", ["garbage", "unsigned", "rsa", "p384"])
async def test_a_request_that_is_no_good_leaves_the_token_as_it_is(running: Trusting, wrong: str) -> None:
    good = make_request("n1")
    body = {"garbage": b"\x30\x80\xff", "unsigned": good.certificate_request[:-2] + b"\0\1"}.get(wrong, b"")
    if wrong in ("rsa", "p384"):
        key = rsa.generate_private_key(65537, 2048) if wrong == "rsa" else ec.generate_private_key(ec.SECP384R1())
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        body = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    token = await running.token("n1")
    with pytest.raises(IssueError):
        await running.ask(token, Request(b"", body))
    await running.ask(token, good)


async def test_nothing_is_sent_to_an_authority_with_another_fingerprint(running: Trusting) -> None:
    chain = await asyncio.to_thread(shown_chain, running.enrolment)
    right = parse_fingerprint(running.authority.fingerprint)
    assert pinned(chain, right, running.enrolment).encode() == running.authority.pem
    with pytest.raises(PinError, match="The token was not sent"):
        pinned(chain, bytes(32), running.enrolment)
    stranger = make_request("x")  # any certificate that is not the collector's authority
    assert stranger.certificate_request
    other = Path(running.tls.ca).with_name("n3.pem").read_text()
    with pytest.raises(IssueError, match="cannot be reached"):
        await asyncio.to_thread(_enrol_under, running, other)
    assert not running.identities.outcomes


def _enrol_under(running: Trusting, ca: str) -> None:
    from agent.enrol.issue import enrol

    enrol(running.enrolment, ca, token="bwe_1_x", node="", request=make_request(""), sleep=lambda _: None)


async def test_a_renewed_certificate_is_used_next_and_the_stream_that_stands_is_not_harmed(
    running: Trusting, tmp_path: Path
) -> None:
    files = await running.enrolled("n1", tmp_path / "n1")
    before, chain = files.certificate.read_bytes(), FakeChain()
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        await client.hello("n1", [chain])
        request = make_request("")
        issued = await asyncio.to_thread(renew, running.stream, files, request)
        keep(files, request, issued.certificate, issued.ca)
        await client.send(chain.next())
        await client.acknowledged(1)
    assert files.certificate.read_bytes() != before
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        await client.hello("n1", [chain])
    assert words_of(running) == ["enrolled", "renewed"]


async def test_a_node_with_a_certificate_from_elsewhere_is_let_in_and_stays_so(running: Trusting) -> None:
    pki = Path(running.tls.ca).parent
    own = grpc.ssl_channel_credentials(*(pki.joinpath(n).read_bytes() for n in ("ca.pem", "n3.key", "n3.pem")))
    async with UplinkClient(str(running.stream), own) as client:
        await client.hello("n3")
    await running.identities.revoke("n3", "")
    async with UplinkClient(str(running.stream), own) as client:
        assert (await refused(client))[0] == grpc.StatusCode.PERMISSION_DENIED
    await running.identities.admit("n3", (pki / "n3.pem").read_bytes())
    async with UplinkClient(str(running.stream), own) as client:
        await client.hello("n3")
    assert words_of(running) == ["revoked", "admitted"]


async def test_a_revoked_node_is_out_at_once_and_in_again_with_a_new_token_only(
    running: Trusting, tmp_path: Path
) -> None:
    files = await running.enrolled("n1", tmp_path / "n1")
    unused = await running.token("n1")
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        await client.hello("n1")
        await running.identities.revoke("n1", "sold")
        code, words = await client.status()
    assert code == grpc.StatusCode.PERMISSION_DENIED
    assert words.startswith("the node n1 was revoked on ")
    assert ": sold;" in words
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        assert (await refused(client))[0] == grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(IssueError, match="was revoked"):
        await asyncio.to_thread(renew, running.stream, files, make_request(""))
    with pytest.raises(IssueError, match="the token is revoked"):
        await running.ask(unused, make_request("n1"))
    old = tmp_path / "old.pem"
    shutil.copy(files.certificate, old)
    await running.enrolled("n1", tmp_path / "n1")
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        await client.hello("n1")
    stolen = grpc.ssl_channel_credentials(files.ca.read_bytes(), old.read_bytes(), old.read_bytes())
    async with UplinkClient(str(running.stream), stolen) as client:
        code, words = await refused(client)
    assert "counts no more" in words
    assert words_of(running) == ["enrolled", "revoked", "enrolled"]


async def test_a_node_cannot_speak_for_another(running: Trusting, tmp_path: Path) -> None:
    files = await running.enrolled("n2", tmp_path / "n2")
    async with UplinkClient(str(running.stream), credentials(files)) as client:
        code, words = await refused(client)
    assert (code, words) == (grpc.StatusCode.PERMISSION_DENIED, "the certificate is of n2, Hello of n1")


async def test_what_the_registry_lacks_is_taken_up_from_the_control_chain(tmp_path: Path, tls: Tls) -> None:
    key = Ed25519PrivateKey.generate()
    async with trusting(tmp_path, tls, key=key) as one:
        kept = await one.enrolled("n1", tmp_path / "n1")
        lost = await one.enrolled("n2", tmp_path / "n2")
        await one.identities.revoke("n2", "gone")
    (tmp_path / "identity.sqlite").unlink()
    async with trusting(tmp_path, tls, key=key) as one:
        assert one.identities.refusal("n1", _sha(kept.certificate.read_bytes())) == ""
        assert "was revoked" in one.identities.refusal("n2", _sha(lost.certificate.read_bytes()))
        assert one.identities.registry.tokens == {}


async def test_nothing_takes_effect_that_cannot_be_put_on_record(
    running: Trusting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: object) -> None:
        raise LogError("disk_full", "no space left")

    files = await running.enrolled("n1", tmp_path / "n1")
    token = await running.token("n2")
    monkeypatch.setattr(running.control, "write", full)
    with pytest.raises(Exception, match="nothing can be put on record"):
        await running.identities.revoke("n1", "")
    with pytest.raises(IssueError, match="nothing can be put on record"):
        await running.ask(token, make_request("n2"))
    assert running.identities.refusal("n1", _sha(files.certificate.read_bytes())) == ""
    assert "n2" not in running.identities.registry.nodes


# ---------------------------------------------------------------- strangers


async def test_the_enrolment_port_serves_nothing_else_and_the_stream_port_nobody_without_a_certificate(
    running: Trusting,
) -> None:
    anybody = grpc.ssl_channel_credentials(running.authority.pem)
    async with UplinkClient(str(running.enrolment), anybody) as client:
        assert (await refused(client))[0] == grpc.StatusCode.UNIMPLEMENTED
    async with UplinkClient(str(running.stream), anybody) as client:
        assert (await refused(client))[0] == grpc.StatusCode.UNAVAILABLE


async def test_guessing_is_slowed_down_and_others_are_not_in_its_way(running: Trusting) -> None:
    request, seen = make_request("n1"), set()
    async with grpc.aio.secure_channel(
        str(running.enrolment), grpc.ssl_channel_credentials(running.authority.pem)
    ) as channel:
        from bandwitness.v1.uplink_pb2 import EnrolRequest

        enrol: Any = channel.unary_unary("/bandwitness.v1.Enrolment/Enrol")
        for _ in range(12):
            message = EnrolRequest(token="bwe_1_guess", certificate_request=request.certificate_request)
            try:
                await enrol(message.SerializeToString())
            except grpc.aio.AioRpcError as error:
                seen.add(error.code())
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await enrol(bytes(32 * 1024))
    assert seen == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert large.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert running.identities.outcomes["too_many"] == 2


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_garbage_silence_and_a_port_scan_leave_both_ports_well(running: Trusting, tmp_path: Path) -> None:
    files, chain = await running.enrolled("n1", tmp_path / "n1"), FakeChain()
    token, request = await running.token("n2"), make_request("n2")
    before = _open_files()

    def attack() -> list[socket.socket]:
        held = []
        for address in (running.enrolment, running.stream):
            for number in range(150):
                one = socket.create_connection((address.host, address.port), 5)
                if number % 3 == 0:
                    one.sendall(os.urandom(512))
                elif number % 3 == 1:
                    one.sendall(b"\x16\x03\x01")  # the start of a ClientHello that never goes on
                held.append(one)
        return held

    held = await asyncio.to_thread(attack)
    try:
        async with UplinkClient(str(running.stream), credentials(files)) as client:
            await client.hello("n1", [chain])
            await client.send(chain.next())
            await client.acknowledged(1)
    finally:
        for one in held:
            one.close()
    await running.ask(token, request)
    deadline = asyncio.get_running_loop().time() + 20
    while _open_files() > before + 20:
        assert asyncio.get_running_loop().time() < deadline, "descriptors are not given back"
        await asyncio.sleep(0.05)


async def test_the_collectors_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "pki")
    async with trusting(tmp_path / "state", tls) as running:
        files = await running.enrolled("n1", tmp_path / "n1")
        async with UplinkClient(str(running.stream), credentials(files)) as standing:
            chain = FakeChain()
            await standing.hello("n1", [chain])
            first = await asyncio.to_thread(shown_chain, running.stream)
            for name in ("collector.pem", "collector.key"):
                (tmp_path / "pki" / name).unlink()
            make_certificates(tmp_path / "pki")
            for address in (running.stream, running.enrolment):
                assert (await asyncio.to_thread(shown_chain, address))[0] != first[0]
            await standing.send(chain.next())
            await standing.acknowledged(1)
        (tmp_path / "pki/collector.pem").write_text("damaged")
        async with UplinkClient(str(running.stream), credentials(files)) as client:
            await client.hello("n1")
