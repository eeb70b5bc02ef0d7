"""A time-stamp authority of our own: ``openssl ts`` behind a small HTTP server."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

CONFIGURATION = """
[tsa]
default_tsa = here
[here]
dir = {directory}
serial = $dir/serial
crypto_device = builtin
signer_cert = $dir/tsa.pem
signer_key = $dir/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
ess_cert_id_chain = no
ess_cert_id_alg = sha256
[extensions]
extendedKeyUsage = critical,timeStamping
[request]
distinguished_name = name
[name]
"""


class TimestampAuthority:
    """Certificates in a directory; ``ca`` is what to believe."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.configuration = directory / "openssl.cnf"
        self.configuration.write_text(CONFIGURATION.format(directory=directory))
        (directory / "serial").write_text("01\n")
        self.ca = directory / "ca.pem"
        self._run(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Test TSA CA",
            "-keyout", "ca.key", "-out", "ca.pem", "-days", "30",
        )  # fmt: skip
        self._run(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Test TSA", "-keyout", "tsa.key", "-out", "tsa.csr",
            "-config", str(self.configuration), "-section", "request",
        )  # fmt: skip
        self._run(
            "x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "tsa.pem",
            "-days", "30", "-extfile", str(self.configuration), "-extensions", "extensions",
        )  # fmt: skip

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def reply(self, query: bytes) -> bytes:
        """A signed response."""
        (self.directory / "query.tsq").write_bytes(query)
        self._run("ts", "-reply", "-config", str(self.configuration), "-queryfile", "query.tsq", "-out", "reply.tsr")
        return (self.directory / "reply.tsr").read_bytes()

    def verify(self, answer: bytes, data: bytes) -> str:
        """What ``openssl ts -verify`` says of an answer: a second reader."""
        (self.directory / "answer.tsr").write_bytes(answer)
        (self.directory / "data").write_bytes(data)
        done = subprocess.run(
            ["openssl", "ts", "-verify", "-in", "answer.tsr", "-data", "data", "-CAfile", "ca.pem"],
            cwd=self.directory,
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr


class Posts:
    """An HTTP server that keeps what it is sent; answers with ``status`` and what ``answer`` makes of the body."""

    def __init__(self) -> None:
        self.status = 200
        self.taken: list[tuple[str, str, bytes]] = []  # path, content type, body
        self.answer: Callable[[bytes], bytes] = lambda _: b"ok"

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Gives the address."""
        posts = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if posts.status == 200:
                    posts.taken.append((self.path, self.headers["Content-Type"], body))
                content = posts.answer(body)
                self.send_response(posts.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()
