from collections.abc import Callable

import pytest

from agent.probe.iperf3_command import (
    MAX_UDP_RATE_BPS,
    BadParametersError,
    Lane,
    Version,
    check_version,
    checked_profile,
    client_arguments,
    parse_version,
    server_arguments,
    supported,
)
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

SECOND = 1_000_000_000
V312 = Version("3.12", (3, 12))


def make_profile(**changed: object) -> pb.Profile:
    values: dict[str, object] = {
        "engine": pb.ENGINE_IPERF3,
        "streams": 4,
        "duration_ns": 10 * SECOND,
        "omit_ns": 2 * SECOND,
        "congestion_control": "cubic",
    }
    return pb.Profile(**(values | changed))  # type: ignore[arg-type]


def make_slot(profile: pb.Profile, *, reverse: bool = False, port: int = 5201) -> Slot:
    return Slot(
        client=pb.Endpoint(node="a", nic="eth0", address="192.0.2.1"),
        server=pb.Endpoint(node="b", nic="eth0", address="192.0.2.2"),
        port=port,
        reverse=reverse,
        profile=profile.SerializeToString(),
    )


def client(profile: pb.Profile, version: Version = V312, *, reverse: bool = False) -> str:
    slot = make_slot(profile, reverse=reverse)
    lane = Lane(5201, profile.streams)
    return " ".join(client_arguments(slot, checked_profile(slot), version, lane, connect_timeout_ms=900))


def test_forward() -> None:
    assert client(make_profile()) == (
        "-c 192.0.2.2 -B 192.0.2.1 -p 5201 -J -t 10 -i 1 -P 4 -O 2 -C cubic --connect-timeout 900"
    )


def test_a_link_local_server_is_reached_by_the_clients_device() -> None:
    slot = make_slot(make_profile())
    slot.client.address, slot.client.nic = "fe80::1%eth0", "eth0"
    slot.server.address, slot.server.nic = "fe80::2%eth7", "eth7"
    words = client_arguments(slot, checked_profile(slot), V312, Lane(5201, 4), connect_timeout_ms=900)
    assert words[:4] == ["-c", "fe80::2%eth0", "-B", "fe80::1%eth0"]
    assert "fe80::2%eth7" in server_arguments(slot, checked_profile(slot), 5201)


def test_reverse_alone_may_have_a_receive_timeout() -> None:
    assert client(make_profile(), reverse=True).endswith("-R -C cubic --connect-timeout 900 --rcv-timeout 5000")


def test_an_old_version_gets_only_what_it_knows() -> None:
    assert client(make_profile(), Version("3.1.3", (3, 1)), reverse=True).endswith("-O 2 -R -C cubic")


def test_udp_has_a_rate_for_each_stream_and_no_congestion_control() -> None:
    assert "-u -b 25000000" in client(make_profile(udp_rate_bps=100_000_000))
    assert "-C" not in client(make_profile(udp_rate_bps=100_000_000))


def test_dscp_and_mss() -> None:
    line = client(make_profile(dscp=46, mss_bytes=1400))
    assert "-S 184" in line
    assert "-M 1400" in line


def test_short_tests_have_short_intervals_and_huge_ones_bounded_reports() -> None:
    assert "-t 1 -i 0.25" in client(make_profile(duration_ns=SECOND, omit_ns=0))
    assert "-t 60 -i 2 -P 128" in client(make_profile(duration_ns=60 * SECOND, omit_ns=0, streams=128))


def test_server_is_bound_and_serves_once() -> None:
    slot = make_slot(make_profile())
    assert server_arguments(slot, checked_profile(slot), 5201) == [
        *("-s", "-1", "-J", "-B", "192.0.2.2", "-p", "5201", "-i", "1")
    ]


def test_a_lane_has_its_own_port_and_streams() -> None:
    slot = make_slot(make_profile())
    words = client_arguments(slot, checked_profile(slot), V312, Lane(5203, 1), connect_timeout_ms=900)
    assert [words[words.index(option) + 1] for option in ("-p", "-P")] == ["5203", "1"]
    assert "5203" in server_arguments(slot, checked_profile(slot), 5203)


