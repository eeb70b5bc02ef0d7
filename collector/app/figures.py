"""Figures of the parts that run, which no snapshot of analysis holds: what came in, and how the log bears it."""

from collections import Counter
from collections.abc import Callable, Iterator

from collector.export.exposition import Sample
from collector.export.prometheus import Scrape
from collector.ingest import Sessions
from collector.log import Log


def intake_of(sessions: Sessions, log: Log) -> Callable[[Scrape], Iterator[tuple[str, Sample]]]:
    """The part of a scrape that says how ingest and the log fare."""

    def intake(_: Scrape) -> Iterator[tuple[str, Sample]]:
        received, written = sessions.statistics, log.statistics
        # Copies: the event loop goes on counting.
        quarantined = sum(dict(received.quarantined).values())
        for result, count in (
            ("new", received.new),
            ("late", received.late),
            ("duplicate", received.duplicates),
            ("quarantined", quarantined),
        ):
            yield "collector_received_batches_total", ((result,), count)
        for status, count in dict(received.refused_streams).items():
            yield "collector_refused_streams_total", ((status,), count)
        yield "collector_log_bytes_total", ((), written.bytes)
        yield "collector_log_commits_total", ((), written.groups)
        yield "collector_log_commit_seconds_total", ((), written.commit_s)
        yield "collector_log_failures_total", ((), written.failures)
        yield "collector_log_failing", ((), int(log.failing is not None))
        yield "collector_log_unreadable_total", ((), log.unreadable)

    return intake


def enrolment_of(outcomes: Counter[str], sessions: Sessions) -> Callable[[Scrape], Iterator[tuple[str, Sample]]]:
    """The part of a scrape that says how enrolment fares. ``outcomes``: by word, of ``Identities``."""

    def enrolment(_: Scrape) -> Iterator[tuple[str, Sample]]:
        for result, count in dict(outcomes).items():
            yield "collector_enrolments_total", ((result,), count)
        yield "collector_stream_conflicts_total", ((), sessions.statistics.conflicts)

    return enrolment
