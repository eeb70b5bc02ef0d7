"""A collector that only receives: checks every batch against its chain, acknowledges it, and issues one plan.

For tests in the same process, and as a process of its own for benches::

    python -m tests.fakes.sink_collector --listen 127.0.0.1:0 --plan plan.bin [--tls DIR NAME] [--keep]

prints the port on its first line, and on SIGTERM one JSON object with what it saw.
"""

import argparse
import asyncio
import json
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness import KEEPALIVE_TIME_MS, MAX_MESSAGE_BYTES, PROTOCOL_VERSION, chain
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1 import uplink_pb2 as up
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.uplink_pb2_grpc import UplinkServicer, add_UplinkServicer_to_server

ChainKey = tuple[bytes, int]


class SinkCollector(UplinkServicer):
    """Keeps records by kind (``keep``) or counts them; ``faults`` holds every batch that did not fit its chain."""

    def __init__(self, plan: Plan | None = None, *, keep: bool = True) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self.tips: dict[ChainKey, chain.Tip] = {}
        self.hellos: list[up.Hello] = []
        self.headers: dict[int, list[pb.Header]] = defaultdict(list)
        self.records: list[pb.Record] = []
        self.kinds: Counter[str] = Counter()
        self.samples = 0
        self.outcomes: Counter[int] = Counter()
        self.faults: list[str] = []
        self.changed = asyncio.Event()
        self._keep = keep
        self._tip = chain.ORIGIN
        self._plans: list[pb.SignedBatch] = []
        self._waiting: list[asyncio.Queue[pb.SignedBatch]] = []
        self._server: grpc.aio.Server | None = None
        if plan is not None:
            self.issue(plan)

    # ------------------------------------------------------------ control

    @property
    def public_key(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def issue(self, plan: Plan) -> None:
        """Signs the plan into the control chain and sends it to everyone connected, now and later."""
        header = pb.Header(
            agent_id="collector",
            chain_id=bytes(16),
            batch_class=pb.BATCH_CLASS_CONTROL,
            public_key=self.public_key,
            boot_id=bytes(16),
            run_id=bytes(16),
            first_event_time_ns=time.time_ns(),
            last_event_time_ns=time.time_ns(),
            software_version="sink",
        )
        issued = pb.PlanIssued(node=plan.node, plan=plan.SerializeToString(deterministic=True))
        record = pb.Record(salt=bytes(16), plan_issued=issued).SerializeToString()
        batch = chain.seal(header, [record], self._tip, self.key.sign)
        self._tip = chain.Tip(chain.read_header(batch.header).seq, chain.header_hash(batch.header))
        self._plans.append(batch)
        for queue in self._waiting:
            queue.put_nowait(batch)

    # ------------------------------------------------------------ stream

    async def Stream(
        self, request_iterator: AsyncIterator[up.UplinkRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[up.UplinkResponse]:
        answers: asyncio.Queue[up.UplinkResponse | None] = asyncio.Queue()
        plans: asyncio.Queue[pb.SignedBatch] = asyncio.Queue()
        for batch in self._plans[-1:]:
            plans.put_nowait(batch)
        self._waiting.append(plans)
        welcomed = asyncio.Event()
        reading = asyncio.create_task(self._read(request_iterator, answers, welcomed))
        sending = asyncio.create_task(self._send_plans(plans, answers, welcomed))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
        finally:
            self._waiting.remove(plans)
            reading.cancel()
            sending.cancel()

    @staticmethod
    async def _send_plans(
        plans: asyncio.Queue[pb.SignedBatch], answers: asyncio.Queue[up.UplinkResponse | None], welcomed: asyncio.Event
    ) -> None:
        await welcomed.wait()
        while True:
            answers.put_nowait(up.UplinkResponse(plan=await plans.get()))

    async def _read(
        self,
        requests: AsyncIterator[up.UplinkRequest],
        answers: asyncio.Queue[up.UplinkResponse | None],
        welcomed: asyncio.Event,
    ) -> None:
        try:
            async for request in requests:
                if request.HasField("hello"):
                    answers.put_nowait(self._welcome(request.hello))
                    welcomed.set()
                else:
                    answers.put_nowait(self._acknowledge(request.batch))
                self.changed.set()
        finally:
            answers.put_nowait(None)

    def _welcome(self, hello: up.Hello) -> up.UplinkResponse:
        self.hellos.append(hello)
        welcome = up.Welcome(
            collector_id="collector",
            software_version="sink",
            protocol_version=PROTOCOL_VERSION,
            public_key=self.public_key,
            wall_time_ns=time.time_ns(),
            head=self._tip.header_hash,
        )
        for tip in hello.chain:
            known = self.tips.get((tip.chain_id, tip.batch_class), chain.ORIGIN)
            welcome.durable.add(chain_id=tip.chain_id, batch_class=tip.batch_class, seq=known.seq)
        return up.UplinkResponse(welcome=welcome)

    def _acknowledge(self, batch: pb.SignedBatch) -> up.UplinkResponse:
        header = chain.read_header(batch.header)
        key = (header.chain_id, header.batch_class)
        tip = self.tips.get(key, chain.ORIGIN)
        if header.seq > tip.seq:  # else: a resent one
            self._take(batch, header, tip)
            tip = self.tips[key] = chain.Tip(header.seq, chain.header_hash(batch.header))
        ack = up.Ack(
            chain_id=header.chain_id,
            batch_class=header.batch_class,
            durable_through_seq=tip.seq,
            head=self._tip.header_hash,
            receive_time_ns=time.time_ns(),
        )
        return up.UplinkResponse(ack=ack)

    def _take(self, batch: pb.SignedBatch, header: pb.Header, tip: chain.Tip) -> None:
        try:
            chain.check_signature(batch.header, header, batch.signature)
            chain.check_link(header, tip)
            records = [pb.Record.FromString(record) for record in chain.read_payload(header, batch.payload)]
        except chain.ChainError as error:
            self.faults.append(str(error))
            return
        self.headers[header.batch_class].append(header)
        for record in records:
            self.kinds[record.WhichOneof("kind") or "none"] += 1
            if record.HasField("round_trip"):
                self.samples += sum(record.round_trip.sample_count)
                for run in record.round_trip.outcome_run:
                    self.outcomes[run & 15] += run >> 4
        if self._keep:
            self.records += records

    # ------------------------------------------------------------ life

    async def start(self, listen: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None) -> int:
        """Listens; gives the port."""
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.so_reuseport", 0),
            ]
        )
        add_UplinkServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        if credentials is None:
            port = self._server.add_insecure_port(listen)
        else:
            port = self._server.add_secure_port(listen, credentials)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Ends all streams at once."""
        assert self._server is not None
        await self._server.stop(None)

    def found(self, kind: str) -> list[Any]:
        """Records of one kind, as messages of that kind."""
        return [getattr(record, kind) for record in self.records if record.WhichOneof("kind") == kind]

    def summary(self) -> dict[str, Any]:
        """What was seen, as counts."""
        return {
            "batches": {_name(pb.BatchClass, kind): len(headers) for kind, headers in self.headers.items()},
            "records": dict(self.kinds),
            "samples": self.samples,
            "outcomes": {_name(pb.PacketOutcome, kind): count for kind, count in self.outcomes.items()},
            "faults": self.faults,
            "connections": len(self.hellos),
        }


def _name(enumeration: Any, value: int) -> str:
    return str(enumeration.Name(value))


def tls_credentials(directory: Path, name: str) -> grpc.ServerCredentials:
    """From the files that ``deploy/make_certificates.py`` writes; clients must have a certificate too."""
    return grpc.ssl_server_credentials(
        [((directory / f"{name}.key").read_bytes(), (directory / f"{name}.pem").read_bytes())],
        root_certificates=(directory / "ca.pem").read_bytes(),
        require_client_auth=True,
    )


async def _serve(asked: argparse.Namespace) -> None:
    plan = Plan.FromString(asked.plan.read_bytes()) if asked.plan else None
    sink = SinkCollector(plan, keep=asked.keep)
    credentials = tls_credentials(Path(asked.tls[0]), asked.tls[1]) if asked.tls else None
    port = await sink.start(asked.listen, credentials)
    print(port, flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await sink.stop()
    print(json.dumps(sink.summary()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--tls", nargs=2, metavar=("DIR", "NAME"))
    parser.add_argument("--keep", action="store_true")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
