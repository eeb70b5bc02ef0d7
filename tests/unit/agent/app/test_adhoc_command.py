"""Arguments of ``bandwitness-agent probe``: usage, limits, exit codes."""

import io
import json

import pytest

from agent.__main__ import main
from agent.app import adhoc_ping, adhoc_stamp
from agent.app.adhoc import Asked
from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import Rights


@pytest.mark.parametrize("probe", ["ping", "stamp", "reflect"])
def test_help_has_examples(probe: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["probe", probe, "--help"])
    assert left.value.code == 0
    assert "bandwitness-agent probe stamp 10.0.1.12" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "PROBE"),
        (["fly"], "fly"),
        (["ping"], "HOST"),
        (["stamp"], "HOST"),
        (["reflect"], "--allow"),
        (["ping", "h", "--count", "-1"], "--count"),
        (["ping", "h", "--count", "many"], "'many': a number from 0 to 1000000 is expected"),
        (["ping", "h", "--interval", "5ms"], "'5ms': from 0.02 s to 3600 s is allowed"),
        (["ping", "h", "--interval", "soon"], "expected a duration"),
        (["ping", "h", "--interval", "nan"], "expected a duration"),
        (["ping", "h", "--wait", "1m"], "from 0.01 s to 10 s"),
        (["ping", "h", "--payload", "9000"], "20 to 8972"),
        (["ping", "h", "--dscp", "64"], "0 to 63"),
        (["ping", "h", "-4", "-6"], "not allowed with"),
        (["stamp", "h", "--ports", "65"], "1 to 64"),
        (["stamp", "h", "--ports", "0"], "1 to 64"),
        (["stamp", "h", "--source-port", "862"], "1024 to 65472"),
        (["stamp", "h", "--port", "70000"], "1 to 65535"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["probe", *arguments])
    assert left.value.code == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("address", ["gpu-1", "10.0.0.0/8", "224.0.0.1"])
def test_a_reflector_is_given_addresses(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "reflect", "--allow", address, "--listen", "127.0.0.1", "--port", "48620"]) == 2
    assert capsys.readouterr().err.startswith("bandwitness-agent probe reflect: --allow:")


def test_a_reflector_that_cannot_listen_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "reflect", "--allow", "127.0.0.1", "--listen", "192.0.2.77"]) == 1
    assert capsys.readouterr().err == "192.0.2.77 port 8620: Cannot assign requested address\n"


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What would be probed."""
    found: dict[str, object] = {}

    async def ping(hosts: list[str], asked: Asked, out: io.TextIOBase) -> int:
        found.update(hosts=hosts, asked=asked)
        return 0

    async def stamp(host: str, asked: Asked, out: io.TextIOBase, **options: int) -> int:
        found.update(host=host, asked=asked, **options)
        return 1

    monkeypatch.setattr(adhoc_ping, "ping", ping)
    monkeypatch.setattr(adhoc_stamp, "stamp", stamp)
    return found


def test_ping_as_asked(captured: dict[str, object]) -> None:
    arguments = ["a", "b", "--count", "0", "--interval", "0.5", "--wait", "2s", "-6", "--source", "fd00::1", "--json"]
    assert main(["probe", "ping", *arguments]) == 0
    assert captured["hosts"] == ["a", "b"]
    assert captured["asked"] == Asked(
        count=None,
        interval_ns=500_000_000,
        waiting_ns=2_000_000_000,
        payload_bytes=56,
        dscp=0,
        ip_version=6,
        source_address="fd00::1",
        as_json=True,
    )


def test_stamp_as_asked(captured: dict[str, object]) -> None:
    assert main(["probe", "stamp", "a", "--ports", "4", "--source-port", "50000", "--port", "862"]) == 1
    assert (captured["host"], captured["port"], captured["ports"], captured["first_port"]) == ("a", 862, 4, 50_000)
    asked = captured["asked"]
    assert isinstance(asked, Asked)
    assert (asked.count, asked.interval_ns, asked.payload_bytes, asked.ip_version) == (20, 200_000_000, 44, 0)


def asked_with(**changes: object) -> Asked:
    usual: dict[str, object] = {
        "count": 1,
        "interval_ns": 20_000_000,
        "waiting_ns": 50_000_000,
        "payload_bytes": 56,
        "dscp": 0,
        "ip_version": 0,
        "source_address": "",
        "as_json": True,
    }
    return Asked(**usual | changes)  # type: ignore[arg-type]


async def test_ping_without_any_right_says_which_and_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Denied(EchoSession):
        def __init__(self, clock: object) -> None:
            super().__init__(clock, rights=Rights(None, None, "CAP_NET_RAW"))  # type: ignore[arg-type]

    monkeypatch.setattr(adhoc_ping, "EchoSession", Denied)
    out = io.StringIO()
    assert await adhoc_ping.ping(["127.0.0.1"], asked_with(), out) == 1
    assert "missing: CAP_NET_RAW (cure: " in json.loads(out.getvalue())["error"]
    assert await adhoc_ping.ping(["127.0.0.1"], asked_with(as_json=False), out) == 1
    assert "missing: CAP_NET_RAW (cure: " in capsys.readouterr().err


async def test_stamp_to_a_name_that_is_none() -> None:
    out = io.StringIO()
    assert await adhoc_stamp.stamp("", asked_with(), out) == 1
    assert list(json.loads(out.getvalue())) == ["error"]
