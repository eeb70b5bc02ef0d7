"""What can be broken in a lab on purpose: random loss, a link, a tenant's load. Each is undone by leaving its block."""

import contextlib
import json
import math
import re
import signal
import subprocess
import time
from collections.abc import Iterator

from tests.lab.lab import Lab, LabError, wait_for
from tests.lab.topology import DATA_NIC, TENANT, TENANT_PEER, TENANT_PEER_ADDRESS, uplink_ports

TENANT_PORTS = {"outwards": 5301, "inwards": 5302}


@contextlib.contextmanager
def loss_at_host(lab: Lab, name: str, ratio: float, *, outwards: bool = True, inwards: bool = True) -> Iterator[None]:
    """Drops ``ratio`` of the packets on a host's data link, for as long as the block runs.

    Always where a packet arrives, never where it leaves: a drop on the way out is told to the sender as ENOBUFS or
    EPERM, and would be a failure to send, not loss. ARP is spared: losing one of its packets silences a pair for a
    second, which is no longer random loss.
    """
    host = lab.topology.host(name)
    with contextlib.ExitStack() as stack:
        if outwards:
            stack.enter_context(_drop(lab, None, host.port, ratio))
        if inwards:
            stack.enter_context(_drop(lab, name, DATA_NIC, ratio))
        yield


@contextlib.contextmanager
def loss_at_uplink(lab: Lab, rack: str, ratio: float, *, outwards: bool = True, inwards: bool = True) -> Iterator[None]:
    """Drops ``ratio`` of the packets on a rack's uplink, for as long as the block runs."""
    at_leaf, at_core = uplink_ports(rack)
    with contextlib.ExitStack() as stack:
        if outwards:
            stack.enter_context(_drop(lab, None, at_core, ratio))
        if inwards:
            stack.enter_context(_drop(lab, None, at_leaf, ratio))
        yield


@contextlib.contextmanager
def _drop(lab: Lab, namespace: str | None, nic: str, ratio: float) -> Iterator[None]:
    if not 0 < ratio <= 1:
        raise ValueError(f"a loss ratio lies above 0 and is at most 1, not {ratio}")
    table = f"loss-{nic}"
    rules = (
        f"table netdev {table} {{ chain arriving {{\n"
        f"  type filter hook ingress device {nic} priority 0\n"
        f"  meta protocol != arp numgen random mod 1000000 < {math.ceil(ratio * 1_000_000)} drop\n}}\n}}\n"
    )
    lab.run(namespace, ["nft", "-f", "-"], text=rules)
    try:
        yield
    finally:
        with contextlib.suppress(LabError):  # the lab may be closing
            lab.run(namespace, ["nft", "delete", "table", "netdev", table])


@contextlib.contextmanager
def link_down(lab: Lab, name: str) -> Iterator[None]:
    """Takes a host's data link down at the leaf, as a pulled cable does: the host sees its carrier go."""
    port = lab.topology.host(name).port
    lab.run(None, ["ip", "link", "set", port, "down"])
    try:
        yield
    finally:
        with contextlib.suppress(LabError):
            lab.run(None, ["ip", "link", "set", port, "up"])