def test_both_ways_and_the_device() -> None:
    profile = make_profile(bidirectional=True, bind_device=True)
    assert "--bidir --bind-dev eth0 -C cubic" in client(profile, reverse=True)
    assert client(profile).endswith("--rcv-timeout 5000")
    assert server_arguments(make_slot(profile), profile, 5201)[-2:] == ["--bind-dev", "eth0"]


@pytest.mark.parametrize(
    ("changed", "version", "since"),
    [({"bidirectional": True}, (3, 6), "3.7"), ({"bind_device": True}, (3, 9), "3.10")],
)
def test_what_a_version_cannot_do_is_refused_with_the_one_that_can(
    changed: dict[str, object], version: tuple[int, int], since: str
) -> None:
    with pytest.raises(BadParametersError, match=since):
        check_version(make_profile(**changed), Version("3.x", version))
    check_version(make_profile(**changed), Version("3.12", (3, 12)))
    check_version(make_profile(), Version("3.x", version))


def _no_client(slot: Slot) -> None:
    slot.client.address = ""


def _no_link(slot: Slot) -> None:
    slot.server.address, slot.client.nic = "fe80::2%eth7", ""


def _no_profile(slot: Slot) -> None:
    slot.profile = b"\xff\xff"


def _low_port(slot: Slot) -> None:
    slot.port = 22


def _many_ports(slot: Slot) -> None:
    slot.ports = 17


def _ports_beyond_the_last(slot: Slot) -> None:
    slot.port, slot.ports = 65_530, 8


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"duration_ns": SECOND // 2}, "duration"),  # iperf3 reads -t 0.5 as 0: without end
        ({"duration_ns": 0}, "duration"),
        ({"duration_ns": 61 * SECOND}, "duration"),
        ({"omit_ns": 1}, "omit"),
        ({"omit_ns": 31 * SECOND}, "omit"),
        ({"streams": 0}, "streams"),
        ({"streams": 129}, "streams"),
        ({"dscp": 64}, "dscp"),
        ({"mss_bytes": 9217}, "mss_bytes"),
        ({"congestion_control": "-h; x"}, "congestion_control"),
        ({"engine": 99}, "engine"),
        ({"udp_rate_bps": MAX_UDP_RATE_BPS + 1}, "udp_rate_bps"),
    ],
)
def test_a_profile_outside_the_limits_is_refused(changed: dict[str, object], word: str) -> None:
    with pytest.raises(BadParametersError, match=word):
        checked_profile(make_slot(make_profile(**changed)))


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (_no_client, "address"),
        (_no_link, "say on which link"),
        (_no_profile, "profile"),
        (_low_port, "port"),
        (_many_ports, "ports"),
        (_ports_beyond_the_last, "ports"),
    ],
)
def test_a_slot_that_cannot_be_run_is_refused(spoil: Callable[[Slot], None], word: str) -> None:
    slot = make_slot(make_profile())
    spoil(slot)
    with pytest.raises(BadParametersError, match=word):
        checked_profile(slot)


@pytest.mark.parametrize(
    ("output", "text", "number", "usable"),
    [
        ("iperf 3.12 (cJSON 1.7.15)\nLinux host\n", "3.12", (3, 12), True),
        ("iperf 3.1.3\n", "3.1.3", (3, 1), True),
        ("iperf 3.17.1+ (cJSON 1.7.15)\n", "3.17.1+", (3, 17), True),
        ("iperf 3.0.11\n", "3.0.11", (3, 0), False),
        ("iperf version 2.1.9 (14 March 2023) pthreads\n", "2.1.9", (2, 1), False),
    ],
)
def test_versions(output: str, text: str, number: tuple[int, int], usable: bool) -> None:
    version = parse_version(output)
    assert version == Version(text, number)
    assert supported(version) is usable


def test_no_version() -> None:
    assert parse_version("command not found") is None
