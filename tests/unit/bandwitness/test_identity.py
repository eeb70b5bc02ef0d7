"""Ids are frozen: these values are in records that exist, so a change here breaks every series."""

from bandwitness.identity import canonical, short_id
from bandwitness.v1.record_pb2 import (
    ENGINE_IPERF3,
    PROTOCOL_ICMP_ECHO,
    PROTOCOL_TCP_THROUGHPUT,
    CounterSet,
    Endpoint,
    Path,
    Profile,
    Target,
    TypeP,
)

SOURCE = Endpoint(node="gpu-r1-01", nic="ens1f0", address="198.18.1.11", lane="rail0")
DESTINATION = Endpoint(node="gpu-r2-01", nic="ens1f0", address="198.18.2.11", lane="rail0")
PROFILE = Profile(
    engine=ENGINE_IPERF3, streams=4, duration_ns=10_000_000_000, omit_ns=2_000_000_000, congestion_control="cubic"
)


def test_ids_of_released_definitions_never_change() -> None:
    profile_id = short_id(canonical(PROFILE))
    echo = Path(
        source=SOURCE, endpoint=DESTINATION, type_p=TypeP(protocol=PROTOCOL_ICMP_ECHO, ip_version=4, payload_bytes=56)
    )
    target = Path(
        source=SOURCE,
        target=Target(name="gw-telecom", address="192.0.2.1"),
        type_p=TypeP(protocol=PROTOCOL_ICMP_ECHO, ip_version=4, payload_bytes=56, dscp=46),
    )
    throughput = Path(
        source=SOURCE,
        endpoint=DESTINATION,
        type_p=TypeP(protocol=PROTOCOL_TCP_THROUGHPUT, ip_version=4, profile_id=profile_id),
    )
    counters = CounterSet(name=["rx_bytes", "tx_bytes"])
    ids = [short_id(canonical(message)) for message in (PROFILE, echo, target, throughput, counters)]
    assert [f"{value:016x}" for value in ids] == IDS


IDS = ["ff7acb01fcc70753", "c48b75f3072c427d", "362e64075b3da711", "03e2a31bc263d25a", "03ec695ce6a1ae2f"]


def test_a_field_of_a_later_version_changes_no_id() -> None:
    later = Endpoint.FromString(SOURCE.SerializeToString() + b"\xfa\x01\x03abc")  # field 31, unknown here
    path = Path(source=later, endpoint=DESTINATION, type_p=TypeP(protocol=PROTOCOL_ICMP_ECHO, ip_version=4))
    assert path.SerializeToString() != canonical(path)
    known = Path(source=SOURCE, endpoint=DESTINATION, type_p=TypeP(protocol=PROTOCOL_ICMP_ECHO, ip_version=4))
    assert canonical(path) == canonical(known)
