"""Daily tree heads over the log, and proofs against them: what somebody who distrusts this collector asks for."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY
from collector.export import views
from collector.export.views import BadQueryError
from collector.log import ChainKey
from collector.log.tree import consistency, inclusion
from collector.model import TreeHeadRow

CLASSES = {
    "evidence": int(BATCH_CLASS_EVIDENCE),
    "telemetry": int(BATCH_CLASS_TELEMETRY),
    "control": int(BATCH_CLASS_CONTROL),
}


class Leaves(Protocol):
    """The log, as far as its tree goes; safe from any thread."""

    def header_hashes(self, after_position: int, limit: int) -> list[tuple[int, bytes]]: ...
    def leaf_of(self, key: ChainKey, seq: int) -> tuple[int, bytes] | None: ...


Size = Annotated[int | None, Query(ge=1, lt=2**63, description="default: of the newest head")]


def head_of(known: Sequence[TreeHeadRow], size: int | None) -> TreeHeadRow:
    """The head of a tree of ``size`` leaves, or the newest.

    Raises:
        HTTPException, BadQueryError: there is none.
    """
    if not known:
        raise HTTPException(404, "no tree head has been signed yet: the first is due after midnight, UTC")
    for head in known:
        if head.tree_size == size:
            return head
    if size is not None:
        raise BadQueryError(f"no signed head has {size} leaves; /api/v1/heads lists them")
    return known[-1]


def inclusion_of(head: TreeHeadRow, leaves: Leaves, key: ChainKey, seq: int) -> dict[str, Any]:
    """That the header with this number is under ``head``.

    Raises:
        HTTPException: it is not.
    """
    found = leaves.leaf_of(key, seq)
    if found is None:
        raise HTTPException(404, f"the log holds no batch {seq} of this chain")
    index, digest = found
    if index >= head.tree_size:
        raise HTTPException(404, f"this batch came after the head of {head.day} was signed")
    path = inclusion(leaves, index, head.tree_size, head.last_position)
    return {"leaf": digest.hex(), "index": index, "proof": [one.hex() for one in path], "head": views.item(head)}


def consistency_of(old: TreeHeadRow, head: TreeHeadRow, leaves: Leaves) -> dict[str, Any]:
    """That the tree of ``head`` continues that of ``old``.

    Raises:
        BadQueryError: it is the older one.
    """
    if old.tree_size > head.tree_size:
        raise BadQueryError("old_size: must not be above tree_size")
    path = consistency(leaves, old.tree_size, head.tree_size, head.last_position)
    return {"proof": [one.hex() for one in path], "old_head": views.item(old), "head": views.item(head)}


class GivenOut(Protocol):
    """To whom a head was given."""

    @property
    def to(self) -> str: ...
    @property
    def stamped(self) -> bool: ...
    @property
    def time(self) -> str: ...


def router(
    heads: Callable[[], Sequence[TreeHeadRow]],
    leaves: Leaves,
    given: Callable[[str], Sequence[GivenOut]] = lambda _: (),
) -> APIRouter:
    """``/api/v1/heads`` and ``/api/v1/proofs/…``; ``given`` says who has the head of a day."""
    routes = APIRouter()

    @routes.get("/api/v1/heads")
    async def all_heads(
        cursor: Annotated[str | None, Query(max_length=1000)] = None,
        limit: Annotated[int, Query(ge=1, le=views.MAX_PAGE)] = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """Daily RFC 9162 tree heads over all headers received, oldest first."""

        def work() -> dict[str, Any]:
            chosen, following = views.page(heads(), lambda row: f"{row.source.position:020d}", cursor, limit)
            items = [
                views.item(row)
                | {"given": [{"to": one.to, "stamped": one.stamped, "time": one.time} for one in given(row.day)]}
                for row in chosen
            ]
            return {"items": items, "next": following}

        return await run_in_threadpool(work)

    @routes.get("/api/v1/proofs/inclusion")
    async def prove_inclusion(
        agent: Annotated[str, Query(max_length=100)],
        chain: Annotated[str, Query(pattern="^[0-9a-f]{32}$", description="chain id, hex")],
        batch_class: Annotated[Literal["evidence", "telemetry", "control"], Query(alias="class")],
        seq: Annotated[int, Query(ge=1, lt=2**63)],
        tree_size: Size = None,
    ) -> dict[str, Any]:
        """That a header stood in the log when a head was signed. The leaf is the header's SHA-256; hashes are those of
        RFC 9162, nearest sibling first."""
        key = ChainKey(agent, bytes.fromhex(chain), CLASSES[batch_class])
        return await run_in_threadpool(lambda: inclusion_of(head_of(heads(), tree_size), leaves, key, seq))

    @routes.get("/api/v1/proofs/consistency")
    async def prove_consistency(
        old_size: Annotated[int, Query(ge=1, lt=2**63)], tree_size: Size = None
    ) -> dict[str, Any]:
        """That the log at one head continues the log at an earlier one: nothing was taken out or put in between."""

        def work() -> dict[str, Any]:
            known = heads()
            return consistency_of(head_of(known, old_size), head_of(known, tree_size), leaves)

        return await run_in_threadpool(work)

    return routes
