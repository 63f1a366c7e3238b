"""Small steps that the tests of the quorum's storage share."""

from typing import Final

from tidelog.metadata_quorum.raft.effects import Persist
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
)
from tidelog.metadata_quorum.storage.identity import QuorumIdentity, format_storage
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles, open_storage
from tidelog.ports import Disk
from tidelog.wire.ids import LogIndex, Term

UUID: Final = bytes(range(16))
MEMBER: Final = MemberId(NodeId(1), UUID)
MEMBERS: Final = Members((Member(id=MEMBER, address="127.0.0.1:9"),))
SEGMENT_BYTES: Final = 900
"""Three or four small blocks."""


async def format_(disk: Disk) -> QuorumIdentity:
    """As a quorum of one."""
    return await format_storage(
        disk,
        cluster_id="c",
        node_id=1,
        directory_uuid=UUID,
        bootstrap=MEMBERS,
        bootstrap_command=b"first",
    )


async def open_(disk: Disk, boot_id: str = "") -> QuorumStorageFiles:
    """With small segments."""
    return await open_storage(
        disk, node_id=1, cluster_id="c", segment_bytes_max=SEGMENT_BYTES, boot_id=boot_id
    )


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    """A command that names its place."""
    return Entry(
        index=LogIndex(index),
        term=Term(term),
        kind=EntryKind.COMMAND,
        data=data or b"%d@%d" % (index, term),
    )


def persist(
    *entries: Entry, cut: int | None = None, term: int | None = None, vote: bool = False
) -> Persist:
    """An effect."""
    state = None
    if term is not None:
        state = HardState(term=Term(term), voted_for=MEMBER if vote else None)
    return Persist(
        sequence=0,
        hard_state=state,
        truncate_from=None if cut is None else LogIndex(cut),
        entries=entries,
    )
