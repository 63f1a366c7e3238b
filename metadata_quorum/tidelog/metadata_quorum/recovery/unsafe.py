"""A quorum whose majority is gone for good goes on with one member: its last resort.

Owns the decision, which is pure, and the copy into an empty directory. Entries and snapshots stay;
behind them comes one entry that makes this node the only voter, with a new directory uuid, in a
term above every term that this node has seen: whoever was left of the old quorum can neither lead
nor vote in it. What the lost members had committed and this one never got is lost. It must never
change the old directory: whoever calls it keeps that as it is.

A lone voter that is damaged goes on from what is left before the damage. What came behind it was
committed, and brokers have acted on it: so its numbers jump ahead, as those of a restored export
do, which is written by whoever knows the metadata (`server.recover`).
"""

import msgspec

from tidelog.metadata.apply.snapshot import EncodedImage
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.membership import encode_members
from tidelog.metadata_quorum.raft.types import (
    NO_INDEX,
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    Snapshot,
    SnapshotId,
)
from tidelog.metadata_quorum.recovery.survey import ONLY_AN_EXPORT, Survey, look
from tidelog.metadata_quorum.storage.identity import UUID_BYTES, format_storage
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles, open_storage
from tidelog.metadata_quorum.storage.snapshot_files import SnapshotFiles
from tidelog.ports import Disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

TRIED = "make this node the only voter"
_BLOCK_BYTES = 4 * 1024 * 1024
"""Copied with one flush."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What will be written, and what may be lost by it."""

    survivor: Member
    """This node, with the new directory uuid."""
    old_id: MemberId
    was_learner: bool
    others: Members
    """Who will be no member any more."""
    last_index: LogIndex
    last_term: Term
    new_term: Term
    lost_here: str
    """Entries that even this member had and lost, in words; empty: none."""
    is_alone: bool = False
    """It was the only voter, and is damaged: what is left goes on as after a restore."""

    @property
    def hard_state(self) -> HardState:
        """As if it had voted for itself in the new term."""
        return HardState(term=self.new_term, voted_for=self.survivor.id)

    @property
    def entry(self) -> Entry:
        """The entry that makes it the only voter."""
        return Entry(
            index=LogIndex(self.last_index + 1),
            term=self.new_term,
            kind=EntryKind.MEMBERS,
            data=encode_members(Members((self.survivor,))),
        )


def decide_recovery(found: Survey, new_uuid: bytes, address: str = "") -> Recovery:
    """Refused where there is nothing to save or nothing to recover from."""
    assert len(new_uuid) == UUID_BYTES, "a directory uuid has 16 bytes"
    old_id = found.identity.member_id
    own = found.members.find(old_id)
    if own is None and not found.members.members:
        raise _refused(
            "this node never got anything of the quorum's log",
            "Choose the node with the highest last index: `tidelog storage info DIR`.",
        )
    if own is None:
        raise _refused(
            "this node is no member of the quorum, according to its own log",
            "Choose a node that was a member to the end: `tidelog storage info DIR`.",
        )
    if found.is_alone and not found.has_lost:
        raise _refused(
            "it is the only voter already",
            "Nothing was changed. Start the node: it leads as soon as it runs.",
        )
    if found.is_alone and found.is_empty:
        raise nothing_left()
    if found.is_endless and not found.is_alone:
        raise _refused(
            found.damage[-1],
            "Nothing was changed. Choose another voter: `tidelog storage info DIR`.",
        )
    repair = found.hard_state.repair
    terms = [found.hard_state.term, found.last_term, repair.last_term if repair else 0]
    if max(terms) >= NUMBER_MAX:
        raise _refused(
            f"its term is {max(terms)}, and there is none after {NUMBER_MAX}",
            'Nothing was changed. See "The terms are spent" in docs/operations.md.',
        )
    recovery = Recovery(
        survivor=Member(id=MemberId(old_id.node_id, new_uuid), address=address or own.address),
        old_id=old_id,
        was_learner=own.is_learner,
        others=Members(tuple(member for member in found.members if member.id != old_id)),
        last_index=found.last_index,
        last_term=found.last_term,
        new_term=Term(max(terms) + 1),
        lost_here=_lost_here(found),
        is_alone=found.is_alone,
    )
    assert recovery.new_term > found.hard_state.term, "nobody may have voted in the new term"
    return recovery


