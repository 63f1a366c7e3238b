"""Where the suite gets its cores and storages from: the only place that a planted bug can take.

No production path imports this.
"""

from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.types import MemberId, Options, Recovered


def make_core(member_id: MemberId, recovered: Recovered, options: Options) -> Core:
    """A core as production has it."""
    return RaftCore(member_id, recovered, options)
