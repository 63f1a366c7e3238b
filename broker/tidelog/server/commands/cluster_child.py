"""One node of `tidelog dev --brokers N`, in a process of its own: ends when its parent does.

Started by `cluster_dev` with the name of its settings file. Its standard input is a pipe that the
parent holds open: end of file there means that the parent is gone, however it went.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tidelog.server.events import log as log_events
from tidelog.server.node.node import Node
from tidelog.server.ports.real import real_ports
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.loading import load
from tidelog.wire.errors import TidelogError

STDIN: Final = 0
READ_BYTES: Final = 1_024


def main(file_name: str) -> int:
    """Run the node until SIGTERM or the parent's end; the exit code."""
    log_events.set_up()
    try:
        text = Path(file_name).read_text(encoding="utf-8")
        configuration = load(file_text=text, file_name=file_name)
        asyncio.run(_serve(configuration))
    except TidelogError as error:
        log_events.error("node_failed", error=error)
        return 1
    return 0


async def _serve(configuration: NodeConfiguration) -> None:
    async with real_ports(
        Path(configuration.data_dir),
        is_controller=True,
        log_dirs=configuration.log_dirs,
        outbound_tls=configuration.listeners.outbound_tls(configuration.node_id),
    ) as ports:
        node = Node(configuration, ports)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, node.request_stop)
        # Ctrl-C at a terminal goes to every process of the group: the parent stops us in order.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        loop.add_reader(STDIN, _on_input, loop, node)
        try:
            await node.run(_tell)
        finally:
            loop.remove_reader(STDIN)


def _on_input(loop: asyncio.AbstractEventLoop, node: Node) -> None:
    if not os.read(STDIN, READ_BYTES):
        loop.remove_reader(STDIN)
        node.request_stop()


def _tell(node: Node) -> None:
    print(f"bootstrap: {node.client_address}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
