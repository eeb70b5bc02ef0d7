"""The analysis thread: reads the log behind its cursor, step by step, and publishes a picture after each.

It never delays an acknowledgement: ingest knows the log only. One step is one transaction; whatever goes wrong in it,
the store stays at the step before, and the next attempt starts from there. Only a store found damaged ends the thread.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from collector.analysis import persist, publish
from collector.analysis.fold import Fold
from collector.analysis.snapshot import Snapshot
from collector.analysis.speaker import Speaker
from collector.analysis.window import SECOND
from collector.config import Config
from collector.model import LogEntry
from collector.store.outbox import Outbox
from collector.store.retention import sweep
from collector.store.writer import Store, Transaction

logger = logging.getLogger(__name__)

STEP_ENTRIES = 1024
POLL_S = 0.2
PAUSE_NS = 10 * SECOND  # between two looks at the log; they are a fraction of a second apart
STUCK_NS = 30 * SECOND  # one step; they take milliseconds, and seconds where much has come
IDLE_AFTER_NS = 2 * SECOND  # what was received by then has long been durable
PUBLISH_NS = SECOND
TIDY_NS = 600 * SECOND
MAX_FAULTS = 3  # at one place: then entry by entry, and past the one that cannot be taken in
RETRY_S = 1.0


class Log(Protocol):
    """What analysis needs of the log."""

    @property
    def last_position(self) -> int:
        """Of the newest durable entry."""

    def read(self, after_position: int, limit: int, /) -> Sequence[LogEntry]:
        """Entries behind a position, in order."""


class Runner:
    """Analysis of one collector."""

    def __init__(
        self,
        log: Log,
        store: Store,
        config: Config,
        wall_ns: Callable[[], int],
        *,
        notice_pauses: bool = True,
        outbox: Outbox | None = None,
    ) -> None:
        """``wall_ns`` is the collector's clock.

        A process that was stopped, or on a machine that was suspended, has heard nobody in that time: that is noticed
        by how long ago it last looked at the log. ``notice_pauses`` is False where a test makes the time pass.
        ``outbox`` takes note of what remote write is to send.
        """
        self._outbox = outbox or Outbox({})
        self._notice_pauses = notice_pauses
        self._log, self._store, self._config, self._wall_ns = log, store, config, wall_ns
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._stored = persist.StoredRounds()
        self._fold: Fold | None = None
        self._speaker = Speaker()
        self._faults = 0  # failed steps in a row
        self._behind = False  # the last step left some of what there was when it began
        self._careful_through = 0  # up to this position entries are taken in one at a time
        self._suspect: int | None = None  # the entry that failed alone
        self._step_errors = 0
        self._looked_ns: int | None = None  # at the log, having read all of it the time before
        self._began_ns: int | None = None  # the step that runs
        self._published_ns = 0
        self._unpublished = True
        self._tidied_ns = 0
        self._progress_ns = wall_ns()
        self._snapshot = Snapshot(made_time_ns=self._progress_ns)

    # ------------------------------------------------------------ for others; any thread

    def start(self) -> None:
        """Begins to read."""
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends after the step that runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def healthy(self) -> bool:
        """Whether it runs, and steps succeed and end."""
        return self.health == "ok"

    @property
    def health(self) -> str:
        """``ok``, or what is wrong."""
        if not self.alive:
            return "has died"
        began_ns = self._began_ns
        running_ns = self._wall_ns() - began_ns if began_ns is not None else 0
        if running_ns > STUCK_NS:
            return f"one step has been running for {running_ns // SECOND} s"
        return "a step failed and is tried again" if self._faults else "ok"

    @property
    def snapshot(self) -> Snapshot:
        """The newest picture, with how far it is behind by now: a step that is stuck makes no new one."""
        lag_entries = max(self._log.last_position - self._snapshot.position, 0)
        return replace(self._snapshot, lag_ns=self.lag_ns, lag_entries=lag_entries)

    @property
    def lag_ns(self) -> int:
        """Age of the oldest entry not taken in; 0 with none waiting."""
        behind = self._log.last_position > self._snapshot.position
        return max(self._wall_ns() - self._progress_ns, self._snapshot.lag_ns) if behind else 0

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self.attempt()
            if self._faults:
                self._stop.wait(RETRY_S)
            elif not self._behind:  # a transaction costs as much as many entries: let some gather
                self._stop.wait(POLL_S)
        if self._fold is not None:  # how far remote write got: those who send have ended by now
            with self._store.transaction() as tx:
                self._outbox.settle(tx)

    def attempt(self) -> None:
        """One step, whatever becomes of it."""
        self._began_ns = self._wall_ns()
        try:
            self.step()
        except Exception as error:
            self._fold = None  # half a step: what it held is void
            self._looked_ns = None
            self._faults += 1
            self._step_errors += 1
            told = self._store.give_up(error)
            if told:  # readers hold the old file open: only a start can put a new one in its place
                logger.critical("%s at the next start", told)
                self._stop.set()
                return
            logger.exception("a step of analysis failed (%d in a row)", self._faults)
        else:
            self._faults = 0
        finally:
            self._began_ns = None

    def step(self) -> bool:
        """Takes in what there is, up to a limit. False if there was nothing."""
        if self._fold is None:
            self._fold = self._load()
        fold = self._fold
        position = fold.parts.position
        if self._faults >= MAX_FAULTS:
            self._careful_through = max(self._careful_through, position.position + STEP_ENTRIES)
        careful = position.position < self._careful_through
        newest = self._log.last_position
        entries = self._log.read(position.position, 1 if careful else STEP_ENTRIES)
        looked_ns = self._wall_ns()
        resumed = self._was_paused(looked_ns)
        with self._store.transaction() as tx:
            self._stored.tx = tx
            if resumed:
                fold.resume(tx, looked_ns)
            for entry in entries:
                self._take_in(fold, tx, entry, careful=careful)
                if fold.parts.network.rounds.overfull:
                    break
            now_ns = self._wall_ns()
            if not entries:
                fold.idle(tx, max(looked_ns - IDLE_AFTER_NS, position.received_ns))
            if entries or fold.changes or resumed or fold.parts.bursts.has_changed:
                with self._laid_to(entries[0].position if careful and entries else None):
                    persist.save(tx, fold.parts, self._outbox)
            self._outbox.settle(tx)
            self._speaker.note(fold.changes)
            fold.changes.clear()
            listened_ns = position.received_ns if entries else now_ns
            if self._log.last_position - position.position <= STEP_ENTRIES:
                self._speaker.say(tx, listened_ns, now_ns)
            if now_ns - self._tidied_ns >= TIDY_NS:
                persist.tidy(tx, fold.parts)
                swept = sweep(tx, now_ns)
                self._tidied_ns = now_ns if not swept else self._tidied_ns
        self._behind = bool(entries) and position.position < newest
        self._looked_ns = None if self._behind else looked_ns
        self._publish(fold, entries, now_ns)
        return bool(entries)

    def _was_paused(self, looked_ns: int) -> bool:
        """Whether, with nothing left to read, far more time has passed than between two steps."""
        before_ns = self._looked_ns
        if before_ns is None or not self._notice_pauses:
            return False
        pause_ns = looked_ns - before_ns
        if pause_ns <= min(PAUSE_NS, self._config.rules.agent_silent.after // 2):
            return False
        logger.warning("nothing was done for %d s: agents get time to be heard again", pause_ns // SECOND)
        return True

    def _take_in(self, fold: Fold, tx: Transaction, entry: LogEntry, *, careful: bool) -> None:
        """An entry that fails twice on its own is passed over; a fault of the database is not the entry's."""
        if entry.position == self._suspect:
            logger.error("entry %d cannot be taken in and is passed over", entry.position)
            fold.refuse(tx, entry, "analysis failed on it")
            return
        with self._laid_to(entry.position if careful else None):
            fold.apply(tx, entry)

    @contextmanager
    def _laid_to(self, position: int | None) -> Iterator[None]:
        """What fails here is the doing of the entry at ``position``, unless the database says that it failed. Also what
        is written of it: a figure that no column takes shows only then."""
        try:
            yield
        except SQLAlchemyError:
            raise
        except Exception:
            self._suspect = position
            raise

    def _load(self) -> Fold:
        """Takes up where the store stands: state, then open windows from the log, then the judge."""
        with self._store.transaction() as tx:
            if not persist.is_current(tx):
                self._outbox.rebuild(tx)
                tx.forget_derived()
            self._outbox.take_up(tx)
            parts, again_from = persist.load(tx, self._config, self._stored)
            fold = Fold(parts)
            passed_over = persist.passed_over(tx, again_from)
            while again_from < parts.position.position:
                entries = self._log.read(again_from, STEP_ENTRIES)
                for entry in entries:
                    if entry.position <= parts.position.position and entry.position not in passed_over:
                        fold.apply_again(entry)
                again_from = entries[-1].position if entries else parts.position.position
            persist.take_up_judging(tx, parts)
            self._speaker = Speaker()
            self._speaker.take_up(tx)
        return fold

    def _publish(self, fold: Fold, entries: Sequence[LogEntry], now_ns: int) -> None:
        position = fold.parts.position
        lag_entries = max(self._log.last_position - position.position, 0)
        if entries or not lag_entries:
            self._progress_ns = now_ns
        self._unpublished |= bool(entries)
        caught_up = self._unpublished and not entries
        if not caught_up and now_ns - self._published_ns < PUBLISH_NS:
            return
        self._unpublished = False
        self._published_ns = now_ns
        with self._store.transaction() as tx:  # carriers look a minute back, at windows that may not be in memory
            self._stored.tx = tx
            self._snapshot = publish.snapshot(
                fold.parts,
                made_time_ns=now_ns,
                lag_ns=max(now_ns - position.received_ns, 0) if lag_entries else 0,
                lag_entries=lag_entries,
                step_errors=self._step_errors,
            )
