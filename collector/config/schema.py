"""What collector.yaml may hold, and its defaults. Pure."""

from ipaddress import ip_address
from typing import Annotated, Literal

import msgspec

from bandwitness.settings import Duration, Rate, Size, parse_time_of_day
from bandwitness.v1.plan_pb2 import WINDOW_KIND_OTHER

SECOND = 1_000_000_000
DAY_S = 86_400
Ratio = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z",
        description="up to 63 letters, digits, dots, hyphens, underscores, not beginning with a mark",
    ),
]
Lane = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(rail[0-9]{1,2}|storage|management|wan)\Z",
        description="rail0 to rail99, storage, management or wan",
    ),
]

# Neither control characters nor what turns text around or hides in it: it ends up on terminals.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*\Z"


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Files of the gRPC listener; without them only loopback, in plain text."""

    ca: str
    certificate: str
    key: str
    ca_key: str | None = (
        None  # with it nodes enrol here by token, and renew; without it certificates come from elsewhere
    )
    enrol_listen: str | None = None  # without it beside grpc_listen, one port up
    certificate_lifetime: Duration = Duration(90 * DAY_S * SECOND)  # of nodes; renewed after two thirds

    def enrol_address(self, grpc_listen: str) -> str:
        """Where nodes enrol, as ``parse_listen`` takes it.

        Raises:
            ValueError: ``grpc_listen`` is no address to listen on.
        """
        if self.enrol_listen is not None:
            return self.enrol_listen
        host, port = parse_listen(grpc_listen)
        return f"{grpc_listen.rpartition(':')[0]}:{port + 1 if port else 0}" if host else grpc_listen


class HttpTls(msgspec.Struct, frozen=True, kw_only=True):
    """Files of the HTTP listener; beyond loopback it needs them."""

    certificate: str
    key: str


class TimestampAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """Who time-stamps each day's tree head (RFC 3161)."""

    name: Name
    url: str
    ca: str  # file with its root certificates: a stamp is kept only if it holds under these


class MailWitness(msgspec.Struct, frozen=True, kw_only=True):
    to: str
    sender: str
    server: str = "127.0.0.1:25"
    starttls: bool = False

    @property
    def server_address(self) -> tuple[str, int]:
        """Host and port.

        Raises:
            ValueError: ``server`` is not HOST:PORT.
        """
        host, colon, port = self.server.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError("expected HOST:PORT such as 127.0.0.1:25")
        return host, int(port)


class WitnessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who is given each day's tree head: by mail, or as the body of an HTTP POST."""

    name: Name
    url: str | None = None
    mail: MailWitness | None = None


class RemoteWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Who is sent samples with the time of measuring (Prometheus remote write 1.0)."""

    name: Name
    url: str
    labels: dict[str, Annotated[str, msgspec.Meta(min_length=1, max_length=256)]] = {}
    bearer_token_file: str | None = None  # read anew for each request
    ca: str | None = None  # file with root certificates, for https; without it the system's
    max_age: Duration = Duration(DAY_S * SECOND)  # what was measured longer ago is not sent
    max_waiting: Annotated[int, msgspec.Meta(ge=1_000, le=5_000_000)] = 500_000  # entries kept for it on disk


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    name: Name = "collector"
    grpc_listen: str = "127.0.0.1:7443"
    http_listen: str = "127.0.0.1:7480"  # or fd:N, a listening socket inherited from the parent
    state_dir: str = "./state"  # like all files, relative to collector.yaml
    database: Literal["sqlite"] = "sqlite"
    tls: Tls | None = None
    http_tls: HttpTls | None = None
    timestamp_authorities: tuple[TimestampAuthority, ...] = ()
    witnesses: tuple[WitnessConfig, ...] = ()
    remote_write: tuple[RemoteWrite, ...] = ()


def parse_window(text: str) -> tuple[int, int]:
    """``"22:00-02:00"`` as seconds after local midnight, (79200, 7200). The end may lie on the next day.

    Raises:
        ValueError: not a window, or one without length; the message says what is.
    """
    start, dash, end = text.partition("-")
    try:
        if not dash:
            raise ValueError
        start_s, end_s = int(parse_time_of_day(start)), int(parse_time_of_day(end))
    except ValueError:
        raise ValueError(
            'expected a window HH:MM-HH:MM or HH:MM:SS-HH:MM:SS between 00:00 and 24:00, such as "19:00-23:00"'
        ) from None
    if start_s == end_s or (start_s, end_s) == (DAY_S, 0):
        raise ValueError("the window has no length: its end is its start; a whole day is 00:00-24:00")
    if start_s == DAY_S:
        raise ValueError("a window cannot start at 24:00: write 00:00")
    return start_s, end_s


def parse_listen(text: str) -> tuple[str, int]:
    """``"127.0.0.1:7443"`` or ``"[::1]:7443"`` as address and port; port 0 lets the kernel choose.

    Raises:
        ValueError: not an address to listen on; the message says what is.
    """
    host, colon, port = text.rpartition(":")
    try:
        if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65_535:
            raise ValueError
        bracketed = host.startswith("[") and host.endswith("]")
        address = ip_address(host[1:-1] if bracketed else "127.0.0.1" if host == "localhost" else host)
        if bracketed != (address.version == 6):
            raise ValueError
    except ValueError:
        raise ValueError("expected ADDRESS:PORT such as 127.0.0.1:7443 or [::1]:7443") from None
    return str(address), int(port)


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Local times of day, ``"19:00-23:00"``; the end is exclusive and may lie on the next day."""

    peak: tuple[str, ...] = ("19:00-23:00",)
    offpeak: tuple[str, ...] = ("02:00-06:00",)

    @property
    def peak_ranges(self) -> tuple[tuple[int, int], ...]:
        """Seconds after local midnight, as of ``parse_window``."""
        return tuple(parse_window(text) for text in self.peak)

    @property
    def offpeak_ranges(self) -> tuple[tuple[int, int], ...]:
        """Seconds after local midnight, as of ``parse_window``."""
        return tuple(parse_window(text) for text in self.offpeak)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    time_zone: str = "Asia/Shanghai"
    windows: Windows = Windows()


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    nic: Annotated[
        str, msgspec.Meta(pattern=r"^[^/:\s]{1,15}\Z", description="a network interface such as ens1f0, bond0")
    ]
    address: str
    lane: Lane = "rail0"
    speed: Rate | None = None  # what it can carry, where the kernel says otherwise: virtual or shaped ports
    client_only: bool = False  # behind NAT or a one-way firewall: never a server, and nobody probes it

    def __post_init__(self) -> None:
        # One spelling (RFC 5952) everywhere: a path is what its bytes say. What is no address is a fault of the check.
        try:
            msgspec.structs.force_setattr(self, "address", str(ip_address(self.address)))
        except ValueError:
            return


