"""Messages, effects and members as one line each: what the golden scripts show."""

from typing import assert_never

from tidelog.metadata_quorum.raft import effects as out
from tidelog.metadata_quorum.raft import messages as said
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    MemberId,
    Members,
    SnapshotId,
)


def name(member_id: MemberId | None) -> str:
    """`3`, or `3b` for the second directory of node 3."""
    if member_id is None:
        return "none"
    life = member_id.directory_uuid[-1]
    return f"{member_id.node_id}{'' if life == 0 else chr(ord('a') + life)}"


def entry(one: Entry) -> str:
    """`4@2 x`: index, term, command."""
    match one.kind:
        case EntryKind.EMPTY:
            content = "empty"
        case EntryKind.MEMBERS:
            content = "members"
        case EntryKind.COMMAND:
            content = one.data.decode()
        case _:
            assert_never(one.kind)
    return f"{one.index}@{one.term} {content}"


def entries(several: tuple[Entry, ...]) -> str:
    """At most three in full."""
    if len(several) > 3:
        first, last = several[0], several[-1]
        return f"[{entry(first)} … {entry(last)}]"
    return "[" + ", ".join(entry(one) for one in several) + "]"


def members(of: Members) -> str:
    """`1 2 3 (4)`: voters, learners in parentheses."""
    shown = [f"({name(m.id)})" if m.is_learner else name(m.id) for m in of.members]
    return " ".join(shown) or "nobody"


def snapshot(of: SnapshotId | None) -> str:
    """`end 11 term 1`."""
    return "none" if of is None else f"end {of.end_index} term {of.term}"


def hard_state(of: HardState) -> str:
    """`term=2 vote=1`."""
    text = f"term={of.term} vote={name(of.voted_for)}"
    if of.repair is not None:
        repair = of.repair
        text += f" repair={repair.from_index}..{repair.last_index}@{repair.last_term}"
    return text


def message(one: said.Message) -> str:
    """Who says what to whom."""
    way = f"{name(one.sender)}→{name(one.receiver)} term={one.term}"
    match one:
        case said.VoteRequest():
            kind = "prevote?" if one.is_pre_vote else "vote?"
            text = f"{kind} {way} last={one.last_index}@{one.last_term}"
            return text + (" transfer" if one.is_leadership_transfer else "")
        case said.VoteResponse():
            kind = "prevote" if one.is_pre_vote else "vote"
            return f"{kind} {way} {'granted' if one.is_granted else 'refused'}"
        case said.AppendRequest():
            return _append_request(one, way)
        case said.AppendResponse():
            return _append_response(one, way)
        case said.TimeoutNow():
            return f"timeout-now {way}"
        case said.ReadIndexRequest():
            return f"read? {way}"
        case said.ReadIndexResponse():
            return f"read {way} index={one.index}"
        case _:
            assert_never(one)


def _append_request(one: said.AppendRequest, way: str) -> str:
    if one.snapshot is not None:
        return f"offer {way} snapshot {snapshot(one.snapshot)}"
    previous = f"prev={one.previous_index}@{one.previous_term}"
    kind = "append" if one.entries else "heartbeat"
    listed = f" {entries(one.entries)}" if one.entries else ""
    return f"{kind} {way} {previous}{listed} commit={one.commit_index}"


def _append_response(one: said.AppendResponse, way: str) -> str:
    repair = f" repair={one.repair_from_index}" if one.repair_from_index else ""
    if one.is_success:
        return f"appended {way} match={one.match_index}{repair}"
    return f"rejected {way} hint={one.hint_index}@{one.hint_term}{repair}"


def effect(one: out.Effect) -> str:
    """What the core wants done."""
    match one:
        case out.Persist():
            parts = ["persist"]
            if one.truncate_from is not None:
                parts.append(f"cut from {one.truncate_from}")
            if one.entries:
                parts.append(entries(one.entries))
            if one.hard_state is not None:
                parts.append(hard_state(one.hard_state))
            return " ".join(parts)
        case out.ResetLog():
            return f"reset log to snapshot {snapshot(one.snapshot.id)} {hard_state(one.hard_state)}"
        case out.TrimLog():
            return f"trim before {one.first_index}"
        case out.Send():
            return f"send {message(one.message)}"
        case out.Apply():
            return f"apply {entries(one.entries)}"
        case out.FetchSnapshot():
            return f"fetch snapshot {snapshot(one.id)} from {name(one.source)}"
        case out.RoleChanged():
            return f"{one.role.value} in term {one.term}, leader {name(one.leader)}"
        case out.MembersChanged():
            state = "committed" if one.is_committed else "not committed"
            return f"members {members(one.members)}, {state}"
        case out.Answer():
            return f"answer {one.request_id}: {outcome(one)}"
        case _:
            assert_never(one)


def outcome(answer: out.Answer) -> str:
    """Of a request."""
    match answer.outcome:
        case out.Accepted() as accepted:
            return f"accepted at {accepted.index}@{accepted.term}"
        case out.ReadAt() as read:
            return f"read at {read.index}"
        case out.Done() as done:
            return f"done, members {members(done.members)}"
        case out.Refused() as refused:
            leader = "" if refused.leader is None else f", leader {name(refused.leader)}"
            return f"refused {refused.code.name}{leader}"
        case out.Uncertain():
            return "uncertain"
        case _:
            assert_never(answer.outcome)


def status(of: Description) -> str:
    """One member: role, term, places in the log, and for a leader its progress."""
    text = (
        f"{name(of.id)}: {of.role.value} term={of.term} leader={name(of.leader)} "
        f"last={of.last_index}@{of.last_term} commit={of.commit_index} applied={of.applied_index}"
    )
    if of.is_repairing:
        text += " repairing"
    for peer in of.progress:
        text += f"\n  {name(peer.id)} {peer.state} match={peer.match_index} next={peer.next_index}"
    return text
