"""Who may ask over HTTP."""

from typing import Any

import pytest

from collector.export.guard import Guard


async def asked(
    guard: Guard, method: str = "GET", client: str = "10.0.0.9", **headers: str
) -> tuple[int, dict[bytes, bytes]]:
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": method,
        "client": (client, 1),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    await guard(scope, receive, send)
    return answers[0]["status"], dict(answers[0]["headers"])


async def app(scope: Any, _: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


BEYOND = Guard(app, lambda text: text == "bwr_1_right")


@pytest.mark.parametrize(
    "header", ["", "bwr_1_right", "Basic bwr_1_right", "Bearer", "Bearer ", "Bearer bwr_1_wrong", "Bearer bwr_1_ré"]
)
async def test_without_a_token_that_counts_nothing_is_answered(header: str) -> None:
    for client in ("10.0.0.9", "127.0.0.1"):
        status, headers = await asked(BEYOND, client=client, **({"authorization": header} if header else {}))
        assert (status, headers[b"www-authenticate"]) == (401, b'Bearer realm="bandwitness"')


async def test_a_reader_reads_and_has_nothing_done() -> None:
    right = {"authorization": "bearer bwr_1_right"}
    assert (await asked(BEYOND, **right))[0] == 200
    assert (await asked(BEYOND, "HEAD", **right))[0] == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await asked(BEYOND, method, **right))[0] == 403
        assert (await asked(BEYOND, method, "127.0.0.1", **right))[0] == 200
        assert (await asked(BEYOND, method, "127.0.0.1"))[0] == 401


async def test_on_loopback_no_token_is_needed() -> None:
    guard = Guard(app, None)
    assert (await asked(guard, client="127.0.0.1"))[0] == 200
    assert (await asked(guard, "POST", client="::1"))[0] == 200
    assert (await asked(guard, "POST", client="10.0.0.9", x="y"))[0] == 403
    assert (await asked(guard, "POST", client="a name"))[0] == 403
