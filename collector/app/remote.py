"""Remote write put together: the outbox that analysis fills, a sender for each receiver, and what is said of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from collector.config import Collector
from collector.export.exposition import Sample
from collector.export.prometheus import Scrape
from collector.export.remote_write import Sender
from collector.export.remote_write.post import Post
from collector.store.outbox import Outbox
from collector.store.outbox_reader import OutboxReader


class Remotes:
    """All senders of one collector."""

    def __init__(self, config: Collector, store: Path, wall_ns: Callable[[], int]) -> None:
        """``store`` is a file that ``Store`` made."""
        self.outbox = Outbox({remote.name: remote.max_waiting for remote in config.remote_write})
        self._readers = [OutboxReader(store) for _ in config.remote_write]
        self.senders = [
            Sender(remote, config.name, self.outbox, reader, post=Post(remote), wall_ns=wall_ns)
            for remote, reader in zip(config.remote_write, self._readers, strict=True)
        ]

    def start(self) -> None:
        """Begins to send."""
        for sender in self.senders:
            sender.start()

    def stop(self) -> None:
        """Ends sending. What is on its way is not waited for long."""
        for sender in self.senders:
            sender.stop()
        for reader in self._readers:
            reader.close()

    def warnings(self) -> str:
        """Who does not take what is sent, and why; empty when all do."""
        return "; ".join(f"{one.name}: {one.statistics.trouble}" for one in self.senders if one.statistics.trouble)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(sender.alive for sender in self.senders)

    def remote_write(self, _: Scrape) -> Iterator[tuple[str, Sample]]:
        """The part of a scrape that says how senders fare."""
        for one in self.senders:
            labels, said = (one.name,), one.statistics
            for result in ("sent", "refused", "expired"):
                yield "collector_remote_write_samples_total", ((one.name, result), getattr(said, result))
            yield "collector_remote_write_entries_dropped_total", (labels, self.outbox.overflowed[one.name])
            yield "collector_remote_write_entries_waiting", (labels, self.outbox.waiting(one.name))
            yield "collector_remote_write_failures_total", (labels, said.failures)
            yield "collector_remote_write_working", (labels, int(not said.trouble))
            if said.last_success_ns is not None:
                yield "collector_remote_write_last_success_timestamp_seconds", (labels, said.last_success_ns * 1e-9)
