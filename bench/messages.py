"""The largest messages that each method takes: how long they hold up a node, and what it holds.

`python -m bench.messages` starts a node for each method, hands it every message that is full up to
a bound of the contract, and prints the method's worst: the loop's longest turn and how far the
memory rose. Owns the values that make messages plausible; their shapes are `chaos.fuzz.messages`'.
It must never choose the methods: they come from the descriptors.
"""

import argparse
import importlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
from google.protobuf.descriptor import MethodDescriptor

from bench.messages_node import TURN
from bench.processes import Child
from bench.table import Table, count
from tidelog.chaos.fuzz.messages import Known, Shaped, largest
from tidelog.chaos.live.processes.ports import free_ports
from tidelog.metadata_quorum.admin.access import method_name, read_access
from tidelog.ports import MESSAGE_BYTES_MAX
from tidelog.ports.bounds import read_bounds
from tidelog.ports.request_context import CLIENT_LISTENER
from tidelog.v1 import admin_pb2, admin_pb2_grpc

CONTRACT: Final = Path("proto/tidelog/v1")
CALL_SECONDS: Final = 60.0
STREAM_SECONDS: Final = 3.0
PARTITIONS: Final = 1_000
TOPIC: Final = "filled"
MIB: Final = 1024 * 1024
TURN_AIM_MS: Final = 100.0
NOT_SERVED: Final = "not served"
OPTIONS: Final = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one message did."""

    shaped: str
    message_bytes: int
    answer: str
    turn_ms: float
    rose_bytes: int

    @property
    def room_bytes(self) -> int:
        """What it may take."""
        return 20 * self.message_bytes + 4 * MIB


class MeasuredNode:
    """A node of both roles, with one topic."""

    def __init__(self, directory: str) -> None:
        port, cluster_port = free_ports(2)
        settings = Path(directory) / "node.toml"
        settings.write_text(f'[listeners.cluster]\nbind = "127.0.0.1:{cluster_port}"\n')
        self.child = Child(
            (
                *(sys.executable, "-m", "bench.messages_node", "dev", "--port", str(port)),
                *("--config", str(settings), "--data-dir", f"{directory}/data"),
            )
        )
        self.child.wait_line("bootstrap:")
        self.channels = {
            True: grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS),
            False: grpc.insecure_channel(f"127.0.0.1:{cluster_port}", options=OPTIONS),
        }
        admin = admin_pb2_grpc.AdminServiceStub(self.channels[True])
        new = admin_pb2.NewTopic(name=TOPIC, partition_count=PARTITIONS)
        made = admin.CreateTopics(
            admin_pb2.CreateTopicsRequest(topics=[new]), timeout=CALL_SECONDS, wait_for_ready=True
        )
        self.topic_id: bytes = made.results[0].topic_id
        described = admin.DescribeCluster(admin_pb2.DescribeClusterRequest(), timeout=CALL_SECONDS)
        self.cluster_id: str = described.cluster_id

    def stop(self) -> None:
        """End it."""
        for channel in self.channels.values():
            channel.close()
        self.child.stop()

    def turn_ms(self) -> float:
        """The longest since the last question."""
        self.child.send(signal.SIGUSR1)
        line = self.child.wait_line(TURN)
        return int(line.removeprefix(TURN)) / 1e6

    def memory(self, name: str) -> int:
        """`VmRSS`, or `VmHWM`: the highest since `forget`."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None, f"the system tells no {name}"
        return int(found[1]) * 1024

    def forget(self) -> None:
        """The highest memory so far is now's."""
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")

    def send(self, method: MethodDescriptor, data: bytes) -> str:
        """What became of the message: a code."""
        # The published types of its calls fit no bytes.
        channel: Any = self.channels[read_access(method).listener == CLIENT_LISTENER]
        name = method_name(method)
        try:
            if not method.client_streaming and not method.server_streaming:
                channel.unary_unary(name)(data, timeout=CALL_SECONDS)
            elif not method.client_streaming:
                list(channel.unary_stream(name)(data, timeout=STREAM_SECONDS))
            else:
                _talk(channel, name, data)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


def _talk(channel: Any, name: str, data: bytes) -> None:
    """One message over a stream, and whatever comes back."""
    list(channel.stream_stream(name)(_once(data), timeout=STREAM_SECONDS))


