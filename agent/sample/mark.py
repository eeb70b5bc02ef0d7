"""Hears what trainers on this host say: begin and end of checkpoints and the like, on a Unix datagram socket.

A path and not an abstract name, because a container gets it by mounting the directory that holds it (abstract names
belong to a network namespace). Everybody on the host may write; who did is the kernel's word (``SO_PASSCRED``,
unix(7)), rates are bounded by user, and a flood is read in small portions with pauses, so that probes go on undisturbed
and the kernel makes the sender wait or refuses what does not fit into the socket's queue (``net.unix.max_dgram_qlen``).
"""

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.clock import Clock
from agent.result import PartState, TrainerMark
from agent.sample.mark_book import DEFAULT_EXPIRY_NS, OpenMark, OpenMarks, Rates
from agent.sample.mark_datagram import BEGIN, MAX_DATAGRAM_BYTES, DatagramError, Said, parse
from bandwitness.v1.record_pb2 import MARK_PHASE_BEGIN, MARK_PHASE_END

DEFAULT_SOCKET = Path("/run/bandwitness/mark.sock")
FALLBACK_NAME = "mark.sock"  # in the state directory
SOCKET_MODE = 0o666
PORTION = 64  # datagrams read before anything else gets its turn
PAUSE_S = 0.02  # after a full portion
LOOK_AGAIN_NS = 1_000_000_000  # is the socket still where it was put; can it be opened now; is something still open
MAX_UNDRAINED = 2_048  # a flush takes them every few seconds
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid
# Room for the credentials and nothing else: descriptors that somebody attaches do not fit, and the kernel closes them.
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size)


