"""What the kernel says of network devices in text: ``/proc/net/dev``, and ``speed`` in sysfs. Pure.

The kernel's column titles are not its counter names: "drop" on the receive side is rx_dropped + rx_missed_errors,
"frame" the sum of four counters (net/core/net-procfs.c, dev_seq_printf_stats). Only columns that mean the same as the
file of that name in ``/sys/class/net/*/statistics`` are given back.
"""

import re
from collections.abc import Mapping

# Names hold anything but white space and "/", so also colons; the numbers hold none: split at the last colon before
# them, with or without a space behind it.
_LINE = re.compile(r"\s*(\S+):\s*(\d+(?:\s+\d+){15})\s*")
_COLUMNS = {
    "rx_bytes": 0,
    "rx_packets": 1,
    "rx_errors": 2,
    "tx_bytes": 8,
    "tx_packets": 9,
    "tx_errors": 10,
    "tx_dropped": 11,
}


_SPEED_UNKNOWN = (65_535, 4_294_967_295)  # -1 as drivers of 16 and 32 bits print it


def parse_speed(text: str) -> int | None:
    """Bits per second from the file ``speed`` (Mbit/s); None where the kernel does not know."""
    try:
        megabits = int(text)
    except ValueError:
        return None
    # Beyond a petabit it is no speed either, and does not fit the record.
    return None if not 0 < megabits < 1_000_000_000 or megabits in _SPEED_UNKNOWN else megabits * 1_000_000


def parse(text: str) -> Mapping[str, Mapping[str, int]]:
    """Counters by interface and kernel name. A line that cannot be read costs only its own interface."""
    counters: dict[str, Mapping[str, int]] = {}
    for line in text.splitlines()[2:]:  # two lines of titles
        match = _LINE.fullmatch(line)
        if match:
            numbers = match[2].split()
            counters[match[1]] = {name: int(numbers[column]) for name, column in _COLUMNS.items()}
    return counters
