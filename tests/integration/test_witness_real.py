"""Tree heads given to a real time-stamp authority (openssl), to an HTTP server and to a mail server."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509

from collector.config import Collector, TimestampAuthority, WitnessConfig
from collector.config.schema import MailWitness
from collector.witness import Giving, Head, Outbox, stamp, statement
from tests.fakes import tsa
from tests.fakes.clock import FakeClock
from tests.fakes.mail_server import MailServer

KEY = bytes(range(32))
HEADS = [Head("2026-12-01", 5, b"r" * 32, 10**18), Head("2026-12-02", 9, b"s" * 32, 10**18)]
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tsa.TimestampAuthority:
    return tsa.TimestampAuthority(tmp_path_factory.mktemp("tsa") / "authority")


@pytest.fixture
def posts() -> Iterator[tuple[tsa.Posts, str]]:
    found = tsa.Posts()
    with found.serving() as url:
        yield found, url


def giving(tmp_path: Path, collector: Collector, heads: Sequence[Head], clock: FakeClock) -> tuple[Giving, Outbox]:
    outbox = Outbox(tmp_path / "witness")
    return Giving(collector, KEY, lambda: heads, outbox, clock), outbox


async def test_each_head_gets_a_stamp_that_openssl_believes(
    tmp_path: Path, authority: tsa.TimestampAuthority, posts: tuple[tsa.Posts, str]
) -> None:
    server, url = posts
    server.answer = authority.reply
    collector = Collector(timestamp_authorities=(TimestampAuthority(name="tsa", url=url, ca=str(authority.ca)),))
    one, outbox = giving(tmp_path, collector, HEADS, FakeClock())
    await one.round()
    assert one.trouble == ""
    assert [content_type for _, content_type, _ in server.taken] == ["application/timestamp-query"] * 2
    roots = x509.load_pem_x509_certificates(authority.ca.read_bytes())
    for head in HEADS:
        folder = tmp_path / "witness" / head.day
        said, kept = (folder / "statement.txt").read_bytes(), (folder / "tsa.tsr").read_bytes()
        assert said == statement(head, "collector", KEY)
        assert f"headers {head.tree_size}, root sha256:{head.root.hex()}".encode() in said
        assert "Verification: OK" in authority.verify(kept, said)
        assert "Verification: FAILED" in authority.verify(kept, said + b"x")
        [given] = outbox.given(head.day)
        assert (given.to, given.stamped, given.time) == ("tsa", True, f"{stamp.check(kept, said, None, roots):%FT%TZ}")
    await one.round()
    assert len(server.taken) == 2  # nobody is asked twice


async def test_what_could_not_be_given_waits_and_is_given_later(tmp_path: Path, posts: tuple[tsa.Posts, str]) -> None:
    server, url = posts
    server.status = 503
    clock = FakeClock()
    collector = Collector(witnesses=(WitnessConfig(name="vendor", url=f"{url}/heads"),))
    one, outbox = giving(tmp_path, collector, HEADS, clock)
    await one.round()
    assert one.waiting == {"vendor": 2}
    assert one.trouble.startswith(f"vendor: {url}/heads answered 503")
    server.status = 200
    await one.round()
    assert server.taken == []  # not its turn yet
    clock.move(31 * SECOND)
    again, outbox = giving(tmp_path, collector, HEADS, clock)  # a restart forgets nothing but the backoff
    await again.round()
    assert [body for _, _, body in server.taken] == [statement(head, "collector", KEY) for head in HEADS]
    assert (again.trouble, again.waiting) == ("", {"vendor": 0})
    assert [given.to for given in outbox.given("2026-12-02")] == ["vendor"]


async def test_one_who_cannot_be_reached_keeps_no_other_waiting(tmp_path: Path, posts: tuple[tsa.Posts, str]) -> None:
    _, url = posts
    away = WitnessConfig(name="away", url="http://127.0.0.1:1/")
    collector = Collector(witnesses=(away, WitnessConfig(name="there", url=url)))
    one, _ = giving(tmp_path, collector, HEADS, FakeClock())
    await one.round()
    assert one.waiting == {"away": 2, "there": 0}
    assert one.trouble == "away: http://127.0.0.1:1/: [Errno 111] Connection refused"


async def test_a_head_by_mail(tmp_path: Path) -> None:
    server = MailServer()
    with server.serving() as port:
        mail = MailWitness(to="noc@vendor.example", sender="bw@tenant.example", server=f"127.0.0.1:{port}")
        collector = Collector(name="bw-1", witnesses=(WitnessConfig(name="vendor", mail=mail),))
        clock = FakeClock()
        one, _ = giving(tmp_path, collector, HEADS[:1], clock)
        server.refuse = True
        await one.round()
        assert "nobody here" in one.trouble
        server.refuse = False
        clock.move(60 * SECOND)
        await one.round()
    [text] = server.mails
    assert "Subject: Bandwitness bw-1: tree head of 2026-12-01" in text
    assert "To: noc@vendor.example" in text
    assert statement(HEADS[0], "bw-1", KEY).decode().split(",")[0] in text.replace("=\r\n", "")


def test_an_answer_that_is_no_stamp_of_this_is_refused(authority: tsa.TimestampAuthority, tmp_path: Path) -> None:
    asked = stamp.request(b"this")
    good = authority.reply(asked.encoded)
    roots = x509.load_pem_x509_certificates(authority.ca.read_bytes())
    other = tsa.TimestampAuthority(tmp_path / "other")
    strangers = x509.load_pem_x509_certificates(other.ca.read_bytes())
    stamp.check(good, b"this", asked.nonce, roots)
    for answer, data, nonce, trusted in (
        (good, b"that", asked.nonce, roots),
        (good, b"this", asked.nonce + 1, roots),
        (good, b"this", asked.nonce, strangers),
        (good[:-1], b"this", asked.nonce, roots),
        (b"", b"this", asked.nonce, roots),
        (b"<html>", b"this", asked.nonce, roots),
        (good[:200] + bytes([good[200] ^ 1]) + good[201:], b"this", asked.nonce, roots),
    ):
        with pytest.raises(stamp.StampError):
            stamp.check(answer, data, nonce, trusted)