def _once(data: bytes) -> Iterator[bytes]:
    yield data
    time.sleep(STREAM_SECONDS / 2)


def all_methods() -> Iterator[MethodDescriptor]:
    """Of every service of the contract."""
    for source in sorted(CONTRACT.glob("*.proto")):
        file = importlib.import_module(f"tidelog.v1.{source.stem}_pb2").DESCRIPTOR
        for service in file.services_by_name.values():
            yield from service.methods


def known_of(node: MeasuredNode) -> list[Known]:
    """Names that nobody knows, and places that are there."""
    strange: Known = {
        "name": lambda number: f"topic-{number}",
        "topic": lambda number: f"topic-{number}",
        "topics": lambda number: f"topic-{number}",
        "topic_names": lambda number: f"topic-{number}",
        "topic_id": lambda number: number.to_bytes(16, "big"),
        "topic_ids": lambda number: number.to_bytes(16, "big"),
        "partition": lambda number: number,
        "groups": lambda number: f"group-{number}",
        "keys": lambda number: f"group-{number}",
        "cluster_id": lambda number: node.cluster_id,
        "broker_id": lambda number: 1,
    }
    there: Known = {
        **strange,
        "name": lambda number: TOPIC,
        "topic": lambda number: TOPIC,
        "group": lambda number: "group",
        "topic_id": lambda number: node.topic_id,
        "partition": lambda number: number % PARTITIONS,
        "value": lambda number: b"value",
    }
    return [strange, there]


def messages(method: MethodDescriptor, node: MeasuredNode) -> Iterator[Shaped]:
    """Each shape, with both kinds of values; those without values once."""
    seen: set[bytes] = set()
    for known in known_of(node):
        for shaped in largest(method, known):
            if shaped.data not in seen:
                seen.add(shaped.data)
                yield shaped


def measure(method: MethodDescriptor) -> list[Measured]:
    """Of a node of its own."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-messages-"))
        node = MeasuredNode(directory)
        stack.callback(node.stop)
        node.send(method, b"")
        return [_measured(node, method, shaped) for shaped in messages(method, node)]


def _measured(node: MeasuredNode, method: MethodDescriptor, shaped: Shaped) -> Measured:
    before = node.memory("VmRSS")
    node.forget()
    node.turn_ms()
    answer = node.send(method, shaped.data)
    return Measured(
        shaped=shaped.name,
        message_bytes=len(shaped.data),
        answer=answer,
        turn_ms=node.turn_ms(),
        rose_bytes=max(0, node.memory("VmHWM") - before),
    )


def run(pattern: str) -> None:
    """Every method of whose name the pattern is found."""
    table = Table(
        "The largest messages of each method; the longest turn and the most memory of any of them",
        (
            *("method", "elements", "numbers", "bytes max", "turn ms", "of", "rose MiB", "of B"),
            *("times room", "answers"),
        ),
    )
    for method in all_methods():
        name = method_name(method).removeprefix("/tidelog.v1.")
        if not re.search(pattern, name):
            continue
        bounds = read_bounds(method).bounds
        measured = measure(method)
        if all(each.answer == "UNIMPLEMENTED" for each in measured):
            table.add(name, *_bounds_cells(bounds), *("-", NOT_SERVED, "-", "-", "-", "-"))
            continue
        slow = max(measured, key=lambda each: each.turn_ms)
        wide = max(measured, key=lambda each: each.rose_bytes / each.room_bytes)
        table.add(
            *(name, *_bounds_cells(bounds)),
            *(f"{slow.turn_ms:.0f}", slow.shaped),
            *(f"{wide.rose_bytes / MIB:.1f}", count(wide.message_bytes)),
            f"{wide.rose_bytes / wide.room_bytes:.2f}",
            " ".join(sorted({each.answer for each in measured})),
        )
        print(" | ".join(table.rows[-1]), flush=True)
    table.show()
    slow_count = sum(row[4] not in ("", "-") and float(row[4]) > TURN_AIM_MS for row in table.rows)
    print(
        f"{slow_count} of {len(table.rows)} methods take a turn of more than {TURN_AIM_MS:.0f} ms"
    )


def _bounds_cells(bounds: object) -> tuple[str, str, str]:
    return tuple(  # type: ignore[return-value]
        count(getattr(bounds, name)) for name in ("elements_max", "numbers_max", "bytes_max")
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="", help="a regular expression of their names")
    run(parser.parse_args().methods)
