"""The HTTP listener over TLS, among people who never finish a handshake."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from collector.app import https
from collector.app.http import HttpServer, listening_socket
from collector.config import HttpTls
from tests.fakes.trust import make_certificates


async def app(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[int]:
    make_certificates(directory)
    tls = HttpTls(certificate=str(directory / "collector.pem"), key=str(directory / "collector.key"))
    with listening_socket("127.0.0.1:0") as listener:
        server = HttpServer(app, tls=tls)
        task = asyncio.ensure_future(server.serve([listener]))
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await task


async def asked(port: int, directory: Path) -> tuple[bytes, bytes]:
    """The certificate shown, and the end of the answer."""
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown, answer[-2:]


async def test_a_renewed_certificate_is_shown_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        first, answer = await asked(port, tmp_path)
        assert answer == b"ok"
        for name in ("collector.pem", "collector.key"):
            (tmp_path / name).unlink()
        make_certificates(tmp_path)
        second, _ = await asked(port, tmp_path)
        assert second != first
        (tmp_path / "collector.pem").write_text("damaged")
        assert (await asked(port, tmp_path))[0] == second


async def test_who_never_finishes_a_handshake_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https.Handshakes.__init__, "__defaults__", (8,))
    async with serving(tmp_path) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in held:
            writer.write(b"\x16\x03\x01")
        assert await asyncio.wait_for(held[0][0].read(1), 10) == b""  # dropped for those that came later
        assert (await asked(port, tmp_path))[1] == b"ok"
        garbage = socket.create_connection(("127.0.0.1", port))
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS at all
        garbage.close()
        assert (await asked(port, tmp_path))[1] == b"ok"
        for _, writer in held:
            writer.close()
