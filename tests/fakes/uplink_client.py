"""An agent's side of the stream, one message at a time, over a real channel."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

import grpc

from bandwitness import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS, PROTOCOL_VERSION
from bandwitness.v1.record_pb2 import SignedBatch
from bandwitness.v1.uplink_pb2 import Ack, ChainTip, Hello, UplinkRequest, UplinkResponse, Welcome
from tests.fakes.batches import FakeChain

# As an agent's: pings also when idle, and as often as the collector allows.
OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each client
]


class UplinkClient:
    """``async with``; then hello, send, receive."""

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, int]] = (),
    ) -> None:
        merged = list({**dict(OPTIONS), **dict(options)}.items())
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, merged)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, merged)
        self.call: grpc.aio.StreamStreamCall[bytes, bytes] = self._channel.stream_stream(
            "/bandwitness.v1.Uplink/Stream"
        )()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def hello(self, agent_id: str, chains: Sequence[FakeChain] = (), *, plan_hash: bytes = b"") -> Welcome:
        """Says hello and gives back the Welcome."""
        tips = [ChainTip(chain_id=chain.chain_id, batch_class=_class(chain), seq=chain.tip.seq) for chain in chains]
        hello = Hello(agent_id=agent_id, protocol_version=PROTOCOL_VERSION, chain=tips, plan_hash=plan_hash)
        await self.call.write(UplinkRequest(hello=hello).SerializeToString())
        response = await self.receive()
        assert response.WhichOneof("message") == "welcome"
        return response.welcome

    async def send(self, batch: SignedBatch) -> None:
        await self.call.write(UplinkRequest(batch=batch).SerializeToString())

    async def receive(self) -> UplinkResponse:
        """The next message.

        Raises:
            grpc.aio.AioRpcError: the stream has ended with a status.
        """
        message = await self.call.read()
        assert isinstance(message, bytes), "the stream has ended"
        return UplinkResponse.FromString(message)

    async def acknowledged(self, seq: int, until: Callable[[Ack], bool] | None = None) -> list[Ack]:
        """Acknowledgements up to the one that covers ``seq`` (or the one that ``until`` accepts)."""
        acks: list[Ack] = []
        while True:
            response = await self.receive()
            if response.WhichOneof("message") != "ack":
                continue
            acks.append(response.ack)
            if until(response.ack) if until is not None else response.ack.durable_through_seq >= seq:
                return acks

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ended, once it has. Messages are read to the end first: gRPC gives the status behind them."""
        with suppress(grpc.aio.AioRpcError):
            while isinstance(await self.call.read(), bytes):
                pass
        code = await self.call.code()
        return grpc.StatusCode(code) if isinstance(code, grpc.StatusCode) else code, await self.call.details()


def _class(chain: FakeChain):  # type: ignore[no-untyped-def]
    return chain.batch_class
