"""Whether a server could listen here now, and whether two addresses are one."""

import errno
import ipaddress
import socket

from bandwitness.v1 import record_pb2 as pb


def same_address(seen: str, planned: str) -> bool:
    """Equal as addresses: IPv4 mapped into IPv6 is IPv4, the zone does not count."""
    return bool(seen) and _address(seen) == _address(planned)


def _address(text: str) -> object:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return getattr(address, "ipv4_mapped", None) or address


def port_fault_now(address: str, port: int) -> tuple[int, str] | None:
    """Tries to listen on the port and lets go at once: ``RunOutcome`` and words when that fails, None when free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        place = socket.getaddrinfo(address, port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0][4]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as iperf3 does
            probe.bind(place)
            probe.listen(1)
    except OSError as error:
        detail = f"{address} port {port}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            return pb.RUN_OUTCOME_PORT_IN_USE, detail
        return pb.RUN_OUTCOME_BAD_PARAMETERS, detail
    return None
