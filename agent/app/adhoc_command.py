"""Arguments of ``bandwitness-agent probe``. What a probe needs is imported when it runs: ``--help`` comes at once."""

import argparse
import sys

PING, STAMP, REFLECT, TRACE, MTU, NIC = "ping", "stamp", "reflect", "trace", "mtu", "nic"
EXAMPLES = """\
examples:
  bandwitness-agent probe ping 10.0.1.12 gpu-r2-01
  bandwitness-agent probe reflect --allow 10.0.1.11          (on 10.0.1.12)
  bandwitness-agent probe stamp 10.0.1.12 --ports 32         (on 10.0.1.11)
  bandwitness-agent probe stamp 10.0.1.12 --count 100 --interval 100ms --json
  bandwitness-agent probe trace 10.0.2.12 --source 10.0.1.11
  bandwitness-agent probe mtu 10.0.2.12
  bandwitness-agent probe nic ens1f0 --count 10

exit codes: 0 every address answered, 1 not, or nothing could be sent, 2 wrong usage
"""


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds ``probe`` and what is below it."""
    probe = _parser(commands, "probe", "one measurement now, printed; needs neither a collector nor a plan")
    probes = probe.add_subparsers(dest="probe", metavar="PROBE", required=True)
    ping = _parser(probes, PING, "ICMP echo, one line a packet")
    ping.add_argument("host", metavar="HOST", nargs="+", help="address or name; each address of a name is probed")
    _add_common(ping, count=5, interval="1s", payload=56)
    stamp = _parser(probes, STAMP, "STAMP (RFC 8762) over several source ports: loss each way, delay, by port")
    stamp.add_argument("host", metavar="HOST", help="address or name of a STAMP or TWAMP-Light reflector")
    stamp.add_argument("--port", type=_number(1, 65535), default=8620, help="the reflector's (default 8620)")
    stamp.add_argument("--ports", type=_number(1, 64), default=16, metavar="N", help="source ports (default 16)")
    stamp.add_argument(
        "--source-port", type=_number(1024, 65472), metavar="P", help="the first; by default the ports the agent uses"
    )
    _add_common(stamp, count=20, interval="200ms", payload=44)
    trace = _parser(probes, TRACE, "who answers on the way, hop after hop, with one flow")
    trace.add_argument("host", metavar="HOST", help="address or name; the first address of a name is traced")
    trace.add_argument(
        "--max-hops", type=_number(1, 64), default=30, metavar="N", help="hop limit to stop at (default 30)"
    )
    trace.add_argument(
        "--payload", type=_number(20, 8972), default=56, metavar="BYTES", help="behind the ICMP header (default 56)"
    )
    _add_endpoint(trace)
    mtu = _parser(probes, MTU, "the largest packet that gets there whole, by don't-fragment echo")
    mtu.add_argument("host", metavar="HOST", help="address or name; the first address of a name is tried")
    mtu.add_argument(
        "--size", type=_number(64, 16_000), nargs="+", default=[1472, 8972], metavar="BYTES",
        help="payload sizes that are always tried, behind an IPv4 and an ICMP header (default 1472 8972)",
    )  # fmt: skip
    _add_endpoint(mtu)
    nic = _parser(probes, NIC, "rate, peak, errors, pauses and RDMA share of NICs, look after look")
    nic.add_argument("nic", metavar="NIC", nargs="*", help="network devices (default: all but the loopback)")
    nic.add_argument(
        "--count", type=_number(0, 1_000_000), default=0, metavar="N", help="looks; 0: until interrupted (default 0)"
    )
    nic.add_argument(
        "--interval", type=_duration(100_000_000, 60_000_000_000), default="1s", metavar="T",
        help="between two looks, 100ms to 1min (default 1s)",
    )  # fmt: skip
    nic.add_argument("--json", action="store_true", help="print one JSON object a look")
    reflect = _parser(probes, REFLECT, "answer STAMP senders until interrupted, for a try")
    reflect.add_argument("--allow", metavar="ADDR", nargs="+", required=True, help="addresses that are answered")
    reflect.add_argument(
        "--listen", metavar="ADDR", nargs="+", default=[], help="addresses of this host (default: all)"
    )
    reflect.add_argument("--port", type=_number(1, 65535), default=8620, help="to answer on (default 8620)")
    reflect.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(asked: argparse.Namespace) -> int:
    """Runs the probe and gives the exit code."""
    import asyncio  # noqa: PLC0415

    from agent.app.adhoc import Asked, UsageError  # noqa: PLC0415

    try:
        if asked.probe == NIC:
            from agent.app.adhoc_nic import nic  # noqa: PLC0415

            count, every = asked.count or None, asked.interval
            return asyncio.run(nic(asked.nic, sys.stdout, count=count, interval_ns=every, as_json=asked.json))
        if asked.probe == REFLECT:
            from agent.app.adhoc_reflect import reflect  # noqa: PLC0415

            return asyncio.run(reflect(asked.allow, asked.listen, asked.port, sys.stdout, as_json=asked.json))
        if asked.probe in (TRACE, MTU):
            return asyncio.run(_feel_out(asked))
        common = Asked(
            count=asked.count or None,
            interval_ns=asked.interval,
            waiting_ns=asked.wait,
            payload_bytes=asked.payload,
            dscp=asked.dscp,
            ip_version=asked.ip_version,
            source_address=asked.source,
            as_json=asked.json,
        )
        if asked.probe == PING:
            from agent.app.adhoc_ping import ping  # noqa: PLC0415

            return asyncio.run(ping(asked.host, common, sys.stdout))
        from agent.app.adhoc_stamp import stamp  # noqa: PLC0415

        return asyncio.run(
            stamp(asked.host, common, sys.stdout, port=asked.port, ports=asked.ports, first_port=asked.source_port)
        )
    except UsageError as error:
        print(f"bandwitness-agent probe {asked.probe}: {error}", file=sys.stderr)
        return 2


async def _feel_out(asked: argparse.Namespace) -> int:
    from agent.app.adhoc_way import Wish, mtu, trace  # noqa: PLC0415

    wish = Wish(asked.host, asked.wait, asked.dscp, asked.ip_version, asked.source, asked.json)
    if asked.probe == TRACE:
        return await trace(wish, sys.stdout, max_hops=asked.max_hops, payload_bytes=asked.payload)
    return await mtu(wish, sys.stdout, sizes=asked.size)


def _parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[:1].upper() + summary[1:] + ".",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_common(parser: argparse.ArgumentParser, *, count: int, interval: str, payload: int) -> None:
    parser.add_argument(
        "--count", type=_number(0, 1_000_000), default=count, metavar="N",
        help=f"packets (stamp: a port); 0: until interrupted (default {count})",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=_duration(20_000_000, 3_600_000_000_000), default=interval, metavar="T",
        help=f"between two packets of one path, 20ms or more (default {interval})",
    )  # fmt: skip
    parser.add_argument(
        "--payload", type=_number(20, 8972), default=payload, metavar="BYTES",
        help=f"behind the ICMP or UDP header (default {payload})",
    )  # fmt: skip
    _add_endpoint(parser)


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=_duration(10_000_000, 10_000_000_000), default="1s", metavar="T",
        help="after this a packet is lost, 10s or less (default 1s)",
    )  # fmt: skip
    parser.add_argument("--dscp", type=_number(0, 63), default=0, help="of the packets (default 0)")
    parser.add_argument("--source", metavar="ADDR", default="", help="address of this host to send from")
    version = parser.add_mutually_exclusive_group()
    version.add_argument("-4", dest="ip_version", action="store_const", const=4, default=0, help="IPv4 only")
    version.add_argument("-6", dest="ip_version", action="store_const", const=6, help="IPv6 only")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


class _number:  # noqa: N801 - argparse shows its name
    """An integer between two limits."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or not self._low <= int(text) <= self._high:
            raise argparse.ArgumentTypeError(f"{text!r}: a number from {self._low} to {self._high} is expected")
        return int(text)


class _duration:  # noqa: N801
    """Nanoseconds between two limits, written ``200ms`` or ``1s``; a bare number is seconds."""

    def __init__(self, low_ns: int, high_ns: int) -> None:
        self._low_ns, self._high_ns = low_ns, high_ns

    def __call__(self, text: str) -> int:
        from bandwitness.settings import parse_duration  # noqa: PLC0415

        try:
            value = int(parse_duration(text if text[-1:].isalpha() else f"{text}s"))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
        if not self._low_ns <= value <= self._high_ns:
            limits = f"{self._low_ns / 1e9:g} s to {self._high_ns / 1e9:g} s"
            raise argparse.ArgumentTypeError(f"{text!r}: from {limits} is allowed")
        return value
