"""Who has connected to a port of this host, and whether a one-off server must be rid of them. Pure but for one read.

iperf3 serves whoever comes first, and one that says nothing holds it for ever. The kernel's table tells who it is
(Linux: net/ipv4/tcp_ipv4.c ``get_tcp4_sock``), also where iperf3 itself never says.
"""

import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent.probe.port import same_address

LOOK_NS = 100_000_000
SILENT_NS = 1_500_000_000  # a control connection without streams: two round trips, and a lost packet, take less
MAX_TABLE_BYTES = 1024 * 1024  # some 7,000 connections; what stands behind is not seen
_ESTABLISHED = "01"
_NO_INODE = "0"  # the program has not accepted it yet: it waits behind whoever holds the server


class Visitor(NamedTuple):
    """The far end of an accepted connection."""

    address: str
    port: int


def read_visitors(root: Path, address: str, port: int) -> list[Visitor]:
    """Accepted connections to a port, of the family of ``address``; empty where the table cannot be read."""
    name = "tcp6" if ":" in address else "tcp"
    try:
        with (root / "proc/net" / name).open("rb") as file:
            text = file.read(MAX_TABLE_BYTES).decode("ascii", errors="replace")
    except OSError:
        return []
    return parse_table(text, port)


def parse_table(text: str, port: int) -> list[Visitor]:
    """Accepted connections in ``/proc/net/tcp`` or ``tcp6``. Lines that do not parse are left out."""
    ending = f":{port:04X}"
    found = []
    for line in text.splitlines():
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _ESTABLISHED or not fields[1].endswith(ending) or fields[9] == _NO_INODE:
            continue
        far, _, far_port = fields[2].partition(":")
        try:
            found.append(Visitor(_address(far), int(far_port, 16)))
        except (ValueError, OverflowError):
            continue
    return found


def _address(text: str) -> str:
    """Words of 32 bits as they lie in memory, printed as numbers of the host's order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return str(getattr(found, "ipv4_mapped", None) or found)


class Doorkeeper:
    """Looks at who is connected, again and again, and says who has to go.

    Args:
        planned: address of the client that is waited for.
        udp: its streams are not connections, so that silence cannot be told from a test.
    """

    def __init__(self, planned: str, *, udp: bool) -> None:
        self._planned = planned
        self._udp = udp
        self._before: set[Visitor] = set()
        self._alone_since: tuple[Visitor, int] | None = None
        self.settled = False  # the planned client's test runs: nobody is sent away any more
        self.here = False  # the planned client was connected at the last look

    def look(self, visitors: Sequence[Visitor], now_ns: int) -> Visitor | None:
        """Who holds the server and is not to: somebody else in two looks running while the planned client is not
        there, or a connection from its address that does nothing. None: nobody."""
        ours = [visitor for visitor in visitors if same_address(visitor.address, self._planned)]
        absent = not ours and not self.here
        self.here = bool(ours)
        strangers = {visitor for visitor in visitors if visitor not in ours}
        stayed = sorted(strangers & self._before)
        self._before = strangers
        self.settled = self.settled or len(ours) > 1 or (self._udp and self.here)
        if self.settled:
            return None
        if stayed and absent:
            return stayed[0]
        return self._silent(ours, now_ns)

    def _silent(self, ours: Sequence[Visitor], now_ns: int) -> Visitor | None:
        if len(ours) != 1:
            self._alone_since = None
        elif self._alone_since is None or self._alone_since[0] != ours[0]:
            self._alone_since = (ours[0], now_ns)
        elif now_ns - self._alone_since[1] >= SILENT_NS:
            return ours[0]
        return None