class Node(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    site: Name
    rack: Name
    endpoints: tuple[EndpointConfig, ...]


class TargetConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    address: str
    carrier: Annotated[
        str, msgspec.Meta(max_length=64, pattern=_PRINTABLE, description="up to 64 printable characters")
    ] = ""  # telecom, 中国电信 …: through whom it is reached
    site: Name | None = None  # probed from the nodes of this site; without it from all
    lane: Lane | None = None  # probed from this lane; without it from wan, else management, else the first
    probes: tuple[Literal["echo", "tcp_connect", "stamp"], ...] = ("echo",)
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 443  # tcp_connect only
    stamp_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 862  # stamp only: of a reflector that is not ours
    source_ports: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1  # stamp only: each is a path of its own
    # Without these those of measure.echo, and the larger waiting time: nobody has said how far away it is.
    payload: Annotated[int, msgspec.Meta(ge=24, le=8972)] | None = None  # bytes behind the ICMP or UDP header
    dscp: Annotated[int, msgspec.Meta(ge=0, le=63)] | None = None
    interval: Duration | None = None
    waiting_time: Duration | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim is about, registered beforehand."""

    name: Name
    kind: Literal["uplink"]
    rack: Name


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed before a test may saturate something that others share. Without it there is no such test."""

    kind: Literal["contention"]
    site: Name
    rack: Name | None = None  # without it every rack of the site
    notice: Duration  # from the order to the first packet, at least
    hours: tuple[str, ...] = ()  # "02:00-06:00" in the site's time zone; without them at any time
    byte_cap: Size  # of one test, all its runs together
    approver: Annotated[
        str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*\Z", description="who agreed")
    ]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Seconds after local midnight, as of ``parse_window``."""
        return tuple(parse_window(text) for text in self.hours)


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    rate: Annotated[float, msgspec.Meta(ge=0.1, le=5000)] = 10.0  # probes/s per node in all
    interval: Duration | None = None  # per target; without it from rate and number of targets, 100 ms at least
    waiting_time: Duration = Duration(SECOND)
    waiting_time_across_sites: Duration = Duration(3 * SECOND)
    payload: Annotated[int, msgspec.Meta(ge=24, le=1472)] = 56  # bytes behind the ICMP header
    dscp: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """STAMP (RFC 8762) between our own agents, over several source ports a pair."""

    enabled: bool = False  # a path a port: what is kept of a pair multiplies by their number
    ports: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # a fifth of them change every hour
    rate: Annotated[float, msgspec.Meta(ge=0.1, le=5000)] = 10.0  # probes/s per node in all, beside those of echo
    interval: Duration | None = None  # per port; without it from rate, peers and ports, 100 ms at least
    port: Annotated[int, msgspec.Meta(ge=862, le=65535)] = 8620  # of the reflectors
    well_known_port: bool = True  # reflectors answer on 862 too, where they have the right and it is free
    dscp: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0


class PathMtuConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Don't-fragment echo over the echo paths, one after another."""

    enabled: bool = True
    interval: Duration = Duration(3600 * SECOND)  # from one check of a path to the next
    # Payload behind an IPv4 and an ICMP header; between them the largest that passes is searched.
    sizes: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=64, le=16_000)], ...], msgspec.Meta(min_length=1, max_length=8)
    ] = (1472, 8972)


class TraceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers on the way of echo and STAMP paths. Traces that somebody asks for, of an incident or of a changed
    hop limit, are always made."""

    reference: bool = True  # one of each path that an agent has not traced yet, one a minute


MAX_PORTS_A_TEST = 16  # the agents' limit


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    duration: Duration = Duration(10 * SECOND)
    omit: Duration = Duration(2 * SECOND)
    streams: Annotated[int, msgspec.Meta(ge=1, le=128)] = 4
    congestion_control: Annotated[
        str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,14}\Z", description="a name such as cubic, bbr")
    ] = "cubic"
    mss: Annotated[int, msgspec.Meta(ge=0, le=9000)] = 0
    dscp: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0
    udp_rate: Rate | None = None  # of all streams together; without it tests are TCP
    bidirectional: bool = False
    bind_device: bool = False
    numa_cpus: bool = False
    processes: Annotated[int, msgspec.Meta(ge=1, le=MAX_PORTS_A_TEST)] | None = None  # of iperf3 below 3.16
    planned: Count = 5  # per pair, window and day
    around_the_clock: Annotated[int, msgspec.Meta(ge=0, le=12)] = 2  # per pair and day, outside of both windows
    uplink_tokens: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    slot: Duration | None = None  # length of a slot; without it hold_ns + 1 s, which leaves room for the offset
    margin: Duration = Duration(2 * SECOND)
    first_port: Annotated[int, msgspec.Meta(ge=1024, le=65000)] = 5201
    ports: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    offline_test_grace: Duration = Duration(6 * 3600 * SECOND)
    own_traffic_limit: Ratio = 0.2  # of the NIC's speed

    @property
    def hold_ns(self) -> int:
        """How long one test holds its tokens: margin, omit, duration, margin."""
        return self.duration + self.omit + 2 * self.margin

    @property
    def ports_each(self) -> int:
        """Ports that one test may use: one a process, as far as two tests in a row still have others."""
        wanted = self.streams if self.processes is None else self.processes
        return max(1, min(wanted, self.streams, MAX_PORTS_A_TEST, self.ports // 2))

    def tests_in(self, window: int) -> int:
        """Tests of a pair and day in one kind of window (``WindowKind``)."""
        return self.around_the_clock if window == WINDOW_KIND_OTHER else self.planned

    @property
    def slot_ns(self) -> int:
        return self.hold_ns + SECOND if self.slot is None else self.slot


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    interval: Duration = Duration(SECOND)
    burst_interval: Duration = Duration(SECOND // 10)  # while a NIC carries a burst


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    flush: Duration = Duration(2 * SECOND)
    echo: Echo = Echo()
    stamp: Stamp = Stamp()
    path_mtu: PathMtuConfig = PathMtuConfig()
    trace: TraceConfig = TraceConfig()
    throughput: Throughput = Throughput()
    counters: Counters = Counters()
    plan_expiry: Duration = Duration(DAY_S * SECOND)
    seed: int = 0  # of the timetable's random offsets


class OversubscriptionRule(msgspec.Struct, frozen=True, kw_only=True):
    threshold: Ratio = 0.30
    clear: Ratio = 0.25
    min_tests: Count = 4
    trailing: Duration = Duration(7 * DAY_S * SECOND)


class LossLevel(msgspec.Struct, frozen=True, kw_only=True):
    ratio: Ratio
    over: Duration


class LossRule(msgspec.Struct, frozen=True, kw_only=True):
    min_lost: Count = 3
    critical: LossLevel = LossLevel(ratio=0.05, over=Duration(10 * SECOND))
    warning: LossLevel = LossLevel(ratio=0.005, over=Duration(60 * SECOND))
    p_value: Annotated[float, msgspec.Meta(gt=0, lt=0.5)] = 1e-6
    floor: Ratio = 1e-4


class DelayRule(msgspec.Struct, frozen=True, kw_only=True):
    factor: Annotated[float, msgspec.Meta(gt=1)] = 3.0
    above: Duration = Duration(200_000)
    baseline: Duration = Duration(3600 * SECOND)
    min_samples: Count = 300
    over: Duration = Duration(60 * SECOND)


class BurstContentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a burst must do to other traffic before it is said to hurt it."""

    before: Duration = Duration(2 * SECOND)  # what starts this long before a burst still counts as inside
    after: Duration = Duration(5 * SECOND)
    loss_ratio: Ratio = 1e-3
    loss_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0  # times the usual loss
    delay_factor: Annotated[float, msgspec.Meta(gt=1)] = 3.0  # times the usual p99, or
    delay_above: Duration = Duration(200_000)  # that much above it, whichever is less
    retransmit_ratio: Ratio = 1e-3  # TCP segments sent again
    pause_ratio: Ratio = 0.01  # of the time the port was told to wait
    write_ratio: Ratio = 0.5  # of the job's median rate a node
    length_factor: Annotated[float, msgspec.Meta(gt=1)] = 1.5  # times the usual length


class SilentRule(msgspec.Struct, frozen=True, kw_only=True):
    after: Duration = Duration(30 * SECOND)


class BurstRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a NIC's rate is a burst: above a share of its speed, and far above what is usual for it."""

    above: Ratio = 0.2  # of the NIC's speed
    floor: Rate = Rate(50_000_000)  # where the speed is not known
    min_bytes: Size = Size(1_000_000_000)
    min_duration: Duration = Duration(3 * SECOND)  # one of the two is enough
    nodes: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.6  # of a job or rack, to be a cluster burst
    min_nodes: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 3  # as many are one in any case
    within: Duration = Duration(5 * SECOND)  # of the first start


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    oversubscription: OversubscriptionRule = OversubscriptionRule()
    loss: LossRule = LossRule()
    delay: DelayRule = DelayRule()
    burst_contention: BurstContentionRule = BurstContentionRule()
    agent_silent: SilentRule = SilentRule()
    burst: BurstRule = BurstRule()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of collector.yaml."""

    collector: Collector = Collector()
    sites: tuple[Site, ...]
    nodes: tuple[Node, ...]
    targets: tuple[TargetConfig, ...] = ()
    units: tuple[Unit, ...] = ()
    permissions: tuple[Permission, ...] = ()
    measure: Measure = Measure()
    rules: Rules = Rules()
