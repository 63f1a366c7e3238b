"""What an operator does to the members of a running quorum, waited for and timed.

Owns the order of the steps. A refusal that says "not yet" is asked again until its deadline; every
other one ends the run.
"""

import time
from typing import Final

from tidelog.chaos.live.processes.server import run_command
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.wire.errors import ErrorCode, TidelogError

CHANGE_SECONDS_MAX: Final = 60.0
CHANGE_MS: Final = 10_000
_NOT_YET: Final = (ErrorCode.VOTER_NOT_CAUGHT_UP, ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS)


def wait_learner(cluster: QuorumCluster, number: int) -> float:
    """Until the node is a learner with the directory that it has now; seconds."""
    uuid = cluster.nodes[number].directory_uuid

    def is_learner() -> str | None:
        members = cluster.describe().members
        if any(each.directory_uuid == uuid for each in members):
            return None
        return f"the members are {[each.node_id for each in members]}"

    return cluster.wait(is_learner, CHANGE_SECONDS_MAX, tried=f"let node {number} join")


def promote(cluster: QuorumCluster, number: int) -> float:
    """Ask until the learner has caught up and votes; seconds."""
    uuid = cluster.nodes[number].directory_uuid

    def has_promoted() -> str | None:
        address = cluster.answering()[0].place.client_address
        try:
            cluster.client.ask(cluster.client.add_voter(address, number, uuid, CHANGE_MS))
        except TidelogError as error:
            if error.code not in _NOT_YET:
                raise
            return f"{error.code.name}: {error.happened}"
        return None

    return cluster.wait(has_promoted, CHANGE_SECONDS_MAX, tried=f"make node {number} a voter")


def remove(cluster: QuorumCluster, number: int) -> float:
    """Take a voter out, then kill its process; seconds until the answer."""
    uuid = cluster.nodes[number].directory_uuid
    others = [node for node in cluster.answering() if node.node_id != number]
    began = time.monotonic()
    address = others[0].place.client_address
    cluster.client.ask(cluster.client.remove_voter(address, number, uuid, CHANGE_MS))
    took = time.monotonic() - began
    cluster.nodes[number].kill()
    return took


def by_command(cluster: QuorumCluster, verb: str, number: int, uuid: bytes) -> None:
    """`tidelog quorum add-voter | remove-voter`, asked again while it says "not yet"."""

    def is_done() -> str | None:
        address = cluster.answering()[0].place.client_address
        command = ["quorum", verb, str(number), "--directory-uuid", uuid.hex(), "-b", address]
        ended = run_command(command)
        if ended.code == 0:
            return None
        if any(code.name in ended.errors for code in _NOT_YET):
            return ended.errors
        raise TidelogError(
            ErrorCode.UNKNOWN, tried=f"tidelog {' '.join(command)}", happened=ended.errors
        )

    cluster.wait(is_done, CHANGE_SECONDS_MAX, tried=f"quorum {verb} {number}")
