"""The lab itself: what it builds, that its faults are there to be found, and that it leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.faults import CompetingTenant, link_down, loss_at_host, loss_at_uplink
from tests.lab.lab import Lab, LabError, LabUnavailableError, end_strays, processes_of_labs, wait_for
from tests.lab.topology import COLLECTOR, COLLECTOR_ADDRESS, Host, Tenant, Topology, oversold_by_seed

TWO_RACKS = {"r1": 2, "r2": 2}


def throughput_bps(lab: Lab, source: Host, destination: Host) -> float:
    """One plain iperf3 test of one second, without anything of ours."""
    server = lab.start(destination.name, ["iperf3", "-s", "-1", "-B", destination.address])
    wait_for("iperf3", lambda: "5201" in lab.run(destination.name, ["ss", "-Hltn", "sport = :5201"]), within=10)
    client = ["iperf3", "-J", "-c", destination.address, "-C", "cubic", "-P", "4", "-t", "1"]
    report = json.loads(lab.run(source.name, client, timeout=20))
    lab.stop(server)
    return float(report["end"]["sum_received"]["bits_per_second"])


def loss_ratio(lab: Lab, source: Host, destination: Host, count: int = 300) -> float:
    """Round-trip loss as fping sees it."""
    text = lab.run(source.name, ["sh", "-c", f"fping -q -c {count} -p 10 -t 500 {destination.address} 2>&1 || true"])
    match = re.search(r"xmt/rcv/%loss = (\d+)/(\d+)/", text)
    assert match, text
    return 1 - int(match[2]) / int(match[1])


def root_namespace() -> tuple[str, str, str]:
    def words(*argv: str) -> str:
        return subprocess.run(
            argv, capture_output=True, text=True, check=True, env={"PATH": "/usr/sbin:/sbin:/bin"}
        ).stdout

    return words("ip", "-br", "link"), words("ip", "-br", "address"), words("ip", "netns")


def test_hosts_reach_each_other_and_the_collector_and_the_root_namespace_stays_as_it_was() -> None:
    before = root_namespace()
    with Lab(Topology(TWO_RACKS)) as lab:
        first, *others = lab.topology.hosts
        for other in others:
            assert loss_ratio(lab, first, other, count=3) == 0
        lab.run(first.name, ["fping", "-q", "-c", "1", COLLECTOR_ADDRESS])
        with pytest.raises(LabError):  # two planes: the collector has no way into the data plane
            lab.run(COLLECTOR, ["fping", "-q", "-c", "1", "-t", "200", first.address])
        assert root_namespace() == before
    assert root_namespace() == before


def test_the_kernel_reads_its_own_files_inside_a_namespace() -> None:
    with Lab(Topology({"r1": 1})) as lab:
        assert sorted(lab.run("gpu-r1-01", ["ls", "/sys/class/net"]).split()) == ["d0", "lo", "m0"]


def test_two_labs_at_once_do_not_meet() -> None:
    with Lab(Topology(TWO_RACKS)) as one, Lab(Topology({"r1": 1})) as other:
        assert loss_ratio(one, one.topology.hosts[0], one.topology.hosts[1], count=3) == 0
        other.close()
        assert loss_ratio(one, one.topology.hosts[0], one.topology.hosts[2], count=3) == 0


def test_a_failing_block_takes_the_lab_and_its_processes_with_it() -> None:
    process: subprocess.Popen[bytes] | None = None

    def block() -> None:
        nonlocal process
        with Lab(Topology({"r1": 1})) as lab:
            process = lab.start("gpu-r1-01", ["sleep", "1000"])
            lab.run("gpu-r1-01", ["sh", "-c", "sleep 1000 >/dev/null 2>&1 </dev/null &"])  # an orphan
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert process is not None
    assert process.returncode == -signal.SIGKILL
    wait_for("the end of everything", lambda: processes_of_labs(os.getpid()) == [], within=10)


def test_a_lab_dies_with_its_maker_even_by_sigkill() -> None:
    program = (
        "import time; from tests.lab.lab import Lab; from tests.lab.topology import Topology\n"
        "with Lab(Topology({'r1': 1})) as lab:\n"
        "    lab.start('gpu-r1-01', ['sleep', '1000'])\n"
        "    lab.run('gpu-r1-01', ['sh', '-c', 'sleep 1000 >/dev/null 2>&1 </dev/null &'])\n"
        "    print('up', flush=True); time.sleep(1000)\n"
    )
    root = Path(__file__).parents[2]
    maker = subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE)
    assert maker.stdout is not None
    with maker.stdout:
        assert maker.stdout.readline() == b"up\n"
        assert len(processes_of_labs(maker.pid)) == 3
        maker.kill()
        maker.wait(timeout=10)
    wait_for("all but the orphan to end", lambda: len(processes_of_labs(maker.pid)) <= 1, within=10)
    end_strays()
    wait_for("the orphan to end", lambda: processes_of_labs(maker.pid) == [], within=10)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may read, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="bandwitness-lab-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_an_ordinary_user_can_have_a_lab_or_is_told_the_cure(open_place: Path) -> None:
    # Run by the base interpreter on copies of two files that need nothing but the standard library: neither the
    # checkout nor the virtual environment need be readable for that user.
    place = open_place / "tests" / "lab"
    place.mkdir(parents=True)
    for name in ("lab.py", "topology.py"):
        shutil.copy(Path(__file__).with_name(name), place / name)
    program = (
        "from tests.lab.lab import Lab, LabUnavailableError; from tests.lab.topology import Topology\n"
        "try:\n"
        "    with Lab(Topology({'r1': 2})) as lab:\n"
        "        lab.run('gpu-r1-01', ['fping', '-q', '-c', '1', lab.topology.hosts[1].address])\n"
        "        print('works')\n"
        "except LabUnavailableError as error:\n"
        "    print(error)\n"
    )
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    interpreter = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [*become, interpreter, "-c", program], cwd=open_place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("works", "Network namespaces cannot be made by an ordinary user here")), done.stdout


def test_no_namespaces_at_all_is_a_plain_message_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        pytest.raises(LabUnavailableError, match=r"Operation not permitted.*(--privileged|Run it as root)"),
        Lab(Topology({"r1": 1})),
    ):
        pass


@pytest.mark.timeout(120)
def test_the_tenant_takes_the_oversold_uplink_and_nothing_else() -> None:
    with Lab(Topology({"r1": 2, "r2": 1, "r3": 1}, tenant=Tenant("r2"))) as lab:
        topology = lab.topology
        first, second = topology.host("gpu-r1-01"), topology.host("gpu-r1-02")
        oversold, clean = topology.host("gpu-r2-01"), topology.host("gpu-r3-01")
        paths = [(first, oversold, 3), (oversold, clean, 3), (first, clean, 1), (clean, first, 1), (first, second, 1)]
        tenant = CompetingTenant(lab)

        def medians() -> list[float]:
            return [statistics.median(throughput_bps(lab, a, b) for _ in range(count)) for a, b, count in paths]

        alone = medians()
        tenant.start()
        beside = medians()
        assert tenant.is_on()
        tenant.stop()
        swings = [1 - peak / offpeak for offpeak, peak in zip(alone, beside, strict=True)]
        assert all(swing > 0.4 for swing in swings[:2]), swings
        assert all(abs(swing) < 0.15 for swing in swings[2:]), swings
        assert 0.7 * topology.uplink_rate_bps < alone[0] <= topology.uplink_rate_bps


@pytest.mark.timeout(120)
def test_loss_is_where_it_was_put_and_ends_with_its_block() -> None:
    with Lab(Topology(TWO_RACKS)) as lab:
        sick, near, far, other = lab.topology.hosts
        with loss_at_host(lab, sick.name, 0.1):  # both ways: 19 % of round trips
            assert 0.08 < loss_ratio(lab, near, sick) < 0.33
            assert loss_ratio(lab, near, far, count=100) == 0
        assert loss_ratio(lab, near, sick, count=100) == 0
        with loss_at_uplink(lab, "r1", 0.2, inwards=False):
            assert 0.09 < loss_ratio(lab, near, far) < 0.34
            assert 0.09 < loss_ratio(lab, other, sick) < 0.34  # the reply goes outwards
            assert loss_ratio(lab, near, sick, count=100) == 0
        with link_down(lab, sick.name):
            assert loss_ratio(lab, near, sick, count=5) == 1


def test_a_seed_says_which_rack_is_oversold() -> None:
    racks = ["r1", "r2", "r3"]
    assert {oversold_by_seed(seed, racks) for seed in range(20)} == set(racks)
    assert oversold_by_seed(7, racks) == oversold_by_seed(7, racks[::-1])
    with pytest.raises(ValueError, match="r9"):
        Topology({"r1": 1}, tenant=Tenant("r9"))
