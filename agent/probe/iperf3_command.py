"""Arguments of iperf3 for one slot, by role, direction and version. Pure; the limits on a test stand here.

The peer is always given as an address, never a name. Options are chosen by version and direction, because iperf3
answers an option that does not fit (``--rcv-timeout`` at a sender) with its usage text and no report.
"""

import re
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from agent.probe.zones import ZoneError, from_here
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

SECOND_NS = 1_000_000_000
MAX_DURATION_NS = 60 * SECOND_NS  # measured part of a test; do no harm
MAX_OMIT_NS = 30 * SECOND_NS
MAX_STREAMS = 128  # iperf3's own
MIN_MSS_BYTES, MAX_MSS_BYTES = 88, 9_216  # 88: Linux refuses less; 9216: iperf3 refuses more
OLDEST_VERSION = (3, 1)
THREADED_VERSION = (3, 16)  # one thread a stream from here on
MAX_PORTS = 16  # of one test
MAX_UDP_RATE_BPS = 10_000_000_000  # UDP yields to nobody: no share of a fast port may be taken by force
_CONNECT_TIMEOUT_VERSION = (3, 2)
_BIDIRECTIONAL_VERSION = (3, 7)
_BIND_DEVICE_VERSION = (3, 10)
_RECEIVE_TIMEOUT_VERSION = (3, 10)
_RECEIVE_TIMEOUT_MS = 5_000
_SHORT_TEST_NS = 5 * SECOND_NS  # below it intervals of 0.25 s, so that the course of a 1 s test can be seen
_MAX_STREAM_INTERVALS = 4_096  # keeps the report below 2 MB: 330 bytes a stream and interval


@dataclass(frozen=True, slots=True)
class Lane:
    """One process of a test: its port and its share of the streams."""

    port: int
    streams: int


@dataclass(frozen=True, slots=True)
class Version:
    """``text`` as iperf3 prints it ("3.12", "3.16+"); ``number`` for comparison."""

    text: str
    number: tuple[int, int]


class BadParametersError(ValueError):
    """The slot asks for something that iperf3 cannot or must not do; the message says what and what is allowed."""


def parse_version(output: str) -> Version | None:
    """Version from the first line of ``iperf3 --version``; None for anything else, iperf 2 included in its own form."""
    match = re.search(r"^iperf (?:version )?((\d{1,3})\.(\d{1,3})[\w.+-]*)", output, re.MULTILINE)
    return Version(match[1], (int(match[2]), int(match[3]))) if match else None


def supported(version: Version) -> bool:
    """3.1 or newer, and not iperf 2."""
    return version.number[0] == 3 and version.number >= OLDEST_VERSION


def checked_profile(slot: Slot) -> pb.Profile:
    """The slot's profile, inside the limits.

    Raises:
        BadParametersError: not a profile, or one that asks too much.
    """
    try:
        profile = pb.Profile.FromString(slot.profile)
    except DecodeError as error:
        raise BadParametersError(f"profile cannot be read: {error}") from None
    if profile.engine not in (pb.ENGINE_UNSPECIFIED, pb.ENGINE_IPERF3):
        raise BadParametersError(f"engine {profile.engine} is not iperf3")
    # iperf3 -t and -O read whole seconds: "0.5" would become 0, which means without end.
    if profile.duration_ns % SECOND_NS or not 0 < profile.duration_ns <= MAX_DURATION_NS:
        raise BadParametersError(
            f"duration {profile.duration_ns} ns: 1 to {MAX_DURATION_NS // SECOND_NS} whole seconds"
        )
    if profile.omit_ns % SECOND_NS or profile.omit_ns > MAX_OMIT_NS:
        raise BadParametersError(f"omit {profile.omit_ns} ns: 0 to {MAX_OMIT_NS // SECOND_NS} whole seconds")
    if not 1 <= profile.streams <= MAX_STREAMS:
        raise BadParametersError(f"streams {profile.streams}: 1 to {MAX_STREAMS}")
    if profile.dscp > 63:
        raise BadParametersError(f"dscp {profile.dscp}: 0 to 63")
    if profile.mss_bytes and not MIN_MSS_BYTES <= profile.mss_bytes <= MAX_MSS_BYTES:
        raise BadParametersError(f"mss_bytes {profile.mss_bytes}: {MIN_MSS_BYTES} to {MAX_MSS_BYTES}, or 0")
    if not re.fullmatch(r"[a-z0-9_-]{0,15}", profile.congestion_control):  # TCP_CA_NAME_MAX is 16
        raise BadParametersError(f"congestion_control {profile.congestion_control!r:.40} is no kernel name")
    if profile.udp_rate_bps > MAX_UDP_RATE_BPS:
        raise BadParametersError(
            f"udp_rate_bps {profile.udp_rate_bps}: {MAX_UDP_RATE_BPS} at most, because UDP yields to nobody"
        )
    _check_ends(slot)
    return profile


