"""Counters of the whole host: TCP, UDP and IP, packets that CPUs dropped, CPU time by core. Parsing is pure.

Columns are found by their titles: kernels differ in which there are. A line that cannot be read costs only itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bandwitness.counters import HOST_COUNTERS
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_CPU, COUNTER_SOURCE_SOFTNET, COUNTER_SOURCE_TCP

MAX_CPUS = 1_024
_MAX_BYTES = 1 << 20
_SOFTNET = {"processed": 0, "dropped": 1, "time_squeeze": 2, "flow_limit": 10}  # net/core/net-procfs.c
_CPU = {"idle": 3, "iowait": 4, "softirq": 6, "steal": 7}  # proc(5), without the name


def parse_protocols(text: str) -> Mapping[str, int]:
    """``/proc/net/snmp`` or ``netstat``: pairs of lines, titles and numbers. Only what is of the vocabulary."""
    found: dict[str, int] = {}
    titles: dict[str, list[str]] = {}
    for line in text.splitlines():
        group, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or not words:
            continue
        if group in titles:
            for name, number in zip(titles.pop(group), words, strict=False):
                key = f"{group}.{name}"
                if key in HOST_COUNTERS and number.isascii() and number.isdigit():
                    found[key] = int(number)
        else:
            titles[group] = words
    return found


def parse_softnet(text: str) -> Mapping[str, int]:
    """``/proc/net/softnet_stat``: hexadecimal, a row for each CPU that is online, each count 32 bits wide.

    The sum over the rows modulo 2^32: it comes round as each row does, and its differences are those of all together.
    """
    sums: dict[str, int] = {}
    for line in text.splitlines()[:MAX_CPUS]:
        words = line.split()
        for name, column in _SOFTNET.items():
            try:
                value = int(words[column], 16)
            except (IndexError, ValueError):
                continue
            key = f"softnet.{name}"
            sums[key] = (sums.get(key, 0) + value) % (1 << 32)
    return sums


def parse_cpus(text: str) -> Mapping[str, int]:
    """``/proc/stat``: clock ticks of each core since the start, of those states that say whether it had time."""
    found: dict[str, int] = {}
    for line in text.splitlines()[: MAX_CPUS + 1]:
        name, *words = line.split()[:9] or [""]
        if not name.startswith("cpu"):
            break
        if name[3:].isascii() and name[3:].isdigit():
            for state, column in _CPU.items():
                if column < len(words) and words[column].isascii() and words[column].isdigit():
                    found[f"{name}.{state}"] = int(words[column])
    return found


@dataclass(frozen=True, slots=True)
class HostSource:
    """Files read together, and what they mean."""

    source: int
    name: str
    files: Sequence[str]
    parse: Callable[[str], Mapping[str, int]]
    every: int  # seconds


SOURCES = (
    HostSource(COUNTER_SOURCE_TCP, "tcp", ("proc/net/snmp", "proc/net/netstat"), parse_protocols, 1),
    HostSource(COUNTER_SOURCE_SOFTNET, "softnet", ("proc/net/softnet_stat",), parse_softnet, 1),
    HostSource(COUNTER_SOURCE_CPU, "cpu", ("proc/stat",), parse_cpus, 5),
)


def read(root: Path, what: HostSource) -> Mapping[str, int]:
    """All counters of a source.

    Raises:
        FileNotFoundError: this kernel has none of its files.
        OSError: none of them can be read, or there is nothing in them.
    """
    found: dict[str, int] = {}
    fault: OSError | None = None
    for name in what.files:
        try:
            with (root / name).open(errors="replace") as file:
                found |= what.parse(file.read(_MAX_BYTES))
        except OSError as error:
            fault = error
    if not found and isinstance(fault, FileNotFoundError):
        raise fault
    if not found:
        raise OSError(f"{what.name}: {fault or 'nothing in ' + ' and '.join(what.files)}")
    return found
