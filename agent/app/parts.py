"""Keeps one part of the agent running: a part that fails is started again, later and later, and the others go on.
And says so in the log when one part's state becomes another."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

from agent.clock import Clock
from agent.result import PartState
from agent.status import describe

SECOND_NS = 1_000_000_000
FIRST_BACKOFF_NS = SECOND_NS // 2
LAST_BACKOFF_NS = 60 * SECOND_NS
GOOD_RUN_NS = 60 * SECOND_NS  # after running this long a failure counts as the first

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("bandwitness.agent")


class Part:
    """One supervised part.

    Args:
        name: as in its PartState.
        clock: for the backoff.
        run: starts the part; not meant to return. Awaited anew after each failure.
        state: the part's own word on itself, asked while it runs.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        run: Callable[[], Awaitable[None]],
        state: Callable[[], PartState] | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._run = run
        self._state = state
        self._waiting = False
        self._fault = ""
        self.failures = 0

    async def keep(self) -> None:
        """Runs the part for ever. Ends only by being cancelled."""
        backoff_ns = FIRST_BACKOFF_NS
        while True:
            started_ns = self._clock.monotonic_ns()
            try:
                await self._run()
                self._note("it ended by itself")
            except Exception as error:  # noqa: BLE001 - whatever a part does wrong must not stop the others
                self._note(describe(error), error)
            if self._clock.monotonic_ns() - started_ns >= GOOD_RUN_NS:
                backoff_ns = FIRST_BACKOFF_NS
            self._waiting = True
            await self._clock.sleep_until(self._clock.monotonic_ns() + backoff_ns)
            self._waiting = False
            backoff_ns = min(2 * backoff_ns, LAST_BACKOFF_NS)

    def guard(self, otherwise: T, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls on behalf of the part; a failure is the part's, and costs only this answer."""
        try:
            return call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as in keep
            self._note(describe(error), error)
            return otherwise

    def _note(self, fault: str, error: Exception | None = None) -> None:
        self.failures += 1
        self._fault = fault
        _log.warning("%s failed (%d so far): %s", self.name, self.failures, fault)
        _log.debug("%s failed", self.name, exc_info=error)

    def state(self) -> PartState:
        """The part's own state; ``restarting`` between a failure and the next start. Failures stay visible."""
        if self._waiting:
            return PartState(self.name, False, "restarting", self._fault)
        state = PartState(self.name, True, "ok") if self._state is None else self._state()
        if not self.failures:
            return state
        past = f"failed {self.failures} times, last: {self._fault}"
        detail = f"{state.detail}; {past}" if state.detail else past
        return PartState(state.part, state.working, state.state, detail)


class StateLog:
    """One log line when the state of a part changes, not one a flush."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bool, str]] = {}

    def note(self, states: Iterable[PartState]) -> None:
        """Compares with the last call. The first sight of a part that is well is no event."""
        for state in states:
            now = (state.working, state.state)
            if now == self._last.get(state.part, (True, "ok")):
                continue
            self._last[state.part] = now
            level = logging.INFO if state.working else logging.WARNING
            _log.log(level, "%s: %s%s", state.part, state.state, f" ({state.detail})" if state.detail else "")
