"""Asking the API: page after page, and in words when what answers is not what was hoped for."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from collector.export import client
from collector.export.client import ApiError, fetch_items

Answer = Callable[[str], bytes]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server that gives back ``answer`` of the first line of each request; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the test is over
                    return
                with connection:
                    request = connection.recv(65536).decode()
                    connection.sendall(answer(request.splitlines()[0]))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def http(body: object, status: str = "200 OK") -> bytes:
    text = json.dumps(body).encode()
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def test_pages_are_followed_to_the_end_and_parameters_stay() -> None:
    asked = []

    def answer(line: str) -> bytes:
        url = urlsplit(line.split()[1])
        query = parse_qs(url.query)
        asked.append((url.path, query))
        place = int(query.get("cursor", ["0"])[0])
        return http({"items": [{"n": place}], "next": str(place + 1) if place < 2 else None})

    with answering(answer) as url:
        items = fetch_items(f"{url}/", "incidents", to="2026-12-01T19:00:00+08:00", active=None)
    assert items == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [path for path, _ in asked] == ["/api/v1/incidents"] * 3
    assert [query.get("cursor") for _, query in asked] == [None, ["1"], ["2"]]
    assert all(query["to"] == ["2026-12-01T19:00:00+08:00"] and "active" not in query for _, query in asked)


def test_a_refusal_is_passed_on_in_the_collectors_words() -> None:
    refusal = http({"error": {"code": "bad_query", "message": "from: must lie before to"}}, "400 Bad Request")
    with answering(lambda _: refusal) as url, pytest.raises(ApiError, match=r"refused \(400\): from: must lie before"):
        fetch_items(url, "incidents")


@pytest.mark.parametrize(
    "answer",
    [http([]), http({"status": "success"}), http({"items": []}), b"HTTP/1.0 200 OK\r\n\r\n<html>", b"\0\0\x12"],
)
def test_another_program_is_called_what_it_is(answer: bytes) -> None:
    with answering(lambda _: answer) as url, pytest.raises(ApiError, match="not a Bandwitness collector"):
        fetch_items(url, "nodes")


@pytest.mark.parametrize("url", ["collector:7480", "file:///etc/passwd", "http://127.0.0.1:port"])
def test_only_http_is_asked(url: str) -> None:
    with pytest.raises(ApiError):
        fetch_items(url, "nodes")


def test_a_token_goes_over_tls_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("bwr_1_x\n")
    environment = {client.TOKEN_FILE: str(tmp_path / "token")}
    assert client._credentials("http://10.0.0.1:7480/", environment) == ({}, None)
    headers, context = client._credentials("https://10.0.0.1:7480/", environment)
    assert headers == {"Authorization": "Bearer bwr_1_x"}
    assert context is not None
    assert context.check_hostname
    with pytest.raises(client.ApiError, match="cannot be used"):
        client._credentials("https://10.0.0.1/", {client.CA_FILE: str(tmp_path / "none")})
