"""A part that nothing works without and that dies takes the collector with it, where somebody sees it."""

import asyncio
from pathlib import Path

import pytest

from collector.app.collector import serve
from collector.app.http import HttpServer
from collector.app.planning import Planning
from collector.config import load_config

CONFIG = """
collector: {grpc_listen: "127.0.0.1:0", http_listen: "127.0.0.1:0"}
sites: [{name: a, time_zone: UTC}]
nodes:
  - {name: n1, site: a, rack: r1, endpoints: [{nic: e0, address: 10.0.0.1}]}
  - {name: n2, site: a, rack: r2, endpoints: [{nic: e0, address: 10.0.0.2}]}
"""


@pytest.mark.parametrize("part", [(Planning, "run"), (HttpServer, "serve")])
async def test_a_collector_does_not_outlive_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: tuple[type, str]
) -> None:
    async def die(*_: object) -> None:
        await asyncio.sleep(0)
        raise AssertionError("a fault of ours")

    monkeypatch.setattr(*part, die)
    path = tmp_path / "collector.yaml"
    path.write_text(CONFIG)
    with pytest.raises(AssertionError, match="a fault of ours"):
        await serve(load_config(path), path)
