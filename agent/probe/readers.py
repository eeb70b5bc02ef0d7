"""The event loop's watch over sockets that come and go, for the probers that have many."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

DRAIN_ROUNDS = 64  # a drain reads on until nothing is left, but not for ever


class Readable(Protocol):
    """What a link holds."""

    def fileno(self) -> int:
        """To wait on; negative: read it at every tick."""


class Linked(Protocol):
    """One socket, under its source."""

    @property
    def source(self) -> Any:
        """What it is bound to: its key."""

    @property
    def socket(self) -> Readable:
        """The socket."""


L = TypeVar("L", bound=Linked)


class Readers(Generic[L]):
    """Calls ``read`` (True: there may be more) for each link in ``links`` that has something to read."""

    def __init__(self, links: Mapping[Any, L], read: Callable[[L], bool]) -> None:
        self._links = links
        self._read = read
        self._watched: dict[L, int] = {}  # by the event loop; their descriptors

    def watch(self) -> None:
        """Lets the event loop watch the links that there are now."""
        loop = asyncio.get_running_loop()
        links = set(self._links.values())
        for link in self._watched.keys() - links:
            loop.remove_reader(self._watched.pop(link))
        for link in links - self._watched.keys():
            descriptor = link.socket.fileno()
            if descriptor >= 0:
                self._watched[link] = descriptor
                loop.add_reader(descriptor, self._on_readable, link)

    def after_sends(self, used: Collection[L]) -> None:
        """Reads those just used, whose send stamps are mostly there at once, and those that nothing can watch."""
        for link in list(self._links.values()):
            if link in used or link.socket.fileno() < 0:
                self._read(link)

    def drain(self) -> None:
        """Reads all that waits."""
        for link in list(self._links.values()):
            for _ in range(DRAIN_ROUNDS):
                if not self._read(link):
                    break

    def _on_readable(self, link: L) -> None:
        # Between a link's end and the next look at the list its reader may still be called.
        if self._links.get(link.source) is link:
            self._read(link)