class MarkListener:
    """The part ``marks``.

    Args:
        clock: times.
        places: where the socket may be, the first that can be opened is taken. None of them: the part is switched off.
        expiry_ns: a mark that is not ended by then is taken for ended.
        on_open: called as something begins, and about once a second while anything is open.
    """

    def __init__(
        self,
        clock: Clock,
        places: Sequence[Path],
        *,
        expiry_ns: int = DEFAULT_EXPIRY_NS,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._places = tuple(places)
        self._on_open = on_open
        self._open = OpenMarks(expiry_ns)
        self._rates = Rates(clock.monotonic_ns())
        self._heard: list[TrainerMark] = []
        self._socket: socket.socket | None = None
        self._inode = (0, 0)
        self._faults: list[str] = []  # of the places tried before the one that is open
        self._resume: asyncio.TimerHandle | None = None
        self.place: Path | None = None  # of the open socket
        self.accepted = 0
        self.refused: Counter[str] = Counter()  # by reason: too_often, oversized, garbage, version, member, undrained

    # ------------------------------------------------------------ what others ask

    def drain(self) -> list[TrainerMark]:
        """Marks since the last call, in the order in which they came."""
        heard, self._heard = self._heard, []
        return heard

    def open(self) -> tuple[OpenMark, ...]:
        """What has begun and not ended, oldest first."""
        return self._open.current(self._clock.monotonic_ns())

    def state(self) -> PartState:
        """``ok``, ``fallback`` (not where trainers look for it), ``no_socket``, ``off``."""
        if not self._places:
            return PartState("marks", working=True, state="off", detail="switched off by agent.mark.enabled")
        if self._socket is None:
            return PartState("marks", working=False, state="no_socket", detail="; ".join(self._faults))
        open_now = self.open()
        figures = {
            "heard": self.accepted,
            "refused": sum(self.refused.values()),
            "open": len(open_now),
            "expired": self._open.expired,
            "ends without a begin": self._open.unopened,
            "pushed out": self._open.pushed_out,
        }
        words = [f"{name} {count}" for name, count in figures.items() if count]
        if self.refused:
            words.append("refused for: " + ", ".join(f"{why} {count}" for why, count in self.refused.most_common()))
        if self.place != self._places[0]:
            words = [f"listening on {self.place}, because {'; '.join(self._faults)}", *words]
            return PartState("marks", working=True, state="fallback", detail="; ".join(words))
        return PartState("marks", working=True, state="ok", detail="; ".join(words))

    # ------------------------------------------------------------ the socket

    async def run(self) -> None:
        """Listens until cancelled, and opens the socket again when somebody has taken its file away."""
        try:
            while True:
                if self._socket is not None and not self._is_in_place():
                    self._close()
                if self._socket is None and self._places:
                    self._try_places()
                if self.open():
                    self._on_open()
                await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_AGAIN_NS)
        finally:
            self._close()

    def _try_places(self) -> None:
        self._faults = []
        for place in self._places:
            try:
                opened = open_socket(place)
            except OSError as error:
                self._faults.append(f"{place}: {error.strerror or error}")
                continue
            self._socket, self.place = opened, place
            self._inode = _inode(place)
            asyncio.get_running_loop().add_reader(opened, self._readable)
            return

    def _is_in_place(self) -> bool:
        assert self.place is not None
        try:
            return _inode(self.place) == self._inode
        except OSError:
            return False

    def _close(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket is None or self.place is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        with contextlib.suppress(OSError):
            if self._is_in_place():
                self.place.unlink()
        self._socket = self.place = None

    # ------------------------------------------------------------ datagrams

    def _readable(self) -> None:
        assert self._socket is not None
        for _ in range(PORTION):
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(MAX_DATAGRAM_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError:  # told to the listener though it is a sender's; the next read is another datagram
                self.refused["unreadable"] += 1
                continue
            self._take(data, ancillary, flags)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._resume = loop.call_later(PAUSE_S, self._listen_again)

    def _listen_again(self) -> None:
        self._resume = None
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def _take(self, data: bytes, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        now_ns = self._clock.monotonic_ns()
        sender = _credentials(ancillary)
        if sender is None:
            self.refused["nobody"] += 1
            return
        process_id, user_id = sender
        if not self._rates.admit(user_id, now_ns):
            self.refused["too_often"] += 1
            return
        if flags & socket.MSG_TRUNC:
            self.refused["oversized"] += 1
            return
        try:
            said = parse(data)
        except DatagramError as error:
            self.refused[error.reason] += 1
            return
        if len(self._heard) >= MAX_UNDRAINED:
            self.refused["undrained"] += 1
            return
        self.accepted += 1
        self._open.note(user_id, said, now_ns)
        self._heard.append(_mark(said, self._clock.event_time_ns(now_ns), user_id, process_id))
        if said.phase == BEGIN:
            self._on_open()


def places(wanted: Path | None, state_dir: Path) -> tuple[Path, ...]:
    """Where the socket may be: the path that is configured and no other, or the default one and, where that cannot be
    had, the state directory."""
    return (wanted,) if wanted is not None else (DEFAULT_SOCKET, state_dir / FALLBACK_NAME)


def open_socket(path: Path) -> socket.socket:
    """A socket on ``path`` that everybody may write to. What a killed agent left there is replaced.

    Raises:
        OSError: the directory is not there or not ours, another agent listens, or something else is in its place.
    """
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        _make_way(path)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        opened.bind(str(path))
        path.chmod(SOCKET_MODE)
    except BaseException:
        opened.close()
        raise
    return opened


def _make_way(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise FileExistsError(None, "something that is no socket is in its place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:  # nobody has it open
            path.unlink()
            return
    raise FileExistsError(None, "another agent listens there")


def _inode(path: Path) -> tuple[int, int]:
    facts = os.lstat(path)
    return facts.st_dev, facts.st_ino


def _credentials(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            process_id, user_id, _ = _CREDENTIALS.unpack(data)
            return max(process_id, 0), user_id
    return None


def _mark(said: Said, time_ns: int, user_id: int, process_id: int) -> TrainerMark:
    return TrainerMark(
        time_ns=time_ns,
        said_time_ns=said.time_ns,
        phase=MARK_PHASE_BEGIN if said.phase == BEGIN else MARK_PHASE_END,
        kind=said.kind,
        job=said.job,
        step=said.step,
        bytes=said.bytes,
        rank=said.rank,
        labels=said.labels,
        user_id=user_id,
        process_id=process_id,
    )
