"""Gives each head to all who are to have it, and tries again until they do: at once, then ever more rarely, an hour
apart at most. One who cannot be reached keeps no other waiting."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from collector.clock import Clock
from collector.config import Collector, TimestampAuthority, WitnessConfig
from collector.witness import carry, stamp
from collector.witness.outbox import Outbox
from collector.witness.statement import Head, statement

SECOND = 1_000_000_000
FIRST_BACKOFF_NS = 30 * SECOND
LAST_BACKOFF_NS = 3600 * SECOND
LOOK_EVERY_NS = 30 * SECOND

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Recipient:
    name: str
    give: Callable[[str, bytes], tuple[str, bytes | None]]  # day, statement -> when, stamp; blocks
    backoff_ns: int = FIRST_BACKOFF_NS
    next_ns: int = 0  # monotonic
    trouble: str = ""


class Giving:
    """One event loop; the network in threads.

    Args:
        config: who is to have heads.
        public_key: of the control chain, part of the statement.
        heads: those that were signed, oldest first; blocks.
        outbox: what was given.
        clock: for the backoff and for when a mail was taken.
    """

    def __init__(
        self, config: Collector, public_key: bytes, heads: Callable[[], Sequence[Head]], outbox: Outbox, clock: Clock
    ) -> None:
        self._name = config.name
        self._public_key = public_key
        self._heads = heads
        self._outbox = outbox
        self._clock = clock
        self._recipients = [
            *(_Recipient(one.name, _stamping(one)) for one in config.timestamp_authorities),
            *(_Recipient(one.name, self._telling(one)) for one in config.witnesses),
        ]
        self.waiting: dict[str, int] = {}  # days that are still to be given, by name

    @property
    def trouble(self) -> str:
        """Who does not get what is due, and why; empty when all have it."""
        return "; ".join(f"{one.name}: {one.trouble}" for one in self._recipients if one.trouble)

    async def run(self) -> None:
        """Gives for ever."""
        while True:
            if self._recipients:
                try:
                    await self.round()
                except OSError as error:
                    logger.error("tree heads cannot be given out: %s", error)
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_EVERY_NS)

    async def round(self) -> None:
        """Gives what is due to those whose turn it is.

        Raises:
            OSError: the outbox cannot be read or written.
        """
        due = await asyncio.to_thread(self._due)
        by_name: dict[str, list[str]] = {one.name: [] for one in self._recipients}
        for day, name in due:
            by_name[name].append(day)
        self.waiting = {name: len(days) for name, days in by_name.items()}
        now_ns = self._clock.monotonic_ns()
        ready = [one for one in self._recipients if one.next_ns <= now_ns]
        await asyncio.gather(*(self._serve(one, by_name[one.name]) for one in ready))

    def _due(self) -> list[tuple[str, str]]:
        for head in self._heads():
            self._outbox.state(head.day, statement(head, self._name, self._public_key))
        return self._outbox.due(one.name for one in self._recipients)

    async def _serve(self, one: _Recipient, days: Sequence[str]) -> None:
        for day in days:
            content = await asyncio.to_thread(self._outbox.statement, day)
            try:
                time, stamped = await asyncio.to_thread(one.give, day, content)
            except (carry.CarryError, stamp.StampError) as error:
                one.trouble = str(error)
                one.next_ns = self._clock.monotonic_ns() + one.backoff_ns
                one.backoff_ns = min(2 * one.backoff_ns, LAST_BACKOFF_NS)
                logger.warning("the tree head of %s could not be given to %s: %s", day, one.name, error)
                return
            await asyncio.to_thread(self._outbox.keep, day, one.name, time, stamp=stamped)
            logger.info("the tree head of %s was given to %s", day, one.name)
            one.trouble, one.backoff_ns = "", FIRST_BACKOFF_NS
            self.waiting[one.name] -= 1

    def _telling(self, witness: WitnessConfig) -> Callable[[str, bytes], tuple[str, bytes | None]]:
        def tell(day: str, content: bytes) -> tuple[str, bytes | None]:
            if witness.url:
                carry.post(witness.url, content, "text/plain; charset=us-ascii")
            else:
                assert witness.mail is not None
                carry.mail(
                    witness.mail.server_address,
                    sender=witness.mail.sender,
                    recipient=witness.mail.to,
                    subject=f"Bandwitness {self._name}: tree head of {day}",
                    text=f"{content.decode('ascii')}\nKeep this: it shows later whether the log was changed.\n",
                    starttls=witness.mail.starttls,
                )
            return _rfc3339(datetime.fromtimestamp(self._clock.wall_ns() // SECOND, UTC)), None

        return tell


def _stamping(authority: TimestampAuthority) -> Callable[[str, bytes], tuple[str, bytes | None]]:
    def give(_: str, content: bytes) -> tuple[str, bytes | None]:
        asked = stamp.request(content)
        answer = carry.post(authority.url, asked.encoded, "application/timestamp-query")
        return _rfc3339(stamp.check(answer, content, asked.nonce, roots_of(authority))), answer

    return give


def roots_of(authority: TimestampAuthority) -> list[x509.Certificate]:
    """Whom to believe.

    Raises:
        StampError: the file cannot be used.
    """
    try:
        return x509.load_pem_x509_certificates(Path(authority.ca).read_bytes())
    except (OSError, ValueError) as error:
        raise stamp.StampError(f"{authority.ca} cannot be used: {error}") from None


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