def _check_ends(slot: Slot) -> None:
    if not 1024 <= slot.port <= 65_535:
        raise BadParametersError(f"port {slot.port}: 1024 to 65535")
    if slot.ports > MAX_PORTS or slot.port + slot.ports > 65_536:
        raise BadParametersError(f"ports {slot.ports} from {slot.port} on: {MAX_PORTS} at most, up to 65535")
    if not slot.client.address or not slot.server.address:
        raise BadParametersError("slot without client or server address")
    try:
        from_here(slot.server.address, slot.client.nic, peer=True)
    except ZoneError as error:
        raise BadParametersError(str(error)) from None


def check_version(profile: pb.Profile, version: Version) -> None:
    """Whether this iperf3 can do what the profile asks.

    Raises:
        BadParametersError: it is too old; says from which version on.
    """
    for asked, since, what in (
        (profile.bidirectional, _BIDIRECTIONAL_VERSION, "bidirectional tests"),
        (profile.bind_device, _BIND_DEVICE_VERSION, "binding to a device"),
    ):
        if asked and version.number < since:
            raise BadParametersError(f"iperf3 {version.text} knows no {what}: {since[0]}.{since[1]} does")


def client_arguments(
    slot: Slot, profile: pb.Profile, version: Version, lane: Lane, *, connect_timeout_ms: int
) -> list[str]:
    """Arguments of the client, without the program.

    Raises:
        BadParametersError: this version of iperf3 has no such option.
    """
    server = from_here(slot.server.address, slot.client.nic, peer=True)
    arguments = ["-c", server, "-B", slot.client.address, "-p", str(lane.port), "-J"]
    arguments += ["-t", str(profile.duration_ns // SECOND_NS), "-i", _interval_s(profile), "-P", str(lane.streams)]
    if profile.omit_ns:
        arguments += ["-O", str(profile.omit_ns // SECOND_NS)]
    if profile.bidirectional:
        arguments.append("--bidir")
    elif slot.reverse:
        arguments.append("-R")
    if profile.bind_device:
        arguments += ["--bind-dev", slot.client.nic]
    if profile.udp_rate_bps:
        arguments += ["-u", "-b", str(max(1, profile.udp_rate_bps // profile.streams))]  # -b is per stream
    else:
        if profile.congestion_control:
            arguments += ["-C", profile.congestion_control]
        if profile.mss_bytes:
            arguments += ["-M", str(profile.mss_bytes)]
    if profile.dscp:
        arguments += ["-S", str(profile.dscp << 2)]  # --dscp is the same and came later
    if version.number >= _CONNECT_TIMEOUT_VERSION:
        arguments += ["--connect-timeout", str(max(1, connect_timeout_ms))]
    if (slot.reverse or profile.bidirectional) and version.number >= _RECEIVE_TIMEOUT_VERSION:
        arguments += ["--rcv-timeout", str(_RECEIVE_TIMEOUT_MS)]
    return arguments


def server_arguments(slot: Slot, profile: pb.Profile, port: int) -> list[str]:
    """Arguments of the one-off server, without the program."""
    arguments = ["-s", "-1", "-J", "-B", slot.server.address, "-p", str(port), "-i", _interval_s(profile)]
    return [*arguments, "--bind-dev", slot.server.nic] if profile.bind_device else arguments


def _interval_s(profile: pb.Profile) -> str:
    total_ns = profile.duration_ns + profile.omit_ns
    if total_ns < _SHORT_TEST_NS:
        return "0.25"
    return str(max(1, -(-(total_ns // SECOND_NS) * profile.streams // _MAX_STREAM_INTERVALS)))
