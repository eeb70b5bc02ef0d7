"""The loop that empties the outbox to one receiver: in order, one request at a time, in a thread of its own.

What a receiver cannot take now is tried again, ever more rarely, while it waits on disk. What it refuses is dropped and
counted: of a request with something bad in it that part alone, found by halving. A receiver that refuses everything
(401, 404 …) gets one request a minute, so that a mistake in the configuration does not empty the queue.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from collector.config import RemoteWrite
from collector.export.remote_write.request import Answer, Fate, body, fate
from collector.export.remote_write.samples import Naming, Sample, samples_of
from collector.model import PathRow
from collector.store.outbox import Outbox
from collector.store.outbox_reader import Noted

MAX_SAMPLES = 2_000  # of one request
ENTRIES = 50  # read at a time
HALVINGS = 48  # requests in which to look for what is refused; the rest is then dropped whole
IDLE_S = 1.0
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 60.0
SECOND = 1_000_000_000

logger = logging.getLogger(__name__)


class Entries(Protocol):
    """Where entries come from."""

    def next(self, after_id: int, now_ns: int, limit: int, /) -> list[Noted]:
        """The oldest behind ``after_id`` that may be sent."""

    def path(self, path_id: int, /) -> PathRow | None:
        """What a path id means."""


@dataclass(slots=True)
class Statistics:
    """Since the start."""

    sent: int = 0  # samples taken by the receiver
    refused: int = 0  # samples it will never take
    expired: int = 0  # samples that were too old to be sent
    failures: int = 0  # requests to be tried again
    last_success_ns: int | None = None
    trouble: str = ""  # why the newest request did not go through; empty: it did
    last_refusal: str = ""


class Sender:
    """Of one receiver."""

    def __init__(
        self,
        remote: RemoteWrite,
        collector: str,
        outbox: Outbox,
        entries: Entries,
        *,
        post: Callable[[bytes], Answer],
        wall_ns: Callable[[], int],
        random_ratio: Callable[[], float] = random.random,
    ) -> None:
        """``collector`` is the name that samples bear; ``entries`` are this sender's alone."""
        self.name = remote.name
        self.statistics = Statistics()
        self._max_age_ns = remote.max_age
        self._naming = Naming(collector, remote.labels)
        self._outbox, self._entries, self._post, self._wall_ns = outbox, entries, post, wall_ns
        self._random_ratio = random_ratio
        self._backoff_s = FIRST_BACKOFF_S
        self._pieces: list[list[Sample]] = []  # of the entries in hand, last one first
        self._through = 0  # the last of these entries
        self._halvings = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to send."""
        self._thread = threading.Thread(target=self._run, name=f"remote write {self.name}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends after the request that runs, or without it; what it held is sent again at the next start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause_s = self.round()
            except Exception as error:
                what = "the store cannot be read" if isinstance(error, SQLAlchemyError) else "our own fault"
                self.statistics.trouble = f"{what}: {error}"
                logger.exception("remote write to %s failed", self.name)
                pause_s = LAST_BACKOFF_S
            self._stop.wait(pause_s)

    def round(self) -> float:
        """Sends one request, if there is anything to send; gives back for how many seconds to rest."""
        if not self._pieces and not self._load():
            return IDLE_S
        piece = self._pieces.pop()
        answer = self._post(body(piece)) if piece else Answer(200)
        what = fate(answer)
        said = f"{answer.status or 'no answer'}: {answer.words}"
        if what is Fate.AGAIN:
            self._pieces.append(piece)
            self.statistics.failures += 1
            self.statistics.trouble = said
            return self._back_off(answer.retry_after_s)
        self._backoff_s, self.statistics.trouble = FIRST_BACKOFF_S, ""
        pause_s = 0.0
        if what is Fate.TAKEN:
            self.statistics.sent += len(piece)
            self.statistics.last_success_ns = self._wall_ns() if piece else self.statistics.last_success_ns
        elif what is Fate.SPLIT and len(piece) > 1 and self._halvings < HALVINGS:
            self._halvings += 1
            half = len(piece) // 2
            self._pieces += [piece[half:], piece[:half]]
        else:
            self._refuse(len(piece), said)
            pause_s = LAST_BACKOFF_S if what is Fate.REFUSED else 0.0
        if not self._pieces:
            self._outbox.sent[self.name] = max(self._outbox.sent[self.name], self._through)
        return pause_s

    def _back_off(self, wanted_s: float | None) -> float:
        """Between half of it and all of it, so that many collectors do not come back at once."""
        pause_s = self._backoff_s * (1 + self._random_ratio()) / 2
        self._backoff_s = min(2 * self._backoff_s, LAST_BACKOFF_S)
        return max(pause_s, wanted_s or 0.0)

    def _refuse(self, count: int, said: str) -> None:
        self.statistics.refused += count
        self.statistics.trouble = f"refused {count} samples: {said}"
        if self.statistics.last_refusal != said:  # the same words again and again are said once
            logger.warning("remote write to %s: %d samples refused and dropped: %s", self.name, count, said)
            self.statistics.last_refusal = said

    def _load(self) -> bool:
        """Takes the next entries in hand; they count as dealt with once the last of their samples is."""
        if not self._outbox.taken_up:
            return False
        now_ns = self._wall_ns()
        entries = self._entries.next(self._outbox.sent[self.name], now_ns, ENTRIES)
        samples: list[Sample] = []
        for entry in entries:
            samples += self._of(entry, now_ns)
            self._through = entry.entry_id
            if len(samples) >= MAX_SAMPLES:
                break
        pieces = [samples[first : first + MAX_SAMPLES] for first in range(0, len(samples), MAX_SAMPLES)]
        self._pieces = pieces[::-1] or [[]] * bool(entries)
        self._halvings = 0
        return bool(entries)

    def _of(self, entry: Noted, now_ns: int) -> list[Sample]:
        samples = list(samples_of(entry, self._entries.path, self._naming))
        if entry.time_ns >= now_ns - self._max_age_ns:
            return samples
        self.statistics.expired += len(samples)
        return []
