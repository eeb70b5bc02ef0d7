"""The kill switch: throughput tests of a site, or all of them, stop and go on by an operator's word.

The word is a control record of its own, written before any plan says so; the plans in force are then written anew with
it, as they are but for that. Agents that are connected end their tests within a second of hearing it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from bandwitness.v1.record_pb2 import TestsPaused
from collector.app.planning import Planning
from collector.clock import Clock
from collector.config import Config
from collector.control import Control
from collector.export.pause_api import PauseRefusedError
from collector.export.views import rfc3339
from collector.log import LogError

MAX_REASON_CHARACTERS = 200
MAX_NS = 400 * 86_400 * 1_000_000_000  # longer is a slip of the pen

MINUTE_NS = 60 * 1_000_000_000
# Each writes the plans of all nodes into the log, which keeps them. What stops tests that run on is taken all the same.
WORDS_PER_MINUTE = 30


class Pausing:
    """Takes an operator's word. One event loop."""

    def __init__(self, config: Config, planning: Planning, control: Control, clock: Clock) -> None:
        self._sites = [site.name for site in config.sites]
        self._planning, self._control, self._clock = planning, control, clock
        self._said: deque[int] = deque()  # when, monotonic

    async def say(
        self, site: str | None, *, paused: bool, for_ns: int | None = None, reason: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """Pauses a site (None: all) or lets it go on; what was written, one entry a scope.

        Raises:
            PauseRefusedError: no such site, too long, nothing to resume, or it could not be written.
        """
        if site is not None and site not in self._sites:
            raise PauseRefusedError(f"no site {site}; the sites are {', '.join(self._sites)}")
        if for_ns is not None and not 0 < for_ns <= MAX_NS:
            raise PauseRefusedError(f"for: up to {MAX_NS // (86_400 * 1_000_000_000)} days")
        now_ns = self._clock.wall_ns()
        scopes = [site or ""] if paused else self._to_resume(site, now_ns)
        stops = paused and all(pause.site != scopes[0] for pause in self._control.pauses(site, now_ns))
        if not self._room() and not stops:
            raise PauseRefusedError(f"more than {WORDS_PER_MINUTE} words within a minute: each writes plans anew")
        said = "".join(letter for letter in reason if letter.isprintable())[:MAX_REASON_CHARACTERS]
        until_ns = 0 if for_ns is None else now_ns + for_ns
        words = [
            TestsPaused(site=scope, paused=paused, time_ns=now_ns, until_time_ns=until_ns, reason=said)
            for scope in scopes
        ]
        try:
            plans = await self._planning.set_pauses(words)
        except LogError as error:
            raise PauseRefusedError(f"it cannot be written: {error}") from None
        still = "" if paused else ", ".join(pause.site or "everywhere" for pause in self._control.pauses(site, now_ns))
        return [
            {
                "site": word.site,
                "paused": word.paused,
                "until_time": rfc3339(word.until_time_ns) if word.until_time_ns else None,
                "reason": word.reason,
                "plans": plans,
                "still_paused": still,
            }
            for word in words
        ]

    def _room(self) -> bool:
        now_ns = self._clock.monotonic_ns()
        while self._said and now_ns - self._said[0] >= MINUTE_NS:
            self._said.popleft()
        if len(self._said) >= WORDS_PER_MINUTE:
            return False
        self._said.append(now_ns)
        return True

    def _to_resume(self, site: str | None, now_ns: int) -> list[str]:
        """Pauses in force that a resume ends: all of them, or that of one site."""
        scopes = [pause.site for pause in self._control.pauses(site, now_ns) if site is None or pause.site == site]
        if scopes:
            return scopes
        over = self._control.pauses(site, now_ns)
        if over:
            raise PauseRefusedError(f"{site} is paused with all sites: resume --all")
        raise PauseRefusedError(f"tests are not paused at {site}" if site else "tests are not paused")
