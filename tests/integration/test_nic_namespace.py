"""The NIC sampler on real devices that come and go, in a network namespace of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]

# Runs inside the namespace and prints one line a tick: received bytes, CRC errors, fault.
INSIDE = """
import subprocess, sys
from pathlib import Path
from agent.clock import SystemClock
from agent.sample.nic import NicSampler

def ip(*words):
    subprocess.run(["ip", *words], check=True)

def tick(sampler):
    sampler.tick()
    (batch,) = sampler.drain()
    value = dict(zip(batch.counters, batch.values))
    print(value["rx_bytes"][0], value["rx_crc_errors"][0], batch.mtu_bytes, batch.speed_bps, batch.fault, sep="|")

ip("link", "set", "lo", "up")
sampler = NicSampler(Path("/"), SystemClock(), ethtool=None, of_host=())
sampler.configure(["w0"])
tick(sampler)
ip("link", "add", "w0", "mtu", "1400", "type", "veth", "peer", "name", "w1")
tick(sampler)
ip("link", "delete", "w0")
tick(sampler)
ip("link", "add", "w0", "type", "veth", "peer", "name", "w1")
tick(sampler)
print(sampler.state().state)
"""
MISSING = "None|None|None|None|no network device w0 in this network namespace"


def inside(*, own_sysfs: bool, program: str = INSIDE) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = "mount -t sysfs sysfs /sys && " if own_sysfs else ""
    done = subprocess.run(
        ["unshare", *user, "--net", "--mount", "sh", "-c", f'{mount}exec "$@"', "sh", sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_device_that_comes_goes_and_comes_back() -> None:
    before, first, gone, again, state = inside(own_sysfs=True)
    assert before == MISSING
    assert first == "0|0|1400|None|"  # down: the kernel gives no speed
    assert gone.startswith("None|None|None|None|w0 cannot be read: ")
    assert again.startswith("0|0|1500|")
    assert state == "ok"


def test_under_the_hosts_sysfs_our_own_counters_come_from_proc() -> None:
    before, first, gone, again, state = inside(own_sysfs=False)
    assert before == gone == MISSING
    assert first == again == "0|None|None|None|"
    assert state == "wrong_sysfs"


# Driver statistics of real devices, through the real ioctl; prints name and value of what is recorded, and the fault.
DRIVERS = """
import subprocess
from pathlib import Path
from agent.clock import SystemClock
from agent.sample.ethtool import driver_of, kernel_ioctl, names_of, values_of
from agent.sample.nic import NicSampler
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL

subprocess.run(["ip", "link", "add", "w0", "type", "veth", "peer", "name", "w1"], check=True)
index = Path("/sys/class/net/w1/ifindex").read_text().strip()
names = names_of("w0", kernel_ioctl)
values = dict(zip(names, values_of("w0", len(names), range(len(names)), kernel_ioctl)))
fewer = values_of("w0", len(names) - 1, [0], kernel_ioctl)
print(driver_of("w0", kernel_ioctl), values["peer_ifindex"] == int(index), fewer)
sampler = NicSampler(Path("/"), SystemClock(), of_host=())
sampler.configure(["w0", "lo"])
sampler.tick()
sampler.ask_drivers()
for batch in sampler.drain():
    if batch.source == COUNTER_SOURCE_ETHTOOL:
        print(batch.nic, batch.kind, batch.driver, *batch.counters, *batch.values)
print([unit.statistics.supported for unit in sampler.units.values()], sampler.state().detail)
"""


def test_the_ioctl_of_the_kernel_answers_as_the_fake_does() -> None:
    found = inside(own_sysfs=True, program=DRIVERS)
    assert found == [
        "veth True None",  # None: another number of statistics than was said
        "w0 veth veth rx_queue_0_drops (0,)",
        "[True, False] ",
    ]
