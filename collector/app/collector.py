"""One collector from start to stop.

Start: log (put in order), control chain (started, windows fixed), analysis, HTTP, gRPC, and only then new plans.
Stop, on SIGTERM or SIGINT: no new batches, HTTP closed, the step of analysis under way ended, the log flushed.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from bandwitness.settings import SettingsError
from collector.analysis.elements import Topology
from collector.analysis.runner import Runner
from collector.app.figures import enrolment_of, intake_of
from collector.app.http import HttpListenError, HttpServer, is_loopback, listening_socket, url_of
from collector.app.limits import AcceptErrors, agent_connections, keep_memory_private, raise_descriptor_limit
from collector.app.pauses import note_pauses
from collector.app.pausing import Pausing
from collector.app.planning import Planning, windows_fixed
from collector.app.remote import Remotes
from collector.app.shared_tests import SharedTests
from collector.app.tracing import Tracing
from collector.app.trees import Trees
from collector.app.trust import Trust
from collector.clock import Clock, SystemClock
from collector.config import Config, Tls, configuration_hash, date_faults
from collector.control import Control, KeyFileError, load_or_create_key
from collector.enrol.registry import RegistryError
from collector.export.evidence_api import Evidence
from collector.export.guard import Guard
from collector.export.http import Sources, create_app
from collector.export.prometheus import PARTS, Exporter
from collector.export.series import NicSeries
from collector.ingest import ListenError, Sessions, TlsError, start_server
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
    keep_memory_private()
    raise_descriptor_limit(len(config.nodes))
    try:
        return asyncio.run(serve(config, config_path))
    except (
        SettingsError,
        LogUnavailableError,
        KeyFileError,
        TlsError,
        ListenError,
        HttpListenError,
        RegistryError,
    ) as error:
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
    if config.collector.tls:
        _warn_of_dates(config.collector.tls, clock)
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
        sessions = Sessions()
        trust = await asyncio.to_thread(Trust, config, control, log, clock, sessions)
        parts.callback(trust.close)
        await trust.identities.catch_up()
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

        reader = Reader(store.path, config)
        parts.callback(reader.close)
        tracing = Tracing(planning, reader, lambda: runner.snapshot.incidents, clock)
        shared = SharedTests(
            config,
            planning,
            control,
            clock,
            incidents=lambda: runner.snapshot.incidents,
            known=reader.shared_tests,
        )
        url = url_of(listener, "https" if config.collector.http_tls else "http")
        trees = Trees(config, state, log, control, reader=reader, clock=clock)
        sources = _sources(
            reader,
            log,
            runner,
            sessions,
            clock=clock,
            trees=trees,
            topology=Topology(config),
            remotes=remotes,
            trust=trust,
        )
        site = create_app(
            replace(
                sources,
                ask_trace=tracing.ask,
                say_pause=Pausing(config, planning, control, clock).say,
                order_contention=shared.order,
            )
        )
        site.include_router(trees.router)
        http = _http_server(site, listener, config, trust)
        serving = await parts.enter_async_context(_running(http.serve([listener]), on_leaving=http))

        port, enrolling = await _open_ports(parts, config, trust, log, control)
        trusting = await parts.enter_async_context(_running(trust.run()))
        watching = await parts.enter_async_context(_running(note_pauses(control, clock)))
        signing = await parts.enter_async_context(_running(trees.run()))
        replanning = await parts.enter_async_context(_running(planning.run()))
        looking, contending = [await parts.enter_async_context(_running(part.run())) for part in (tracing, shared)]
        address = f"{config.collector.grpc_listen.rpartition(':')[0]}:{port}"
        secure = "mTLS" if config.collector.tls else "plain text"
        print(
            f"bandwitness-collector ready: gRPC {address} ({secure})"
            f"{f', enrolment {enrolling}' if enrolling else ''}, HTTP {url}",
            flush=True,
        )
        alive = {
            "log": lambda: log.alive,
            "analysis": lambda: runner.alive,
            "HTTP": lambda: not serving.done(),
            "planning": lambda: not replanning.done(),
            "the signing of tree heads": lambda: not signing.done(),
            "the watch over contention tests": lambda: not contending.done(),
            "tracing": lambda: not looking.done(),
            "remote write": lambda: remotes.alive,
            "enrolment": lambda: not trusting.done(),
            "the watch for pauses": lambda: not watching.done(),
        }
        return await _until(stop, alive)


async def _open_ports(
    parts: contextlib.AsyncExitStack, config: Config, trust: Trust, log: Log, control: Control
) -> tuple[int, str]:
    """Lets agents in; the port of the streams, and where nodes enrol (empty: nowhere).

    Raises:
        ListenError: one of the two cannot be had.
    """
    credentials = trust.files.credentials() if trust.files is not None else None
    options = server_options(max_connections=agent_connections(MAX_CONNECTIONS))
    ingest = trust.ingest(log, control)
    server, port = await start_server(ingest, config.collector.grpc_listen, credentials, options=options)
    parts.push_async_callback(server.stop, _STREAMS_END_WITHIN_S)
    await trust.start(parts, port)
    return port, trust.enrol_address


def _http_server(site: FastAPI, listener: socket.socket, config: Config, trust: Trust) -> HttpServer:
    """Beyond loopback: over TLS, for readers with a token.

    Raises:
        HttpListenError: without TLS, or its files cannot be used.
    """
    tls, beyond = config.collector.http_tls, not is_loopback(listener)
    if beyond and tls is None:
        raise HttpListenError("collector.http_listen: beyond loopback it needs collector.http_tls")
    return HttpServer(Guard(site, trust.identities.may_read if beyond else None), tls=tls)


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
    trust: Trust,
) -> Sources:
    def complete_node(row: NodeRow) -> NodeRow:
        """Adds what only live sessions know."""
        session = sessions.get(row.name)
        heard_ns = sessions.last_received_ns(row.name)
        row = replace(row, certificate_expiry_time_ns=trust.expiry_ns(row.name))
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
        found = {"log": "; ".join(log.damages), "remote_write": remotes.warnings()}
        found |= {**trees.warnings(), **trust.warnings()}
        return {part: words for part, words in found.items() if words}

    enrolment = enrolment_of(trust.identities.outcomes, sessions)
    parts = (*PARTS, intake_of(sessions, log), remotes.remote_write, enrolment)
    exporter = Exporter(lambda: runner.snapshot, complete_node, clock.wall_ns, parts)
    series = NicSeries(log, reader.counter_sets)
    evidence = Evidence(log, reader)
    return Sources(
        reader, exporter.render, health, complete_node, warnings, series, evidence=evidence, topology=topology
    )


def _warn_of_dates(tls: Tls, clock: Clock) -> None:
    for key, message in date_faults(tls, datetime.fromtimestamp(clock.wall_ns() // 1_000_000_000, UTC)):
        logger.warning("collector.tls.%s: %s; until then no agent can connect", key, message)


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
