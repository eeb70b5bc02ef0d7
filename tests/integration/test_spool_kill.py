"""The spool under a real SIGKILL and on a real file system that is full."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.spool import Limits, Spool
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb

ROOT = Path(__file__).parents[2]
EVIDENCE, TELEMETRY = int(pb.BATCH_CLASS_EVIDENCE), int(pb.BATCH_CLASS_TELEMETRY)

WRITER = """
import asyncio, sys, time
from pathlib import Path
from agent import result
from agent.clock import Anchor
from agent.identity import load_or_create
from agent.record import Author, HeaderContext, Recorder
from agent.spool import Journal, Limits, Spool

async def main(directory, payload, reserve):
    spool = Spool(directory / "spool.sqlite", Limits(reserve_bytes=reserve), wall_ns=time.time_ns)
    await spool.open()
    key = load_or_create(directory)
    author = Author("node", key.public_key, key.sign, b"B" * 16, b"R" * 16, b"C" * 32, "0")
    recorder = Recorder(author, spool.tips())
    journal = Journal(recorder, spool, time.time_ns())
    for line in sys.stdin if payload else iter(int, 1):
        now = time.time_ns()
        recorder.add_status(result.Status(now, 0, None, 0, [result.PartState("p", True, "ok", "d" * payload)]))
        context = HeaderContext(Anchor(now, 1, 1), result.ClockReading(1, True))
        await journal.flush(context, {1: now, 2: now})
        print(spool.tip(1).tip.seq, spool.stats().state, spool.stats().dropped, flush=True)
    await spool.close()

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


def start(directory: Path, *, payload: int = 0, reserve: int = 0) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(payload), str(reserve)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def read(directory: Path, batch_class: int) -> list[tuple[pb.Header, list[bytes]]]:
    """Every batch in the file, with the chain checked from its first header to its last."""

    async def unsent() -> list[tuple[int, pb.SignedBatch]]:
        spool = Spool(directory / "spool.sqlite", Limits(), wall_ns=lambda: 0)
        await spool.open()
        try:
            return await spool.unsent(batch_class, 0, 1 << 40, 1 << 20)
        finally:
            await spool.close()

    found = []
    tip = chain.ORIGIN
    for seq, batch in asyncio.run(unsent()):
        header = chain.read_header(batch.header)
        chain.check_signature(batch.header, header, batch.signature)
        chain.check_link(header, tip)
        tip = chain.Tip(seq, chain.header_hash(batch.header))
        dropped = header.record_count and not batch.payload
        found.append((header, [] if dropped else chain.read_payload(header, batch.payload)))
    return found


def test_a_kill_at_any_moment_leaves_a_whole_chain_that_goes_on(tmp_path: Path) -> None:
    told = 0
    for round_number in range(6):
        process = start(tmp_path)
        assert process.stdout is not None
        for _ in range(3 + 7 * round_number):
            told = int(process.stdout.readline().split()[0])
        os.kill(process.pid, signal.SIGKILL)
        told = max([told, *(int(line.split()[0]) for line in process.stdout if line.endswith("\n"))])
        process.wait()
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.close()
        evidence, telemetry = read(tmp_path, EVIDENCE), read(tmp_path, TELEMETRY)
        assert len(evidence) == len(telemetry) >= told  # what was said to be durable is there, both or neither
        assert len({header.chain_id for header, _ in evidence}) == 1
    records = [pb.Record.FromString(record) for _, batch in evidence for record in batch]
    gaps = [record.gap for record in records if record.WhichOneof("kind") == "gap"]
    assert [gap.reason for gap in gaps] == [pb.GAP_REASON_RESTART] * 5


@pytest.mark.lab
def test_case_41_a_real_file_system_that_is_full_and_then_is_not(tmp_path: Path) -> None:
    """16 MB of tmpfs in a mount namespace of its own, filled and freed while the agent writes."""
    script = (
        f"mount -t tmpfs -o size=16m tmpfs {tmp_path} && mkdir {tmp_path}/state && "
        f'exec {sys.executable} -c "$WRITER" {tmp_path}/state 20000 0'
    )
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"WRITER": WRITER},
    )
    inside = Path(f"/proc/{process.pid}/root{tmp_path}")
    assert process.stdin is not None
    assert process.stdout is not None

    def flush() -> tuple[int, str, int]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        seq, state, dropped = process.stdout.readline().split()
        return int(seq), state, int(dropped)

    try:
        assert flush()[1] == "ok"
        filler = inside / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        states = [flush() for _ in range(600)]
        assert states[-1][1] == "disk_full"
        assert {state for _, state, _ in states} == {"disk_full"}
        assert states[-1][2] > 0  # 12 MB of payloads against 8 MB of memory
        filler.unlink()
        resumed = flush()
        assert resumed[1] == "ok"
        flush()
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
    assert resumed[0] == 602
