"""Tries a client of another language: three nodes in this process, the leader killed in between.

The client is run as `COMMAND HOST:PORT,HOST:PORT,HOST:PORT TOPIC COUNT`. It writes the numbers from
0 to COUNT - 1 into the topic, reads them as a member of a group, prints `read NUMBER ...` for each,
and ends with `done: COUNT numbers`.

`python examples/grpc/try_client.py node examples/grpc/node/numbers.js`
"""

import subprocess
import sys
import threading
from collections.abc import Sequence

from tidelog.client import ConfigResource, ConfigResourceType
from tidelog.testing import TestCluster

TOPIC = "numbers"
COUNT = 150
KILL_AT = 30
TIMEOUT_S = 120
SESSION_MS = "6000"
"""The broker that is killed was the client's member of the group: so long it is waited for."""


def try_client(command: Sequence[str]) -> list[str]:
    """What the client printed; raises if it has not read every number."""
    with TestCluster(brokers=3) as cluster:
        groups = ConfigResource(
            ConfigResourceType.CLUSTER, "", {"group.consumer.session.timeout.ms": SESSION_MS}
        )
        cluster.admin().alter_configs([groups])
        with subprocess.Popen(
            [*command, cluster.bootstrap, TOPIC, str(COUNT)], stdout=subprocess.PIPE, text=True
        ) as client:
            overdue = threading.Timer(TIMEOUT_S, client.kill)
            overdue.start()
            try:
                lines = watch(cluster, client)
            finally:
                overdue.cancel()
                client.kill()
    numbers = {line.split()[1] for line in lines if line.startswith("read ")}
    assert numbers == {str(number) for number in range(COUNT)}, sorted(numbers, key=int)
    assert lines[-1] == f"done: {COUNT} numbers", lines[-1]
    return lines


def watch(cluster: TestCluster, client: "subprocess.Popen[str]") -> list[str]:
    """Its lines; the leader of the topic is killed once so many numbers were read."""
    assert client.stdout is not None, "it has a pipe"
    lines: list[str] = []
    for line in client.stdout:
        lines.append(line.rstrip())
        if len(lines) == KILL_AT:
            leader = cluster.leader_of(TOPIC)
            cluster.kill(leader)
            lines.append(f"node {leader}, which led the topic, was killed")
    return lines


if __name__ == "__main__":
    print("\n".join(try_client(sys.argv[1:])))
