"""Where two logs agree: the check of the previous entry, conflicts, and what a follower commits.

Figure 2, AppendEntries 2 to 5, and nothing else. Must never truncate a committed entry.
"""

from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.node import Node
from tidelog.wire.ids import LogIndex


def matches(node: Node, request: AppendRequest) -> bool:
    """Whether this member has the entry that the request's follow. What is committed equals every
    leader's, so that nothing before the log's start needs to be looked at.
    """
    if request.previous_index < node.log.base_index:
        return True
    return node.log.term_at(request.previous_index) == request.previous_term


def take_commit(node: Node, request: AppendRequest, agreed: LogIndex) -> None:
    """At most what is known to be the leader's as well (Figure 2, AppendEntries 5)."""
    commit_index = LogIndex(min(request.commit_index, agreed))
    if commit_index > node.commit_index:
        node.commit_to(commit_index)


def store(node: Node, request: AppendRequest) -> bool:
    """Append what is new; False: the request contradicts what is committed."""
    entries = request.entries
    if not entries:
        return True
    first_new = len(entries)
    for place, entry in enumerate(entries):
        if entry.index <= node.log.base_index:
            continue
        if node.log.term_at(entry.index) == entry.term:
            continue
        if entry.index <= node.log.last_index:
            if entry.index <= node.commit_index:
                return False
            node.truncate_from(entry.index)
            node.persistence.stage_truncate(entry.index)
        first_new = place
        break
    if first_new < len(entries):
        node.append(entries[first_new:] if first_new else entries)
    return True
