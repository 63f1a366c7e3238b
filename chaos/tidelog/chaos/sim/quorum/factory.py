"""Where the suite gets its cores and storages from: a planted bug may take its place.

No production path imports this.
"""

from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.types import MemberId, Options, Recovered
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.metadata_quorum.storage.quorum_storage import open_storage as open_files
from tidelog.ports import Disk


def make_core(member_id: MemberId, recovered: Recovered, options: Options) -> Core:
    """A core as production has it."""
    return RaftCore(member_id, recovered, options)


async def open_storage(
    disk: Disk, node_id: int, cluster_id: str, boot_id: str, segment_bytes: int
) -> QuorumStorageFiles:
    """A storage as production has it, of small segments."""
    return await open_files(
        disk,
        node_id=node_id,
        cluster_id=cluster_id,
        segment_bytes_max=segment_bytes,
        boot_id=boot_id,
    )