def nothing_left() -> TidelogError:
    """Of a lone voter."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=TRIED,
        happened=ONLY_AN_EXPORT,
        hint="Nothing was changed.",
    )


def _lost_here(found: Survey) -> str:
    repair = found.hard_state.repair
    if repair is None:
        return f"{found.last_index + 1} and later" if found.is_endless else ""
    later = " and later" if found.is_endless else ""
    return f"{repair.from_index} to {repair.last_index}{later}"


async def copy_recovered(old: QuorumStorageFiles, recovery: Recovery, new_disk: Disk) -> None:
    """Fill an empty directory with what `old` holds and the deciding entry; durable at return."""
    await format_storage(
        new_disk,
        cluster_id=old.cluster_id,
        node_id=recovery.survivor.id.node_id,
        directory_uuid=recovery.survivor.id.directory_uuid,
        bootstrap=old.identity.bootstrap,
        bootstrap_command=old.bootstrap_command,
    )
    new = await open_storage(new_disk)
    state = old.recovered
    if state.snapshot is not None:
        snapshot = await _copy_snapshot(old, new, state.snapshot)
        await new.perform([ResetLog(sequence=0, snapshot=snapshot, hard_state=recovery.hard_state)])
    last = state.snapshot.last_index if state.snapshot is not None else 0
    entries = [entry for entry in state.entries if entry.index > last]
    for block in _blocks([*entries, recovery.entry]):
        await new.perform([Persist(sequence=0, hard_state=recovery.hard_state, entries=block)])
    await new.close()


async def salvage(disk: Disk, *, boot_id: str = "") -> Image:
    """The metadata as what is left before the damage tells them; nothing is changed."""
    found, entries = await look(disk, boot_id=boot_id)
    machine = MetadataStateMachine()
    last_index = NO_INDEX
    if found.snapshot is not None:
        _, content = await SnapshotFiles(disk).load(found.snapshot.id)
        machine.restore(found.snapshot, content.state)
        last_index = found.snapshot.last_index
    machine.apply([entry for entry in entries if entry.index > last_index])
    image = machine.image()
    if not image.cluster_id:
        # Not even the first records are left: a cluster cannot go on without them.
        raise nothing_left()
    return image


async def write_salvaged(found: Survey, recovery: Recovery, image: Image, disk: Disk) -> None:
    """Fill an empty directory with the metadata alone, as if a leader had sent a snapshot of them;
    durable at return."""
    members = Members((recovery.survivor,))
    await format_storage(
        disk,
        cluster_id=found.identity.cluster_id,
        node_id=recovery.survivor.id.node_id,
        directory_uuid=recovery.survivor.id.directory_uuid,
        bootstrap=members,
        bootstrap_command=b"",
    )
    new = await open_storage(disk)
    snapshot = await new.save_snapshot(
        SnapshotId(end_index=LogIndex(image.version + 1), term=recovery.new_term),
        members,
        tuple(EncodedImage(image, None)),
    )
    await new.perform([ResetLog(sequence=0, snapshot=snapshot, hard_state=recovery.hard_state)])
    await new.close()


async def _copy_snapshot(
    old: QuorumStorageFiles, new: QuorumStorageFiles, snapshot: Snapshot
) -> Snapshot:
    state = await old.load_state(snapshot)
    return await new.save_snapshot(snapshot.id, snapshot.members, state)


def _blocks(entries: list[Entry]) -> list[tuple[Entry, ...]]:
    blocks: list[list[Entry]] = [[]]
    room_bytes = _BLOCK_BYTES
    for entry in entries:
        if blocks[-1] and len(entry.data) > room_bytes:
            blocks.append([])
            room_bytes = _BLOCK_BYTES
        blocks[-1].append(entry)
        room_bytes -= len(entry.data)
    return [tuple(block) for block in blocks]


def _refused(happened: str, hint: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried=TRIED, happened=happened, hint=hint)