class CompetingTenant:
    """The load of whoever shares the oversold uplink: iperf3, TCP cubic, started and stopped on demand."""

    def __init__(self, lab: Lab) -> None:
        if lab.topology.tenant is None:
            raise ValueError("this lab has no tenant")
        self._lab = lab
        self._tenant = lab.topology.tenant
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *, within: float = 10) -> None:
        """Returns once the load has reached half the uplink's rate in each of its directions."""
        assert not self._running, "the tenant is on already"
        directions = [name for name in TENANT_PORTS if getattr(self._tenant, name)]
        for direction in directions:
            port = TENANT_PORTS[direction]
            self._running.append(self._lab.start(TENANT_PEER, ["iperf3", "-s", "-p", str(port)]))
            wait_for("the tenant's server", lambda port=port: self._listens(port), within=within)  # type: ignore[misc]
            client = ["iperf3", "-c", TENANT_PEER_ADDRESS, "-p", str(port), "-C", "cubic", "-t", "86400"]
            client += ["-P", str(self._tenant.streams), *(["-R"] if direction == "inwards" else [])]
            self._running.append(self._lab.start(TENANT, client))
        wanted = self._lab.topology.uplink_rate_bps / 2
        wait_for(
            "the tenant's load", lambda: all(self.rates_bps()[name] >= wanted for name in directions), within=within
        )

    def stop(self) -> None:
        """Returns once nothing of the tenant's is on the wire."""
        for process in reversed(self._running):
            self._lab.stop(process, by=signal.SIGKILL)
        self._running.clear()
        wait_for("the end of the tenant's load", lambda: sum(self.rates_bps().values()) < 1_000_000, within=10)

    def is_on(self) -> bool:
        """Whether all of it is still running; it never ends by itself."""
        return bool(self._running) and all(process.poll() is None for process in self._running)

    def rates_bps(self, over: float = 0.3) -> dict[str, float]:
        """What the tenant sends and receives at its leaf, in bit/s, over the next ``over`` seconds."""
        before, began = self._counters(), time.monotonic()
        time.sleep(over)  # an average needs time to pass
        after, ended = self._counters(), time.monotonic()
        return {name: (after[name] - before[name]) * 8 / (ended - began) for name in after}

    def _counters(self) -> dict[str, int]:
        link = json.loads(self._lab.run(None, ["ip", "-j", "-s", "link", "show", "dev", "p-tenant"]))[0]
        return {"outwards": link["stats64"]["rx"]["bytes"], "inwards": link["stats64"]["tx"]["bytes"]}

    def _listens(self, port: int) -> bool:
        return bool(self._lab.run(TENANT_PEER, ["ss", "-Hltn", f"sport = :{port}"]).strip())


# ---------------------------------------------------------------- one rule, and how many packets it has met

ECHO = "icmp type { echo-request, echo-reply }"


# What tells the packets of a path apart, as nft writes it.
ECHO_PACKET = "ip saddr . ip daddr . icmp id . icmp sequence"
TCP_FLOW = "ip saddr . ip daddr . tcp sport . tcp dport"


def share(ratio: float, seed: int, of: str = ECHO_PACKET) -> str:
    """An nft condition that chooses ``ratio`` of the packets by a hash of the fields ``of``.

    nft's ``numgen random`` cannot be seeded. With the hash, which of a path's packets are met follows from the seed.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"a ratio lies above 0 and is at most 1, not {ratio}")
    return f"jhash {of} mod 1000000 seed {seed + 1:#x} < {math.ceil(ratio * 1_000_000)}"


class Injected:
    """A rule that is in place."""

    def __init__(self, lab: Lab, namespace: str | None, table: str) -> None:
        self._lab, self._namespace, self._table = lab, namespace, table

    def packets(self) -> int:
        """How many packets it has met so far."""
        text = self._lab.run(self._namespace, ["nft", "list", "table", "netdev", self._table])
        match = re.search(r"counter packets (\d+)", text)
        assert match, text
        return int(match[1])

    def stop(self) -> int:
        """Lets all packets pass from now on; how many it had met by then."""
        self._lab.run(self._namespace, ["nft", "insert", "rule", "netdev", self._table, "arriving", "accept"])
        return self.packets()


@contextlib.contextmanager
def injected(
    lab: Lab, namespace: str | None, nic: str, condition: str, verdict: str, *, name: str = "injected"
) -> Iterator[Injected]:
    """One counted nft rule where packets arrive at ``nic``, for as long as the block runs.

    Args:
        lab: an open lab.
        namespace: where the NIC is; None: the fabric.
        nic: the device.
        condition: nft matches, such as ``ECHO`` and ``share(...)`` in one line.
        verdict: what becomes of the packets met: ``drop``, ``dup to p-gpu-r1-01``.
        name: of the rule's table; one at a time for each namespace.
    """
    rules = (
        f"table netdev {name} {{ chain arriving {{\n"
        f"  type filter hook ingress device {nic} priority 0\n"
        f"  {condition} counter {verdict}\n}}\n}}\n"
    )
    lab.run(namespace, ["nft", "-f", "-"], text=rules)
    try:
        yield Injected(lab, namespace, name)
    finally:
        with contextlib.suppress(LabError):  # the lab may be closing
            lab.run(namespace, ["nft", "delete", "table", "netdev", name])
