"""When a certificate is renewed, and what is said where it cannot be."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.config import Address, IdentityFiles, enrolled_files
from agent.enrol.files import IdentityFilesError, Request, keep, make_request
from agent.enrol.issue import IssueError
from agent.enrol.look import look
from agent.enrol.pin import parse_fingerprint
from bandwitness.v1.uplink_pb2 import IssuedIdentity

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY_S = 86_400
COLLECTORS = [Address("10.0.0.1", 7443), Address("10.0.0.2", 7443)]


def certificate(request: Request, start: datetime = START, days: int = 90) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    public = x509.load_der_x509_csr(request.certificate_request).public_key()
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([])).serial_number(1)
    builder = builder.public_key(public).not_valid_before(start).not_valid_after(start + timedelta(days=days))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.fixture
def files(tmp_path: Path) -> IdentityFiles:
    found, request = enrolled_files(tmp_path), make_request("n1")
    issued = certificate(request)
    keep(found, request, issued, issued)
    return found


def at(day: float) -> float:
    return START.timestamp() + day * DAY_S


def test_nothing_is_asked_before_two_thirds_of_the_time(files: IdentityFiles) -> None:
    def ask(*_: object) -> IssuedIdentity:
        raise AssertionError("too early")

    early = look(files, COLLECTORS, renewable=True, now_s=at(10), ask=ask)
    assert (early.working, early.state, early.again_s) == (True, "ok", 6 * 3600)
    assert look(files, COLLECTORS, renewable=True, now_s=at(59.9), ask=ask).again_s == pytest.approx(0.1 * DAY_S)
    assert look(files, COLLECTORS, renewable=True, now_s=at(65), spread=1, ask=ask).state == "ok"


def test_then_the_collectors_are_asked_in_turn_with_a_new_key(files: IdentityFiles) -> None:
    asked: list[Address] = []
    before = files.key.read_bytes()

    def ask(address: Address, _: IdentityFiles, request: Request) -> IssuedIdentity:
        asked.append(address)
        if address == COLLECTORS[0]:
            raise IssueError("away")
        new = certificate(request, START + timedelta(days=61))
        return IssuedIdentity(certificate=new, ca=new)

    found = look(files, COLLECTORS, renewable=True, now_s=at(61), ask=ask)
    assert (found.working, found.state, asked) == (True, "ok", COLLECTORS)
    assert "renewed, until 2026-06-01" in found.detail
    assert files.key.read_bytes() != before
    assert look(files, COLLECTORS, renewable=True, now_s=at(62), ask=ask).state == "ok"
    assert len(asked) == 2


def test_what_cannot_be_renewed_is_tried_ever_more_often_and_said(files: IdentityFiles) -> None:
    def ask(*_: object) -> IssuedIdentity:
        raise IssueError("10.0.0.1:7443 refuses: revoked")

    before = files.key.read_bytes()
    waits = [look(files, COLLECTORS, renewable=True, now_s=at(day), ask=ask) for day in (70, 89.9)]
    assert {(one.working, one.state) for one in waits} == {(False, "renewal_failing")}
    assert "refuses: revoked" in waits[0].detail
    assert [round(one.again_s) for one in waits] == [3600, 432]
    gone = look(files, COLLECTORS, renewable=True, now_s=at(90), ask=ask)
    assert (gone.working, gone.state) == (False, "certificate_expired")
    assert "enrol again with a new token" in gone.detail
    assert files.key.read_bytes() == before


def test_files_of_others_are_watched_and_never_replaced(files: IdentityFiles) -> None:
    states = [look(files, COLLECTORS, renewable=False, now_s=at(day)) for day in (70, 80, 91)]
    assert [one.state for one in states] == ["ok", "expires_soon", "certificate_expired"]
    files.certificate.write_text("no certificate")
    assert look(files, COLLECTORS, renewable=False, now_s=at(1)).state == "identity_unreadable"


def test_an_answer_over_another_key_is_not_kept(files: IdentityFiles) -> None:
    before = files.certificate.read_bytes()
    other = certificate(make_request("n1"))
    for wrong in (other, b"garbage"):
        with pytest.raises(IdentityFilesError):
            keep(files, make_request("n1"), wrong, other)
    assert files.certificate.read_bytes() == before


@pytest.mark.parametrize("form", ["sha256:{}", "SHA256:{}", "{}", "sha256 Fingerprint={colons}"])
def test_a_fingerprint_in_the_forms_that_tools_print(form: str) -> None:
    digits = "ab" * 32
    text = form.format(digits, colons=":".join(["AB"] * 32))
    assert parse_fingerprint(text) == bytes.fromhex(digits)


@pytest.mark.parametrize("text", ["", "sha256:", "sha1:" + "ab" * 20, "sha256:" + "ab" * 31, "zz" * 32])
def test_what_is_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        parse_fingerprint(text)
