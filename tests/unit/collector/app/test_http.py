"""Sockets opened or inherited, and what is said of those that cannot be used."""

import socket
from pathlib import Path

import pytest

from collector.app.http import HttpListenError, listening_socket, url_of


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
