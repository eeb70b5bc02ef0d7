"""One collector from start to stop.

Start: log (put in order), control chain (started, windows fixed), analysis, HTTP, gRPC, and only then new plans.
Stop, on SIGTERM or SIGINT: no new batches, HTTP closed, the step of analysis under way ended, the log flushed.
"""

import asyncio
import contextlib
import logging
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
from sqlalchemy.exc import SQLAlchemyError

from bandwitness.settings import SettingsError
from collector.analysis.elements import Topology
from collector.analysis.runner import Runner
from collector.app.figures import intake_of
from collector.app.http import HttpListenError, HttpServer, listening_socket, url_of
from collector.app.limits import AcceptErrors, agent_connections, raise_descriptor_limit
from collector.app.pauses import note_pauses
from collector.app.pausing import Pausing
from collector.app.planning import Planning, windows_fixed
from collector.app.remote import Remotes
from collector.app.tracing import Tracing
from collector.app.trees import Trees
from collector.clock import Clock, SystemClock
from collector.config import Config, Tls, configuration_hash, date_faults
from collector.control import Control, KeyFileError, load_or_create_key
from collector.export.evidence_api import Evidence
from collector.export.http import Sources, create_app
from collector.export.prometheus import PARTS, Exporter
from collector.export.series import NicSeries
from collector.ingest import Ingest, ListenError, Sessions, TlsError, server_credentials, start_server
from collector.ingest.service import MAX_CONNECTIONS, server_options
from collector.log import Log, LogError, LogUnavailableError
from collector.model import NodeRow
from collector.planner import PlanError
from collector.store.reader import Reader
from collector.store.writer import Store

FAILED = 1
WRONG_USE = 2
_STREAMS_END_WITHIN_S = 2.0
_LOOK_EVERY_S = 1.0

logger = logging.getLogger(__name__)


def run(config: Config, config_path: Path) -> int:
    """Runs until SIGTERM or SIGINT; gives back the exit status: 0 stopped as asked, 1 a part died, 2 cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    raise_descriptor_limit(len(config.nodes))
    try:
        return asyncio.run(serve(config, config_path))
    except (SettingsError, LogUnavailableError, KeyFileError, TlsError, ListenError, HttpListenError) as error:
        words = str(error)
    except PlanError as error:
        words = f"{config_path}: the fleet cannot be measured as configured:\n{error}"
    except LogError as error:
        words = f"{config_path}: collector.state_dir: {error}"
    except (SQLAlchemyError, sqlite3.Error) as error:
        words = f"{config_path}: collector.state_dir: the store cannot be opened: {getattr(error, 'orig', error)}"
    print(words, file=sys.stderr)
    return WRONG_USE


async def serve(config: Config, config_path: Path, clock: Clock | None = None) -> int:
    """See ``run``; the errors of starting are raised.

    Args:
        config: the whole configuration, as ``load_config`` gives it.
        config_path: its file.
        clock: the host's if None.
    """
    clock = clock or SystemClock()
    state = Path(config.collector.state_dir)
    credentials = _credentials(config.collector.tls, clock) if config.collector.tls else None
    digest = configuration_hash(config_path)
    stop = _stop_event()
    asyncio.get_running_loop().set_exception_handler(AcceptErrors(clock.monotonic_ns))
    async with contextlib.AsyncExitStack() as parts:
        listener = parts.enter_context(listening_socket(config.collector.http_listen))
        log = await asyncio.to_thread(Log.open, state / "log")
        parts.push_async_callback(asyncio.to_thread, log.close)
        key = load_or_create_key(state / "control.key")
        control = Control(log, key, config.collector.name, clock, configuration_hash=digest, boot_id=_boot_id())
        await control.start(windows_fixed(config), [node.name for node in config.nodes])
        planning = Planning(config, digest, control, clock)
        await planning.start()

        store = await asyncio.to_thread(Store, state / "store.sqlite")
        parts.callback(store.close)
        remotes = Remotes(config.collector, store.path, clock.wall_ns)
        runner = Runner(log, store, config, clock.wall_ns, outbox=remotes.outbox)
        runner.start()
        parts.push_async_callback(asyncio.to_thread, runner.stop)
        parts.push_async_callback(asyncio.to_thread, remotes.stop)  # before analysis, which notes how far it got
        remotes.start()

        sessions = Sessions()
        reader = Reader(store.path, config)
        parts.callback(reader.close)
        tracing = Tracing(planning, reader, lambda: runner.snapshot.incidents, clock)
        pausing = Pausing(config, planning, control, clock)
        url = url_of(listener)
        trees = Trees(config, state, log, control, reader=reader, clock=clock)
        sources = _sources(
            reader, log, runner, sessions, clock=clock, trees=trees, topology=Topology(config), remotes=remotes
        )
        site = create_app(replace(sources, ask_trace=tracing.ask, say_pause=pausing.say))
        site.include_router(trees.router)
        http = HttpServer(site)
        serving = await parts.enter_async_context(_running(http.serve([listener]), on_leaving=http))

        ingest = Ingest(log, control, clock, sessions)
        options = server_options(max_connections=agent_connections(MAX_CONNECTIONS))
        server, port = await start_server(ingest, config.collector.grpc_listen, credentials, options=options)
        parts.push_async_callback(server.stop, _STREAMS_END_WITHIN_S)

        watching = await parts.enter_async_context(_running(note_pauses(control, clock)))
        signing = await parts.enter_async_context(_running(trees.run()))
        replanning = await parts.enter_async_context(_running(planning.run()))
        looking = await parts.enter_async_context(_running(tracing.run()))
        address = f"{config.collector.grpc_listen.rpartition(':')[0]}:{port}"
        print(
            f"bandwitness-collector ready: gRPC {address} ({'mTLS' if credentials else 'plain text'}), HTTP {url}",
            flush=True,
        )
        alive = {
            "log": lambda: log.alive,
            "analysis": lambda: runner.alive,
            "HTTP": lambda: not serving.done(),
            "planning": lambda: not replanning.done(),
            "the signing of tree heads": lambda: not signing.done(),
            "tracing": lambda: not looking.done(),
            "remote write": lambda: remotes.alive,
            "the watch for pauses": lambda: not watching.done(),
        }
        return await _until(stop, alive)


async def _until(stop: asyncio.Event, alive: Mapping[str, Callable[[], bool]]) -> int:
    """Waits for the end: asked for (0), or because a part has died (1)."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_EVERY_S)
        for part, lives in alive.items():
            if not lives():
                logger.critical("%s has died: the collector stops", part)
                return FAILED
    logger.info("stopping")
    return 0


