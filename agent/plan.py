"""Keeps the newest valid plan, as the control batch that the collector signed.

A plan is taken when its batch is signed with the collector's key (pinned at first contact), is for this node, and has
a higher version than the one kept. The bytes are kept as received, so what was ordered can be proved later. An expired
plan still loads: round trips and counters go on under it, throughput tests do not (``agent.schedule``).
"""

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from google.protobuf.message import DecodeError

from agent.result import PartState
from bandwitness import MAX_MESSAGE_BYTES, chain
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, Record, SignedBatch

PLAN_FILE = "plan.batch"
PINS_FILE = "collectors.json"
MAX_PINS = 16
_MAX_PINS_BYTES = 64 * 1024


class PlanError(Exception):
    """A plan that is not taken; the message says why."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan in force. Hashes are SHA-256: of the plan's bytes, and of the control header it came under."""

    plan: Plan
    plan_hash: bytes
    collector_id: str
    head: bytes

    def expired(self, now_ns: int) -> bool:
        """Whether throughput tests have to stay away (wall clock)."""
        return now_ns >= self.plan.expiry_time_ns


class PlanKeeper:
    """The plan of one node on disk. Calls block for a small file; none needs the network.

    Args:
        state_dir: holds ``plan.batch`` (a serialised SignedBatch) and ``collectors.json`` (pinned keys).
        node: plans for others are refused.
    """

    def __init__(self, state_dir: Path, node: str) -> None:
        self._state_dir = state_dir
        self._node = node
        self._pins: dict[str, bytes] = {}
        self._pins_fault = ""  # while it is set nothing is trusted: damage must not amount to a new first sight
        self._fault = ""
        self.current: KeptPlan | None = None

    def load(self) -> KeptPlan | None:
        """Reads what is kept. Damage is a state, never an exception: the collector sends the plan again."""
        try:
            self._pins = _read_pins(self._state_dir / PINS_FILE)
        except (OSError, ValueError, RecursionError) as error:
            path = self._state_dir / PINS_FILE
            self._pins_fault = self._fault = (
                f"{path} cannot be read ({error}): remove it to trust the collector's key anew"
            )
            return None
        path = self._state_dir / PLAN_FILE
        try:
            with path.open("rb") as file:
                self.current = self._check(SignedBatch.FromString(file.read(MAX_MESSAGE_BYTES)))
        except FileNotFoundError:
            pass
        except (OSError, DecodeError, PlanError) as error:
            self._fault = f"the plan in {path} cannot be used ({error}): waiting for the collector to send it again"
        return self.current

    def pin(self, collector_id: str, public_key: bytes) -> None:
        """Trusts the key of a collector at first sight; later only the same.

        Raises:
            PlanError: another key than the pinned one, or too many collectors.
        """
        if self._pins_fault:
            raise PlanError(self._pins_fault)
        known = self._pins.get(collector_id)
        if known == public_key:
            return
        path = self._state_dir / PINS_FILE
        if known is not None:
            raise PlanError(
                f"collector {collector_id} signs with another key than before: its plans are refused. "
                f"If it was set up anew, remove {path}"
            )
        if not collector_id or len(public_key) != 32:
            raise PlanError("the collector gave no name or no key")
        if len(self._pins) >= MAX_PINS:
            raise PlanError(f"{MAX_PINS} collectors are known already: remove {path} to start anew")
        pins = self._pins | {collector_id: public_key}
        text = json.dumps({name: key.hex() for name, key in pins.items()}, indent=1)
        _write_whole(path, text.encode())
        self._pins = pins

    def offer(self, batch: SignedBatch, now_ns: int) -> KeptPlan | None:
        """Takes over a newer plan; None where it is the one in force.

        A lower version is taken only once the plan in force has expired: a collector that lost its state counts anew.

        Raises:
            PlanError: not valid, not for us, or older.
            OSError: it could not be written; the plan in force stays.
        """
        offered = self._check(batch)
        current = self.current
        if current is not None:
            if offered.plan_hash == current.plan_hash:
                return None
            if offered.plan.version <= current.plan.version and not current.expired(now_ns):
                raise PlanError(
                    f"version {offered.plan.version} is not above {current.plan.version}, which is in force"
                )
        _write_whole(self._state_dir / PLAN_FILE, batch.SerializeToString())
        self.current, self._fault = offered, ""
        return offered

    def _check(self, batch: SignedBatch) -> KeptPlan:
        try:
            header = chain.read_header(batch.header)
            chain.check_signature(batch.header, header, batch.signature)
            records = [Record.FromString(record) for record in chain.read_payload(header, batch.payload)]
        except (chain.ChainError, DecodeError) as error:
            raise PlanError(str(error)) from None
        if header.batch_class != BATCH_CLASS_CONTROL:
            raise PlanError("it is not a control batch")
        pinned = self._pins.get(header.agent_id)
        if pinned != header.public_key:
            raise PlanError(f"it is not signed with the pinned key of collector {header.agent_id}")
        issued = [record.plan_issued for record in records if record.HasField("plan_issued")]
        ours = [record.plan for record in issued if record.node == self._node]
        if len(ours) != 1:
            raise PlanError(f"it holds {len(ours)} plans for {self._node}")
        try:
            plan = Plan.FromString(ours[0])
        except DecodeError as error:
            raise PlanError(f"the plan cannot be read: {error}") from None
        if plan.node != self._node or not plan.version:
            raise PlanError("the plan names another node, or has no version")
        return KeptPlan(plan, sha256(ours[0]).digest(), header.agent_id, chain.header_hash(batch.header))

    def state(self, now_ns: int) -> PartState:
        """For the agent's status (wall clock)."""
        if self.current is None:
            waiting = f"waiting for a plan: does the collector's configuration name the node {self._node}?"
            return PartState("plan", False, "no_plan", self._fault or waiting)
        if self.current.expired(now_ns):
            detail = "no throughput tests until the collector sends a new one; the rest goes on"
            return PartState("plan", False, "plan_expired", detail)
        return PartState("plan", True, "ok", f"version {self.current.plan.version}")


def _read_pins(path: Path) -> dict[str, bytes]:
    try:
        with path.open("rb") as file:
            parsed = json.loads(file.read(_MAX_PINS_BYTES))
    except FileNotFoundError:
        return {}
    if not isinstance(parsed, dict) or not all(isinstance(key, str) for key in parsed.values()):
        raise ValueError("not a mapping of names to keys")
    return {name: bytes.fromhex(key) for name, key in parsed.items()}


def _write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever the power goes: write, fsync, rename, fsync of the directory."""
    unfinished = path.with_name(path.name + ".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
