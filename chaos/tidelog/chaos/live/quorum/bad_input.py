"""What operators get wrong, and a disk that is full: a typed error with a hint, and nothing lost.

Owns `bad-input`. Each mistake is made against real processes under load; each prints what the
operator reads. A full disk needs a small file system of its own: without the right to mount one it
is skipped, and said so.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.chaos.live.processes.server import (
    BOTH_ROLES,
    Ended,
    Place,
    Reach,
    ServerProcess,
    run_command,
    server_command,
)
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.full_disk import small_disk, without_room
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.members import promote, wait_learner
from tidelog.chaos.live.quorum.rounds import run_under_load, wait_writes
from tidelog.wire.errors import ErrorCode, TidelogError

VOTERS: Final = 3
STRANGER: Final = 9
END_SECONDS_MAX: Final = 30.0
CALL_MS: Final = 1_500
FIRST_CHANGE_MS: Final = 300
"""Less than a leader without followers leads on."""
AFTER_WRITES: Final = 20
USAGE: Final = "exit code 2"
"""Of a command line that cannot be right: nobody was asked."""

Attempt = Callable[[QuorumCluster, Path], str]
"""Makes the mistake; what was said, with the name of the error in it."""


def bad_input(directory: Path, *, rounds: int, seed: int) -> int:
    """All of them, `rounds` times."""
    with small_disk(directory / "small") as disk:
        data_dirs = {VOTERS: disk / "data"} if disk is not None else {}
        with QuorumCluster(
            directory, nodes=VOTERS, voters=VOTERS, roles=BOTH_ROLES, data_dirs=data_dirs
        ) as cluster:

            def faults(load: QuorumLoad) -> None:
                for _ in range(rounds):
                    for name, expected, attempt in MISTAKES:
                        _show(name, expected, attempt(cluster, directory))
                        wait_writes(cluster, load, AFTER_WRITES)
                    if disk is None:
                        print("full disk: skipped, no right to mount a small file system here")
                    else:
                        without_room(cluster, load, disk, VOTERS)

            return run_under_load(cluster, directory, seed, faults)


def _show(name: str, expected: str, said: str) -> None:
    print(f"{name}:")
    for line in said.strip().splitlines():
        print(f"  {line}")
    if expected not in said or "hint: " not in said:
        raise TidelogError(
            ErrorCode.UNKNOWN,
            tried=f"see {expected} and a hint after: {name}",
            happened=said or "nothing was said",
        )


def _unknown_node(cluster: QuorumCluster, directory: Path) -> str:
    del directory
    address = cluster.answering()[0].place.client_address
    return _of_call(
        lambda: cluster.client.ask(cluster.client.add_voter(address, STRANGER, bytes(16), CALL_MS))
    )


def _another_node(cluster: QuorumCluster, directory: Path) -> str:
    """A settings file that names a directory of another node."""
    node = cluster.follower()
    node.kill()
    place = Place(
        node_id=STRANGER,
        client_address=node.place.client_address,
        cluster_address=node.place.cluster_address,
    )
    other = ServerProcess(directory / "another", place, roles=BOTH_ROLES, data_dir=node.data_dir)
    said = _start(other)
    cluster.start(node.node_id)
    return said


def _wrong_cluster(cluster: QuorumCluster, directory: Path) -> str:
    """A node of another cluster that asks to join this one."""
    address = cluster.nodes[1].place.cluster_address
    place = Place(node_id=STRANGER, client_address="127.0.0.1:0", cluster_address="127.0.0.1:0")
    stranger = ServerProcess(
        directory / "stranger", place, reach=Reach(bootstrap_servers=(address,))
    )
    if not (stranger.data_dir / "node.json").exists():
        stranger.format("--cluster-id", "0" * 32, "--join")
    stranger.start()
    try:

        def is_refused() -> str | None:
            text = stranger.log_text()
            return None if ErrorCode.WRONG_CLUSTER.name in text else text[-300:]

        cluster.wait(is_refused, END_SECONDS_MAX, tried="refuse a node of another cluster")
    finally:
        stranger.kill()
    lines = stranger.log_text().splitlines()
    return next(line for line in lines if ErrorCode.WRONG_CLUSTER.name in line)


def _second_process(cluster: QuorumCluster, directory: Path) -> str:
    node = cluster.follower()
    place = Place(node_id=node.node_id, client_address="127.0.0.1:0", cluster_address="127.0.0.1:0")
    second = ServerProcess(directory / "second", place, roles=BOTH_ROLES, data_dir=node.data_dir)
    return _start(second)


def _malformed_address(cluster: QuorumCluster, directory: Path) -> str:
    place = Place(node_id=STRANGER, client_address="127.0.0.1", cluster_address="127.0.0.1:70000")
    node = ServerProcess(directory / "malformed", place)
    ended = run_command(["storage", "format", "--config", str(node.settings_file), "--standalone"])
    if ended.code == 0:
        return _start(node)
    return _told(ended)


def _malformed_voter(cluster: QuorumCluster, directory: Path) -> str:
    del cluster
    voters = f"{STRANGER}@no-port/{'0' * 32}"
    target = str(directory / "nowhere")
    return _told(
        run_command(
            [
                *("storage", "format", "--data-dir", target, "--node-id", str(STRANGER)),
                *("--cluster-id", "1" * 32, "--initial-voters", voters),
            ]
        )
    )


def _change_in_flight(cluster: QuorumCluster, directory: Path) -> str:
    """The followers are paused, so that the first change cannot be committed before the second."""
    del directory
    cluster.wait_settled()
    leader = cluster.leader()
    first, second = (node for node in cluster.running() if node.node_id != leader.node_id)
    for node in (first, second):
        node.pause()
    try:
        said = cluster.client.ask(_two_changes(cluster, leader, first, second))
    finally:
        for node in (first, second):
            node.resume()
    _heal_members(cluster, first, second)
    return said


def _heal_members(cluster: QuorumCluster, first: ServerProcess, second: ServerProcess) -> None:
    """The first change was on its way: it may be made or not. The second must never be."""
    first.kill()
    if second.node_id not in _members(cluster):
        raise TidelogError(
            ErrorCode.UNKNOWN,
            tried="refuse a change of the members",
            happened=f"node {second.node_id} was told so and is no member any more",
        )
    if first.node_id in _members(cluster):
        cluster.start(first.node_id)
    else:
        first.wipe()
        cluster.join(first.node_id)
        wait_learner(cluster, first.node_id)
        promote(cluster, first.node_id)
    cluster.wait_settled()


def _members(cluster: QuorumCluster) -> set[int]:
    """Once a leader has been heard of, and no change is under way."""
    found: set[int] = set()

    def is_known() -> str | None:
        try:
            seen = cluster.describe()
        except TidelogError as error:
            return error.happened
        found.clear()
        found.update(each.node_id for each in seen.members)
        return "a change is under way" if seen.is_membership_changing else None

    cluster.wait(is_known, END_SECONDS_MAX, tried="know the members")
    return found


async def _two_changes(
    cluster: QuorumCluster, leader: ServerProcess, first: ServerProcess, second: ServerProcess
) -> str:
    address, client = leader.place.client_address, cluster.client
    said = ""
    for node in (first, second):
        try:
            uuid = node.directory_uuid
            await client.remove_voter(address, node.node_id, uuid, FIRST_CHANGE_MS)
        except TidelogError as error:
            said = _text(error)
    return said


def _start(node: ServerProcess) -> str:
    """A start that has to fail."""
    command = server_command(node.settings_file)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=END_SECONDS_MAX, check=False
    )
    return _told(Ended(code=done.returncode, output=done.stdout, errors=done.stderr))


def _told(ended: Ended) -> str:
    if ended.code == 0:
        return "it was done without a word"
    return f"exit code {ended.code}\n{ended.errors}"


def _of_call(call: Callable[[], None]) -> str:
    try:
        call()
    except TidelogError as error:
        return _text(error)
    return "it was done without a word"


def _text(error: TidelogError) -> str:
    return f"error: {error.tried} [{error.code.name}]\n{error.happened}\nhint: {error.hint}"


MISTAKES: Final[tuple[tuple[str, str, Attempt], ...]] = (
    ("an unknown node is to become a voter", ErrorCode.UNKNOWN_VOTER.name, _unknown_node),
    ("a node is started on another one's directory", ErrorCode.WRONG_CLUSTER.name, _another_node),
    ("a node of another cluster wants to join", ErrorCode.WRONG_CLUSTER.name, _wrong_cluster),
    ("a second process on the same directory", ErrorCode.STORAGE_IN_USE.name, _second_process),
    (
        "a malformed address in the settings",
        ErrorCode.INVALID_CONFIGURATION.name,
        _malformed_address,
    ),
    ("a malformed address in the list of voters", USAGE, _malformed_voter),
    (
        "a change of the members while one is in flight",
        ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS.name,
        _change_in_flight,
    ),
)
