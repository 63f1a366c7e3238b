"""One node in the foreground, for a person at a terminal: `tidelog dev`.

Says where it listens, where its data lives and whether that survives, and what to type next. The
line `bootstrap: HOST:PORT` on stdout is for programs: it comes when the node serves.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidelog.server.events import log as log_events
from tidelog.server.node.node import Node
from tidelog.server.ports.node import NodePorts
from tidelog.server.ports.real import real_ports
from tidelog.server.settings.configuration import DEV_DEFAULTS, NodeConfiguration
from tidelog.server.settings.loading import load
from tidelog.server.storage.format import is_formatted
from tidelog.server.storage.formatting import FormatOptions, format_disks
from tidelog.wire.errors import ErrorCode, TidelogError

DEFAULT_PORT: Final = 9192


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; None: not said."""

    port: int | None = None
    data_dir: str | None = None
    partitions: int | None = None
    configuration_file: str | None = None


def run_dev(options: DevOptions, environment: Mapping[str, str]) -> int:
    """Run a node until SIGINT or SIGTERM; the exit code."""
    _refuse_optimised()
    configuration = _configuration(options, environment)
    log_events.set_up()
    is_temporary = options.data_dir is None and "TIDELOG_DATA_DIR" not in environment
    data_dir = Path(tempfile.mkdtemp(prefix="tidelog-")) if is_temporary else None
    directory = data_dir or Path(configuration.data_dir)
    try:
        asyncio.run(_serve(configuration, directory, options, is_temporary=is_temporary))
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_IN_USE:
            raise _already_running(directory, error) from None
        raise
    finally:
        if data_dir is not None:
            shutil.rmtree(data_dir, ignore_errors=True)
    return 0


def _refuse_optimised() -> None:
    if sys.flags.optimize:
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION,
            tried="start a node",
            happened="Python runs with -O, which removes the assertions that protect the data",
            hint="Start it without -O, and unset PYTHONOPTIMIZE.",
        )


def _configuration(options: DevOptions, environment: Mapping[str, str]) -> NodeConfiguration:
    flags = {}
    if options.port is not None:
        flags["listeners.client.bind"] = f"127.0.0.1:{options.port}"
    if options.data_dir is not None:
        flags["data_dir"] = options.data_dir
    if options.partitions is not None:
        flags["default_partitions"] = str(options.partitions)
    text = ""
    if options.configuration_file is not None:
        text = _read_file(options.configuration_file)
    loaded = load(
        file_text=text,
        file_name=options.configuration_file or "",
        environment=environment,
        flags=flags,
        # Nobody else has to find the cluster listener: any free port will do.
        defaults={**DEV_DEFAULTS, "listeners.cluster.bind": "127.0.0.1:0"},
    )
    return _alone(loaded)


def _alone(configuration: NodeConfiguration) -> NodeConfiguration:
    """Both roles: there is nobody else."""
    if not (configuration.is_broker and configuration.is_controller):
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION,
            tried="start a node with `tidelog dev`",
            happened=f"roles is {', '.join(configuration.roles)}, and dev is both",
            hint="Leave `roles` out, or use `tidelog server`.",
        )
    # A machine that is off at night is no reason to ask somebody who tries things out.
    return msgspec.structs.replace(configuration, trust_own_clock=True)


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION, tried=f"read {name}", happened=str(error)
        ) from None


def _already_running(directory: Path, error: TidelogError) -> TidelogError:
    return TidelogError(
        ErrorCode.STORAGE_IN_USE,
        tried=f"start a node on {directory}",
        happened=error.happened,
        hint="Use that node, stop it, or name another directory with --data-dir.",
    )


async def _serve(
    configuration: NodeConfiguration, directory: Path, options: DevOptions, *, is_temporary: bool
) -> None:
    async with real_ports(
        directory,
        is_controller=True,
        log_dirs=configuration.log_dirs,
        outbound_tls=configuration.listeners.outbound_tls(configuration.node_id),
    ) as ports:
        await _format_if_empty(ports, configuration, directory)
        node = Node(configuration, ports, may_pick_port=options.port is None)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, node.request_stop)
        await node.run(
            lambda ready: _greet(ready, configuration, directory, is_temporary=is_temporary)
        )


async def _format_if_empty(
    ports: NodePorts, configuration: NodeConfiguration, directory: Path
) -> None:
    """Only here is a directory formatted without being asked: a quorum of this one node."""
    if await is_formatted(ports.disk):
        return
    options = FormatOptions(
        data_dir=str(directory),
        node_id=configuration.node_id,
        standalone_address=configuration.listeners.cluster.bind,
        default_replication_factor=configuration.default_replication_factor,
    )
    await format_disks(ports.disk, ports.quorum_disk, ports.random, options)


def _greet(
    node: Node, configuration: NodeConfiguration, directory: Path, *, is_temporary: bool
) -> None:
    """Everything a newcomer needs, and one line that a program can read."""
    address = node.client_address
    wanted = configuration.listeners.client.bind
    wanted_port = wanted.rpartition(":")[2]
    if wanted_port not in ("0", address.rpartition(":")[2]):
        print(f"port {wanted_port} is taken: listening on another one")
    print(f"bootstrap: {address}")
    if is_temporary:
        print(
            f"data: {directory} (temporary: deleted when the node stops; --data-dir DIR keeps it)"
        )
    else:
        print(f"data: {directory.resolve()} (kept when the node stops)")
    option = "" if address == f"127.0.0.1:{DEFAULT_PORT}" else f" -b {address}"
    print("next, in another terminal:")
    print(f"  tidelog topic create{option} hello -p 3")
    print(f"  echo 'hello, log' | tidelog produce{option} hello")
    print(f"  tidelog consume{option} hello -o beginning -e")
    print("stop with Ctrl-C", flush=True)