@contextlib.asynccontextmanager
async def _running(
    work: Awaitable[None], on_leaving: HttpServer | None = None
) -> AsyncIterator["asyncio.Future[None]"]:
    """Runs ``work`` until the block is left; asks it to end, or cancels it. If it has died, leaving raises why."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        if on_leaving is not None:
            on_leaving.should_exit = True
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _sources(
    reader: Reader,
    log: Log,
    runner: Runner,
    sessions: Sessions,
    *,
    clock: Clock,
    trees: Trees,
    topology: Topology,
    remotes: Remotes,
) -> Sources:
    def complete_node(row: NodeRow) -> NodeRow:
        """Adds what only live sessions know."""
        session = sessions.get(row.name)
        heard_ns = sessions.last_received_ns(row.name)
        if heard_ns is None:
            return row
        return replace(
            row,
            connected=session is not None,
            last_received_time_ns=max(heard_ns, row.last_received_time_ns or 0),
            software_version=session.software_version if session is not None else row.software_version,
        )

    def health() -> dict[str, str]:
        failing = log.failing
        return {
            "log": str(failing) if failing is not None else "ok" if log.alive else "the writer has died",
            "analysis": runner.health,
        }

    def warnings() -> dict[str, str]:
        found = {"log": "; ".join(log.damages), **trees.warnings(), "remote_write": remotes.warnings()}
        return {part: words for part, words in found.items() if words}

    parts = (*PARTS, intake_of(sessions, log), remotes.remote_write)
    exporter = Exporter(lambda: runner.snapshot, complete_node, clock.wall_ns, parts)
    series = NicSeries(log, reader.counter_sets)
    evidence = Evidence(log, reader)
    return Sources(
        reader, exporter.render, health, complete_node, warnings, series, evidence=evidence, topology=topology
    )


def _credentials(tls: Tls, clock: Clock) -> grpc.ServerCredentials:
    credentials = server_credentials(tls)
    for key, message in date_faults(tls, datetime.fromtimestamp(clock.wall_ns() // 1_000_000_000, UTC)):
        logger.warning("collector.tls.%s: %s; until then no agent can connect", key, message)
    return credentials


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _boot_id() -> bytes:
    """The kernel's, 16 bytes."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return bytes.fromhex(text.strip().replace("-", ""))
