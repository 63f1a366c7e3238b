"""`python -m tidelog.chaos.live.quorum_node FILE`: one node of a cluster, by its settings file.

Owns nothing but the way from a file to `Node`. It must never format a directory. The line
`serving: HOST:PORT` on stdout comes when the node is up.
"""

import asyncio
import signal
import sys
from pathlib import Path

from tidelog.server import log_events
from tidelog.server.configuration import NodeConfiguration
from tidelog.server.configuration_loading import load
from tidelog.server.node import Node
from tidelog.server.ports_real import real_ports
from tidelog.wire.errors import TidelogError


async def _serve(configuration: NodeConfiguration) -> None:
    directory = Path(configuration.data_dir)
    async with real_ports(directory, is_controller=configuration.is_controller) as ports:
        node = Node(configuration, ports)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, node.request_stop)
        await node.run(lambda ready: print(f"serving: {ready.client_address}", flush=True))


def main(arguments: list[str]) -> int:
    """Until SIGTERM; exit code 2 with the error in words if it cannot go on."""
    file = Path(arguments[0])
    log_events.set_up()
    try:
        configuration = load(
            file_text=file.read_text(encoding="utf-8"), file_name=str(file), environment={}
        )
        asyncio.run(_serve(configuration))
    except TidelogError as error:
        print(
            f"error: {error.tried} [{error.code.name}]: {error.happened}\nhint: {error.hint}",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
