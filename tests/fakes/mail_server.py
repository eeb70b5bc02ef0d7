"""As much of SMTP (RFC 5321) as one mail takes."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MailServer:
    """Keeps mails as text; refuses recipients while ``refuse`` is set."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.refuse = False

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Gives the port on loopback."""
        kept = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 test\r\n")
                for line in self.rfile:
                    word = line[:4].upper()
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        text = b""
                        for part in self.rfile:
                            if part == b".\r\n":
                                break
                            text += part
                        kept.mails.append(text.decode())
                        self.wfile.write(b"250 kept\r\n")
                    elif word == b"QUIT":
                        self.wfile.write(b"221 bye\r\n")
                        return
                    elif word == b"RCPT" and kept.refuse:
                        self.wfile.write(b"550 nobody here\r\n")
                    else:
                        self.wfile.write(b"250 ok\r\n")

        with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()
