"""One stream an agent: the newer wins, and two that take turns are noticed."""

import asyncio

from bandwitness.v1.uplink_pb2 import Hello
from collector.ingest.sessions import CONFLICT_WITHIN_NS, REPLACED, Session, Sessions


async def taken(sessions: Sessions, run: bytes, now_ns: int) -> Session:
    """A stream of this run; the one before it ends as soon as it is told to."""
    before = sessions.get("n1")

    async def end() -> None:
        assert before is not None
        await before.replaced.wait()
        await sessions.close(before)

    ending = asyncio.ensure_future(end()) if before is not None else None
    opened = await sessions.open(Hello(agent_id="n1", run_id=run), now_ns)
    if ending is not None:
        await ending
    return opened


async def test_two_processes_that_take_turns_are_a_conflict_and_a_restart_is_none() -> None:
    sessions = Sessions()
    for now_ns, run in enumerate((b"a", b"a", b"b", b"b", b"c")):  # reconnected, restarted, reconnected, restarted
        await taken(sessions, run, now_ns)
    assert (sessions.statistics.conflicts, sessions.in_conflict(9)) == (0, [])
    for now_ns, run in enumerate((b"b", b"c", b"b"), 10):
        await taken(sessions, run, now_ns)
    assert (sessions.statistics.conflicts, sessions.in_conflict(20)) == (3, ["n1"])
    assert sessions.in_conflict(20 + CONFLICT_WITHIN_NS) == []


async def test_the_older_stream_is_told_why_it_ends_and_only_the_first_reason_counts() -> None:
    sessions = Sessions()
    first = await taken(sessions, b"a", 0)
    await taken(sessions, b"a", 1)
    assert first.why == REPLACED
    first.end(REPLACED[0], "something else")
    assert first.why == REPLACED
