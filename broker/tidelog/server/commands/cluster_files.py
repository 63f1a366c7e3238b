"""The directory of `tidelog dev --brokers N`: made and formatted once, taken up again later.

Owns `cluster.json`, which says how many nodes there are and where they listen, and one directory
and one settings file a node. It must never format a node a second time.
"""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from tidelog.ports import Random
from tidelog.ports.real.disk.disk import open_disk
from tidelog.server.settings.configuration import DEV_DEFAULTS
from tidelog.server.storage.format import QUORUM_DIRECTORY
from tidelog.server.storage.formatting import FormatOptions, InitialVoter, format_disks
from tidelog.wire.errors import ErrorCode, TidelogError

FILE_NAME: Final = "cluster.json"
FORMAT_VERSION: Final = 1
HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9192
PORT_STEP: Final = 100
"""Between one node's ports and the next one's."""


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node_id: int
    client_address: str
    cluster_address: str
    directory_uuid: str
    """Of its quorum directory, in hexadecimal."""


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the directory holds."""

    format_version: int = FORMAT_VERSION
    cluster_id: str
    nodes: tuple[ClusterNode, ...]


async def open_or_make(
    directory: Path, random: Random, *, count: int, port: int | None, partitions: int | None
) -> ClusterFile:
    """The cluster in this directory; a new one if there is none."""
    path = directory / FILE_NAME
    if path.exists():
        found = _read(path)
        if len(found.nodes) != count:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"start {count} brokers on {directory}",
                happened=f"it holds a cluster of {len(found.nodes)}",
                hint=f"Say --brokers {len(found.nodes)}, or name another directory.",
            )
    else:
        _prepare(directory)
        found = await _plan(random, count, port)
        for node in found.nodes:
            await _format(directory, random, found, node)
        # Last: whoever finds this file finds every node formatted.
        path.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    for node in found.nodes:
        _write_settings(directory, node, partitions)
    return found


def settings_file(directory: Path, node: ClusterNode) -> Path:
    """Of one node."""
    return directory / f"node-{node.node_id}.toml"


def log_file(directory: Path, node: ClusterNode) -> Path:
    """Of one node."""
    return directory / f"node-{node.node_id}.log"


def _node_directory(directory: Path, node: ClusterNode) -> Path:
    return directory / f"node-{node.node_id}"


def _read(path: Path) -> ClusterFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=f"read {path}", happened=str(error)
        ) from None


def _prepare(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    others = sorted(each.name for each in directory.iterdir() if not each.name.startswith("."))
    ours = [each for each in others if each.startswith("node-")]
    if len(ours) < len(others):
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=f"make a cluster in {directory}",
            happened=f"it has no {FILE_NAME}, but holds `{next(iter(set(others) - set(ours)))}`",
            hint="Nothing was changed. Name an empty directory.",
        )
    if ours:
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=f"make a cluster in {directory}",
            happened="an earlier start was interrupted before the cluster was whole",
            hint="It holds no data yet: remove the directory, or name another one.",
        )


async def _plan(random: Random, count: int, port: int | None) -> ClusterFile:
    taken: list[asyncio.Server] = []
    try:
        nodes = []
        for place in range(count):
            wanted = (DEFAULT_PORT if port is None else port) + PORT_STEP * place
            is_any = port == 0
            nodes.append(
                ClusterNode(
                    node_id=place + 1,
                    client_address=await _address(
                        0 if is_any else wanted, taken, may_pick=port is None
                    ),
                    cluster_address=await _address(
                        0 if is_any else wanted + 1, taken, may_pick=port is None
                    ),
                    directory_uuid=random.uuid().hex(),
                )
            )
    finally:
        for server in taken:
            server.close()
            await server.wait_closed()
    return ClusterFile(cluster_id=random.uuid().hex(), nodes=tuple(nodes))


async def _address(port: int, taken: list[asyncio.Server], *, may_pick: bool) -> str:
    """A free port, held until all are found, so that no two are the same."""
    try:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, port)
    except (OSError, OverflowError) as error:
        if may_pick:
            return await _address(0, taken, may_pick=False)
        raise TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"find ports for the nodes from {port} on",
            happened=str(error),
            hint="Leave --port out and free ones are picked.",
        ) from None
    taken.append(server)
    return f"{HOST}:{server.sockets[0].getsockname()[1]}"


async def _format(directory: Path, random: Random, cluster: ClusterFile, node: ClusterNode) -> None:
    """With the whole list of first voters, the same on every node."""
    data_dir = _node_directory(directory, node)
    options = FormatOptions(
        data_dir=str(data_dir),
        node_id=node.node_id,
        cluster_id=cluster.cluster_id,
        broker_count=len(cluster.nodes),
        voters=tuple(
            InitialVoter(
                node_id=each.node_id,
                address=each.cluster_address,
                directory_uuid=bytes.fromhex(each.directory_uuid),
            )
            for each in cluster.nodes
        ),
    )
    disk = await open_disk(data_dir)
    quorum_disk = await open_disk(data_dir / QUORUM_DIRECTORY)
    try:
        await format_disks(disk, quorum_disk, random, options)
    finally:
        await quorum_disk.shutdown()
        await disk.shutdown()


def _write_settings(directory: Path, node: ClusterNode, partitions: int | None) -> None:
    lines = [
        f"node_id = {node.node_id}",
        f"data_dir = {msgspec.json.encode(str(_node_directory(directory, node))).decode()}",
        *(f"{name} = {str(value).lower()}" for name, value in DEV_DEFAULTS.items()),
        *([] if partitions is None else [f"default_partitions = {partitions}"]),
        "[listeners.client]",
        f'bind = "{node.client_address}"',
        "[listeners.cluster]",
        f'bind = "{node.cluster_address}"',
    ]
    settings_file(directory, node).write_text("\n".join([*lines, ""]), encoding="utf-8")
