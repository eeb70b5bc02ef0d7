"""Records of the collector's own chain into rows. Pure."""

from hashlib import sha256

from google.protobuf.message import DecodeError

from bandwitness.v1.plan_pb2 import Plan, Slot
from bandwitness.v1.record_pb2 import ChainOpened, CollectorStarted, PlanIssued, TestsPaused, TreeHead, WindowsFixed
from collector.decode.definitions import DefinitionError, Definitions, bounded, endpoint_row
from collector.decode.runs import RunError
from collector.model import (
    ChainOpenedRow,
    CollectorStartedRow,
    PathRow,
    PauseRow,
    PlanRow,
    ProfileRow,
    SlotRow,
    Source,
    TreeHeadRow,
    WindowsRow,
)


def plan_rows(
    source: Source, issued: PlanIssued, definitions: Definitions
) -> tuple[PlanRow, list[PathRow], list[ProfileRow]]:
    """The plan with its slots, and the paths and profiles these name.

    Raises:
        RunError: the plan cannot be read. A slot with a bad path or profile makes the whole plan bad: it is ours.
    """
    try:
        plan = Plan.FromString(issued.plan)
    except DecodeError as error:
        raise RunError(f"plan of {issued.node}: {error}") from None
    paths: dict[bytes, PathRow] = {}
    profiles: dict[bytes, ProfileRow] = {}
    slots = [slot_row(slot, definitions, paths, profiles) for slot in plan.slot]
    row = PlanRow(
        source=source,
        node=issued.node,
        version=plan.version,
        plan_hash=sha256(issued.plan).digest(),
        issued_time_ns=plan.issued_time_ns,
        expiry_time_ns=plan.expiry_time_ns,
        frozen_until_ns=plan.frozen_until_ns,
        slots=slots,
    )
    return row, list(paths.values()), list(profiles.values())


def slot_row(
    slot: Slot, definitions: Definitions, paths: dict[bytes, PathRow], profiles: dict[bytes, ProfileRow]
) -> SlotRow:
    """One slot; its path and profile are added to the tables given."""
    if len(slot.slot_id) != 16:
        raise DefinitionError("a slot without id")
    if slot.path not in paths:
        paths[slot.path] = definitions.path(slot.path)
    if slot.profile not in profiles:
        profiles[slot.profile] = definitions.profile(slot.profile)
    profile = profiles[slot.profile]
    margin = bounded(slot.margin_ns)
    return SlotRow(
        slot_id=slot.slot_id,
        group_id=slot.group_id,
        purpose=slot.purpose,
        window=slot.window,
        day=slot.day,
        start_time_ns=slot.start_time_ns,
        end_time_ns=slot.start_time_ns + profile.duration_ns + profile.omit_ns + margin,
        margin_ns=margin,
        client=endpoint_row(slot.client),
        server=endpoint_row(slot.server),
        port=slot.port,
        reverse=slot.reverse,
        path_id=paths[slot.path].path_id,
        profile_id=profile.profile_id,
        tokens=tuple(slot.token),
        reason=slot.reason,
    )


def chain_opened_row(source: Source, opened: ChainOpened) -> ChainOpenedRow:
    """First sight of a chain."""
    return ChainOpenedRow(
        source, opened.agent_id, opened.chain_id, opened.batch_class, opened.public_key, opened.certificate_sha256
    )


def windows_row(source: Source, windows: WindowsFixed) -> WindowsRow:
    """Windows of one site."""
    return WindowsRow(
        source=source,
        site=windows.site,
        time_zone=windows.time_zone,
        peak=tuple((part.start_s, part.end_s) for part in windows.peak),
        offpeak=tuple((part.start_s, part.end_s) for part in windows.offpeak),
    )


def tree_head_row(source: Source, head: TreeHead, signed_time_ns: int) -> TreeHeadRow:
    """A head over the log.

    Raises:
        DefinitionError: it is none.
    """
    if len(head.root) != 32:
        raise DefinitionError("a tree head without a root of 32 bytes")
    return TreeHeadRow(
        source, head.day, bounded(head.tree_size), head.root, bounded(head.last_position), signed_time_ns
    )


def pause_row(source: Source, said: TestsPaused) -> PauseRow:
    """One word of an operator."""
    until_ns = said.until_time_ns if said.until_time_ns else None
    return PauseRow(source, said.site, said.paused, said.time_ns, until_ns, said.reason)


def collector_started_row(source: Source, started: CollectorStarted) -> CollectorStartedRow:
    """One start of the collector."""
    return CollectorStartedRow(source, started.collector_id, started.configuration_hash, started.software_version)
