"""What the ad hoc probes share: names to addresses, and a run that ends."""

import asyncio
import signal
from collections.abc import Sequence

import pytest

from agent.app.adhoc import Asked, Run, resolve
from agent.clock import SystemClock
from agent.probe.resolve import Resolver
from agent.result import RoundTripBatch

ADDRESSES = {"both": ["10.0.0.1", "fd00::1"], "four": ["10.0.0.4"]}


def lookup(name: str) -> Sequence[str]:
    if name not in ADDRESSES:
        raise OSError("[Errno -2] Name or service not known")
    return ADDRESSES[name]


@pytest.mark.parametrize(
    ("ip_version", "found", "faults"),
    [
        (0, [("both", "10.0.0.1"), ("both", "fd00::1"), ("four", "10.0.0.4")], {}),
        (4, [("both", "10.0.0.1"), ("four", "10.0.0.4")], {}),
        (6, [("both", "fd00::1")], {"four": "no IPv6 address"}),
    ],
)
async def test_names_to_addresses(ip_version: int, found: list[tuple[str, str]], faults: dict[str, str]) -> None:
    clock = SystemClock()
    answer = await resolve(["both", "four", "none"], ip_version, clock, Resolver(clock, lookup))
    assert sorted(answer[0]) == found
    assert answer[1] == faults | {"none": "Name or service not known"}


class Session:
    """Counts what is asked of it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.running = False
        self.drains = 0
        self.quiet_after: int | None = None

    async def run(self) -> None:
        self.running = True
        if self.fails:
            raise RuntimeError("broken")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.running = False

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        self.drains += 1
        return []

    def quiet(self) -> None:
        self.quiet_after = self.drains


def asked(count: int | None) -> Asked:
    return Asked(count, 20_000_000, 10_000_000, 56, 0, 0, "", as_json=False)


async def test_a_run_sends_then_waits_then_ends() -> None:
    session = Session()
    await Run(asked(2), SystemClock()).go(session, session.quiet, lambda _: None)
    assert session.quiet_after is not None
    assert 0 < session.quiet_after < session.drains
    assert not session.running


async def test_an_interrupt_ends_the_sending_and_what_is_out_is_waited_for() -> None:
    session = Session()

    def interrupt_once(_: list[RoundTripBatch]) -> None:
        if session.quiet_after is None and session.drains == 1:
            signal.raise_signal(signal.SIGINT)

    await Run(asked(None), SystemClock()).go(session, session.quiet, interrupt_once)
    assert session.quiet_after is not None
    assert session.drains > session.quiet_after


async def test_a_session_that_fails_ends_the_run() -> None:
    session = Session(fails=True)
    with pytest.raises(RuntimeError, match="broken"):
        await Run(asked(None), SystemClock()).go(session, session.quiet, lambda _: None)
