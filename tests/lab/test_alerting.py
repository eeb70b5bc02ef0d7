"""From packets lost on the wire to the page: real agents, collector, Prometheus, Alertmanager and webhook."""

import time
from pathlib import Path

import pytest

from tests.fakes.alerting import Told, alertmanager_for, get, prometheus_for, until
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import ECHO, injected, share
from tests.lab.installation import Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import DATA_NIC, Topology

HOST = "gpu-r1-02"
LOSS = 0.3


@pytest.mark.timeout(120)
def test_packets_lost_at_one_host_are_one_page_and_then_the_all_clear(tmp_path: Path) -> None:
    topology = Topology({"r1": 2, "r2": 2})
    measuring = Measuring(flush="1s", path_mtu=False)
    evening = Evening.starting_at(int(time.time()) + 3 * 3600, window_s=window_s(topology, measuring), between_s=60)
    told = Told()
    homes = [tmp_path / name for name in ("lab", "alertmanager", "prometheus")]
    for home in homes:
        home.mkdir()
    with (
        Lab(topology) as lab,
        Installation(lab, homes[0], evening, measuring) as installation,
        told.listening(),
        alertmanager_for(told, homes[1]) as alertmanager,
        prometheus_for(installation.url.removeprefix("http://"), alertmanager, homes[2]) as prometheus,
    ):
        installation.start_collector()
        installation.start_agents()
        sent = "bandwitness_probe_packets_sent_total{"
        wait_for("all paths", lambda: installation.metrics().count(f"\n{sent}") >= 12, within=30)
        up = f"{prometheus}/api/v1/query?query=bandwitness%3Acollector_speaks"
        until("a scrape", lambda: (get(up) or {"data": {"result": []}})["data"]["result"])
        told.received.clear()  # of the time before there was a collector
        with injected(lab, HOST, DATA_NIC, f"{ECHO} {share(LOSS, seed=7)}", "drop") as rule:
            until("a lost packet", rule.packets)
            first_s = time.monotonic()
            [(receiver, alert), *_] = until("the page", lambda: told.alerts("BandwitnessLoss", "firing"), 30)
            print(f"from the first lost packet to the webhook: {time.monotonic() - first_s:.1f} s")
        assert (receiver, alert["labels"]["severity"]) == ("page", "critical")
        assert HOST in alert["labels"]["element"]
        assert HOST in alert["annotations"]["summary"]
        until("the all-clear", lambda: told.alerts("BandwitnessLoss", "resolved"), 60)
    assert [name["labels"]["alertname"] for _, name in told.received if name["status"] == "firing"] == [
        "BandwitnessLoss"
    ]
