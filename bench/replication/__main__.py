"""`python -m bench.replication`: what a copy costs, a batch.

Prints batches and bytes a second and the processor time that leader and followers spend on one
batch, beside the same load on a partition with one replica; it must never fail for being slow.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.replication.node import Report, Task

SIZES = (1_000, 16_000, 256_000)


def free_addresses(count: int) -> dict[int, str]:
    """Loopback ports that were free a moment ago."""
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return {number: f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}


def run(task: Task) -> list[Report]:
    """One measurement: the leader's report, then the followers'."""
    processes = [
        _start(msgspec.structs.replace(task, broker_id=number, root=f"{task.root}/{number}"))
        for number in range(task.replicas, 0, -1)
    ]
    *followers, leader = processes
    assert leader.stdout is not None
    for _ in range(2):
        leader.stdout.readline()
        for follower in followers:
            assert follower.stdin is not None
            follower.stdin.write("now\n")
            follower.stdin.flush()
    reports = []
    for process in [leader, *followers]:
        out, _ = process.communicate(timeout=60)
        reports.append(msgspec.json.decode(out.strip().splitlines()[-1], type=Report))
    return reports


def _start(task: Task) -> "subprocess.Popen[str]":
    Path(task.root).mkdir(parents=True)
    return subprocess.Popen(
        [sys.executable, "-m", "bench.replication.node", msgspec.json.encode(task).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(name: str, size: int, reports: Sequence[Report]) -> str:
    """Throughput, and processor time a batch."""
    leader, *followers = reports
    rate = leader.batches / leader.seconds
    spent = [each.cpu_seconds / leader.batches * 1e6 for each in reports]
    follower = f"{sum(spent[1:]) / len(followers):8.0f}" if followers else "       –"
    return (
        f"{name:34}{size:>9,} B{rate:>10,.0f} batches/s{rate * size / 1e6:>8.1f} MB/s"
        f"   CPU a batch: leader {spent[0]:6.0f} µs, follower {follower} µs"
    )


def main() -> None:
    """All lines, or those asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--in-flight", type=int, default=4, help="a partition")
    parser.add_argument("--sizes", default=",".join(str(size) for size in SIZES))
    given = parser.parse_args()
    for size in (int(text) for text in given.sizes.split(",")):
        for flush in ("replicated", "sync"):
            for replicas in (1, 3):
                with tempfile.TemporaryDirectory() as root:
                    task = Task(
                        broker_id=0,
                        addresses=free_addresses(replicas),
                        replicas=replicas,
                        root=root,
                        partitions=given.partitions,
                        flush=flush,
                        batch_bytes=size,
                        in_flight=given.in_flight,
                        acks_all=True,
                        seconds=given.seconds,
                    )
                    name = f"{replicas} replicas, acks=all, {flush}"
                    print(line(name, size, run(task)), flush=True)


if __name__ == "__main__":
    main()
