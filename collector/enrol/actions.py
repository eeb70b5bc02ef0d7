"""What can be asked over the admin socket, in terms of identities. Values come from the operator's own commands, and
are checked all the same."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc

from collector.enrol.admin import Action
from collector.enrol.identities import Identities, RefusedError
from collector.enrol.tokens import Token

DAY_NS = 86_400 * 1_000_000_000
MIN_TTL_NS, MAX_TTL_NS = 60 * 1_000_000_000, 3650 * DAY_NS


def actions(
    identities: Identities,
    *,
    nodes: Callable[[], list[str]],
    connected: Callable[[str], bool],
    seen_expiry_ns: Callable[[str], int | None],
    now_ns: Callable[[], int],
    address: str,
) -> Mapping[str, Action]:
    """By the word in ``do``. ``nodes``: those of the configuration; ``seen_expiry_ns``: of the certificate that a node
    connected with; ``address``: where nodes enrol."""

    async def token_create(request: Mapping[str, Any]) -> Mapping[str, Any]:
        read, ttl_ns = bool(request.get("read")), request.get("ttl_ns")
        if ttl_ns is not None and not (isinstance(ttl_ns, int) and MIN_TTL_NS <= ttl_ns <= MAX_TTL_NS):
            raise _wrong("--ttl: expected 1m to ten years")
        if read:
            made = [await identities.create_token("read", "", ttl_ns)]
        else:
            wanted = [str(name) for name in request.get("nodes") or ()]
            if request.get("all"):
                wanted = [name for name in nodes() if identities.registry.nodes.get(name) is None]
            made = [await identities.create_token("enrol", name, ttl_ns or DAY_NS) for name in wanted]
        authority = identities.authority
        return {
            "address": address,
            "ca_fingerprint": authority.fingerprint if authority is not None else "",
            "tokens": [{**_shown(token, now_ns()), "token": text} for token, text in made],
        }

    async def token_list(_: Mapping[str, Any]) -> Mapping[str, Any]:
        found = sorted(identities.registry.tokens.values(), key=lambda one: one.created_ns)
        return {"tokens": [_shown(one, now_ns()) for one in found]}

    async def token_revoke(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _shown(await identities.revoke_token(str(request.get("id"))), now_ns())

    async def node_list(_: Mapping[str, Any]) -> Mapping[str, Any]:
        states = identities.registry.nodes
        found = []
        for name in dict.fromkeys([*nodes(), *sorted(states)]):
            state = states.get(name)
            found.append(
                {
                    "node": name,
                    "identity": "none"
                    if state is None and seen_expiry_ns(name) is None
                    else "elsewhere"
                    if state is None
                    else "revoked"
                    if state.revoked
                    else "enrolled",
                    "since_ns": None if state is None else state.since_ns,
                    "reason": "" if state is None else state.reason,
                    "expiry_ns": seen_expiry_ns(name) if state is None else identities.expiry_ns(name),
                    "connected": connected(name),
                }
            )
        return {"nodes": found}

    async def node_revoke(request: Mapping[str, Any]) -> Mapping[str, Any]:
        name = str(request.get("node"))
        if name not in nodes() and name not in identities.registry.nodes:
            raise _wrong(f"no node is called {name!r}: see `node list`")
        await identities.revoke(name, str(request.get("reason", "")))
        return {"node": name}

    async def node_admit(request: Mapping[str, Any]) -> Mapping[str, Any]:
        name = str(request.get("node"))
        await identities.admit(name, str(request.get("certificate")).encode())
        return {"node": name}

    found = (token_create, token_list, token_revoke, node_list, node_revoke, node_admit)
    return {action.__name__: action for action in found}


def _shown(token: Token, now_ns: int) -> dict[str, Any]:
    """All that may be told of a token."""
    return {
        "id": token.token_id,
        "kind": token.kind,
        "node": token.node,
        "created_ns": token.created_ns,
        "expiry_ns": token.expiry_ns,
        "state": token.state(now_ns),
    }


def _wrong(words: str) -> RefusedError:
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, words)
