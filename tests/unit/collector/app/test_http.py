"""Sockets opened or inherited, what is said of those that cannot be used, and connections that say nothing."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from collector.app.http import HttpListenError, HttpServer, listening_socket, url_of

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
NEVER_S = 3_600.0


def test_an_address_is_listened_on_and_its_url_known() -> None:
    with listening_socket("127.0.0.1:0") as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(HttpListenError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listening_socket(f"127.0.0.1:{port}")


def test_ipv6_stands_in_brackets() -> None:
    with listening_socket("[::1]:0") as listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_an_inherited_listening_socket_is_used_as_it_is() -> None:
    parent = socket.create_server(("127.0.0.1", 0))
    address = parent.getsockname()
    with listening_socket(f"fd:{parent.detach()}") as listener:
        assert listener.getsockname() == address


def test_a_descriptor_that_is_no_listening_socket_is_named_and_left_open(tmp_path: Path) -> None:
    with pytest.raises(HttpListenError, match="fd:999: no inherited socket has this number"):
        listening_socket("fd:999")
    with socket.socket() as idle:
        with pytest.raises(HttpListenError, match="not a listening TCP socket"):
            listening_socket(f"fd:{idle.fileno()}")
        assert idle.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
    with (tmp_path / "file").open("w") as file, pytest.raises(HttpListenError, match=f"fd:{file.fileno()}"):
        listening_socket(f"fd:{file.fileno()}")


@contextlib.asynccontextmanager
async def listening(*, header_within_s: float = NEVER_S, max_connections: int = 100) -> AsyncIterator[int]:
    """The port of a server that answers everything with 404."""
    with listening_socket("127.0.0.1:0") as listener:
        server = HttpServer(FastAPI(), header_within_s=header_within_s, max_connections=max_connections)
        task = asyncio.ensure_future(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def opened(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(1_000):
            pass


@pytest.mark.parametrize(
    "sent", [b"", b"GET", REQUEST[:-2], REQUEST + b"GET", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"]
)
async def test_a_connection_without_a_whole_request_is_closed_in_time(sent: bytes) -> None:
    async with listening(header_within_s=0.05) as port:
        reader, writer = await opened(port, sent)
        await ended(reader)
        writer.close()


async def test_one_connection_too_many_closes_the_one_that_has_waited_longest() -> None:
    async with listening(max_connections=2) as port:
        connections = [await opened(port, b"GET") for _ in range(2)]
        reader, writer = await opened(port, REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        await ended(connections[0][0])
        connections[1][1].write(REQUEST[3:])
        assert (await connections[1][0].readline()).startswith(b"HTTP/1.1 404")
        for _, one in (*connections, (reader, writer)):
            one.close()


async def test_what_is_not_http_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with listening() as port:
            reader, writer = await opened(port, b"\x16\x03\x01garbage\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")
            writer.close()
    assert [record.getMessage() for record in caplog.records] == []
