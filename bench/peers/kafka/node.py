"""One Apache Kafka node (KRaft) on loopback, in a directory of its own, ended by its pid.

Owns jars, configuration and lifecycle of the peer. It must never change Kafka's defaults beyond
what nodes on one machine need: the peer is measured as its users run it.
"""

import base64
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.processes import Child

KAFKA_VERSION: Final = "4.3.0"
HERE: Final = Path(__file__).resolve().parent
LIBRARIES: Final = HERE.parents[2] / ".tools" / "kafka" / "lib"
JVM_OPTIONS: Final = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
DOWNLOAD_SECONDS_MAX: Final = 300.0
FORMAT_SECONDS_MAX: Final = 180.0
LISTEN_SECONDS_MAX: Final = 180.0
LISTEN_POLL_SECONDS: Final = 0.01
REPLICAS_MAX: Final = 3


class PeerMissingError(RuntimeError):
    """The peer cannot run on this machine; the message is one line that says why."""


def prepare() -> None:
    """Makes sure that Java and the jars are there; fetches the jars once, through Maven."""
    if shutil.which("java") is None:
        raise PeerMissingError("Apache Kafka is left out: no `java` on PATH (17 or newer)")
    if (LIBRARIES / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        return
    if shutil.which("mvn") is None:
        raise PeerMissingError("Apache Kafka is left out: no `mvn` on PATH to fetch its jars with")
    print(f"fetching Apache Kafka {KAFKA_VERSION} through Maven (54 MB, once)", flush=True)
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    fetched = subprocess.run(
        [*command, f"-DoutputDirectory={LIBRARIES}"],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if fetched.returncode != 0:
        last = (fetched.stdout + fetched.stderr).strip().splitlines()[-1:]
        raise PeerMissingError(f"Apache Kafka is left out: Maven failed: {' '.join(last)}")


def java(*arguments: str) -> Child:
    """A JVM with Kafka's class path and the heap of Kafka's own start script."""
    class_path = f"{HERE / 'conf'}:{LIBRARIES}/*"
    return Child(["java", *JVM_OPTIONS, "-cp", class_path, *arguments])


def free_ports(wanted: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(wanted)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def cluster_id() -> str:
    """A random uuid as Kafka prints it; never with a dash in front, which reads as an option."""
    return "T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def properties(client_port: int, controller_port: int, data: Path, advertised: str = "") -> str:
    """The configuration of a single node that is broker and controller."""
    return member_properties(1, {1: client_port}, {1: controller_port}, data, advertised)


def member_properties(
    number: int,
    client_ports: Mapping[int, int],
    controller_ports: Mapping[int, int],
    data: Path,
    advertised: str = "",
) -> str:
    """The configuration of one of several nodes, all of them broker and controller; `advertised`:
    where clients are sent instead."""
    client = f"127.0.0.1:{client_ports[number]}"
    controller = f"127.0.0.1:{controller_ports[number]}"
    replicas = min(REPLICAS_MAX, len(client_ports))
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{port}" for each, port in controller_ports.items()
        ),
        "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{advertised or client}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str((replicas + 1) // 2),
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def format_storage(file: Path, identity: str) -> None:
    """Once before a node's first start."""
    tool = java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file))
    tool.wait_end(timeout_seconds=FORMAT_SECONDS_MAX)


def wait_listening(port: int) -> None:
    """Until somebody takes connections there."""
    deadline = time.monotonic() + LISTEN_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(LISTEN_POLL_SECONDS)
    raise PeerMissingError("Apache Kafka is left out: it did not listen in time")


class KafkaNode:
    """Formatted and listening when constructed; `started` is when its JVM was started."""

    def __init__(self, wanted_port: int = 0, *, advertised: str = "") -> None:
        """At any port, or where its clients look by themselves; `advertised`: through a proxy."""
        self._directory = tempfile.TemporaryDirectory(prefix="bench-kafka-")
        root = Path(self._directory.name)
        free_port, controller_port = free_ports(2)
        client_port = wanted_port or free_port
        self.bootstrap = f"127.0.0.1:{client_port}"
        file = root / "server.properties"
        file.write_text(properties(client_port, controller_port, root / "data", advertised))
        format_storage(file, cluster_id())
        self.started = time.perf_counter()
        self._child = java("kafka.Kafka", str(file))
        try:
            wait_listening(client_port)
        except BaseException:
            self.close()
            raise
        self.listening_seconds = time.perf_counter() - self.started

    @property
    def pid(self) -> int:
        return self._child.pid

    def close(self) -> None:
        self._child.stop()
        self._directory.cleanup()

    def __enter__(self) -> "KafkaNode":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
