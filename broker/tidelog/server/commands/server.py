"""One node of a cluster, in the foreground, until SIGINT or SIGTERM: `tidelog server`.

Owns where settings come from and what a program may read on stdout: `bootstrap: HOST:PORT` and
`cluster: HOST:PORT` when the node serves. It must never format: a directory that was not formatted
by `tidelog storage format` is refused and not touched.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidelog.server.events import log as log_events
from tidelog.server.node.node import Node
from tidelog.server.ports.real import real_ports
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.loading import load, settings
from tidelog.server.storage.format import FILE_NAME
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    configuration_file: str = ""
    """Its name, for messages; empty: none was given."""
    configuration_text: str = ""
    flags: Mapping[str, str] = {}
    """Setting → value in text; goes before everything else."""


def run_server(options: ServerOptions, environment: Mapping[str, str]) -> int:
    """Run the node; the exit code."""
    _refuse_optimised()
    configuration = load_settings(options, environment)
    check_formatted(configuration)
    log_events.set_up()
    asyncio.run(_serve(configuration))
    return 0


def load_settings(options: ServerOptions, environment: Mapping[str, str]) -> NodeConfiguration:
    """Flags, then variables, then the file, then defaults."""
    known = {setting.path for setting in settings()}
    for name in options.flags:
        if name not in known:
            raise TidelogError(
                ErrorCode.INVALID_CONFIGURATION,
                tried=f"set {name}",
                happened="there is no such setting",
                hint=did_you_mean(name, known) or "`tidelog config show --defaults` lists them.",
            )
    return load(
        file_text=options.configuration_text,
        file_name=options.configuration_file,
        environment=environment,
        flags=options.flags,
    )


def check_formatted(configuration: NodeConfiguration) -> None:
    """Before anything is made: a mistyped data_dir must not become a directory."""
    directory = Path(configuration.data_dir)
    if (directory / FILE_NAME).is_file():
        return
    there = "it was never formatted" if directory.is_dir() else "it is not there"
    raise TidelogError(
        ErrorCode.STORAGE_NOT_FORMATTED,
        tried=f"start node {configuration.node_id} on {directory}",
        happened=f"{there}: it has no {FILE_NAME}",
        hint="Check data_dir, or format it once: `tidelog storage format --help`.",
    )


def _refuse_optimised() -> None:
    if sys.flags.optimize:
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION,
            tried="start a node",
            happened="Python runs with -O, which removes the assertions that protect the data",
            hint="Start it without -O, and unset PYTHONOPTIMIZE.",
        )


async def _serve(configuration: NodeConfiguration) -> None:
    directory = Path(configuration.data_dir)
    async with real_ports(
        directory,
        is_controller=configuration.is_controller,
        log_dirs=configuration.log_dirs,
        outbound_tls=configuration.listeners.outbound_tls(configuration.node_id),
    ) as ports:
        node = Node(configuration, ports)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, node.request_stop)
        await node.run(_tell)


def _tell(node: Node) -> None:
    print(f"bootstrap: {node.client_address}")
    print(f"cluster: {node.cluster_address}", flush=True)
