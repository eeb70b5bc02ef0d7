"""Takes echo replies out of their way: ``python relay.py FROM_NIC TO_NIC SOURCE DESTINATION SECONDS WHICH DO``.

Takes the replies of SOURCE to DESTINATION as they arrive at FROM_NIC, before any rule of the firewall, and sends each
on at TO_NIC when its time has come, never before. A rule at FROM_NIC has to drop the originals. WHICH is ``all`` or
``odd`` (those whose sequence number is: they are overtaken by the others). DO is ``nothing``, ``damage`` (one byte of
the payload, so the ICMP checksum no longer fits) or ``forge`` (the same, and a checksum that fits).
"""

import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

ETH_P_ALL = 3
LONGEST_QUEUE = 10_000
ETHERNET_BYTES, IP_BYTES = 14, 20
ICMP = ETHERNET_BYTES + IP_BYTES
CHECKSUM = ICMP + 2
SEQUENCE_LOW = ICMP + 7


def is_reply(frame: bytes, source: bytes, destination: bytes) -> bool:
    """Whether an Ethernet frame holds an echo reply over IPv4, without options, between these addresses."""
    return (
        len(frame) > ICMP + 8
        and frame[12:15] == b"\x08\x00\x45"
        and frame[23] == socket.IPPROTO_ICMP
        and frame[26:30] == source
        and frame[30:34] == destination
        and frame[ICMP] == 0
    )


def damaged(frame: bytes, *, forge: bool) -> bytes:
    """One payload byte changed, the last; with ``forge`` the ICMP checksum fits again (RFC 1624, equation 3)."""
    found = bytearray(frame)
    end = ETHERNET_BYTES + int.from_bytes(frame[16:18], "big")  # behind it there may be padding
    at = end - 2 if (end - ICMP) % 2 == 0 else end - 3
    before = int.from_bytes(found[at : at + 2], "big")
    found[at + 1] ^= 0x55
    if forge:
        total = (0xFFFF - int.from_bytes(found[CHECKSUM : CHECKSUM + 2], "big")) + (0xFFFF - before)
        total += int.from_bytes(found[at : at + 2], "big")
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        found[CHECKSUM : CHECKSUM + 2] = (0xFFFF - total).to_bytes(2, "big")
    return bytes(found)


def main(words: Sequence[str]) -> None:
    """Runs until it is killed."""
    from_nic, to_nic, source, destination, seconds, which, do = words
    ends = socket.inet_aton(source), socket.inet_aton(destination)
    hold_ns = round(float(seconds) * 1e9)
    held: deque[tuple[int, bytes]] = deque(maxlen=LONGEST_QUEUE)
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as arriving,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as leaving,
    ):
        arriving.bind((from_nic, ETH_P_ALL))
        leaving.bind((to_nic, 0))
        while True:
            wait_ns = held[0][0] - time.monotonic_ns() if held else 1_000_000_000
            if wait_ns <= 0:
                leaving.send(held.popleft()[1])
                continue
            arriving.settimeout(wait_ns / 1e9)
            with suppress(TimeoutError):
                frame, (_, _, kind, *_) = arriving.recvfrom(2048)
                if kind == socket.PACKET_OUTGOING or not is_reply(frame, *ends):
                    continue
                if which == "odd" and frame[SEQUENCE_LOW] % 2 == 0:
                    continue
                frame = frame if do == "nothing" else damaged(frame, forge=do == "forge")
                held.append((time.monotonic_ns() + hold_ns, frame))


if __name__ == "__main__":
    main(sys.argv[1:])
