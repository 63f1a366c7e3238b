"""Real processes over several directories: one is missing for a while, one is full for a while."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.cli.running import cli_command, cli_environment, run_cli
from tests.ports.support.mounts import can_mount, mounted
from tests.support.ports import free_port
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.v1 import admin_pb2, admin_pb2_grpc, records_pb2, records_pb2_grpc
from tidelog.wire.errors import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.live]


class Server:
    """`tidelog server` on `data`, `disk1` and `disk2`."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.address = f"127.0.0.1:{free_port()}"
        self.file = top / "node.toml"
        self.file.write_text(
            f'data_dir = "{top / "data"}"\nlog_dirs = ["{top / "disk1"}", "{top / "disk2"}"]\n'
            f'[listeners.client]\nbind = "{self.address}"\n'
            f'[listeners.cluster]\nbind = "127.0.0.1:{free_port()}"\n'
            "[housekeeping]\nfree_bytes_min = 0\nfree_bytes_margin = 0\n",
            encoding="utf-8",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        for name in ("disk1", "disk2"):
            (self.top / name).mkdir(exist_ok=True)
        done = run_cli("storage", "format", "--standalone", "--config", str(self.file))
        assert done.code == 0, done.err

    def start(self) -> None:
        with (self.top / "log").open("ab") as log:
            self._process = subprocess.Popen(
                cli_command("server", "--config", str(self.file)),
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=cli_environment(),
            )
        process, before = self._process, self.log().count("node_ready")

        def is_ready() -> bool:
            assert process.poll() is None, self.log()
            return self.log().count("node_ready") > before

        wait_until(is_ready, told=self.log)

    def log(self) -> str:
        return (self.top / "log").read_text(encoding="utf-8")

    def end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(HANG_SECONDS)

    def create(self, name: str, partitions: int) -> None:
        with grpc.insecure_channel(self.address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            new = admin_pb2.NewTopic(name=name, partition_count=partitions)
            request = admin_pb2.CreateTopicsRequest(topics=[new])
            answer = stub.CreateTopics(request, timeout=HANG_SECONDS, wait_for_ready=True)
            assert not answer.results[0].HasField("error"), answer

    def produce(self, topic: str, partition: int, value: bytes) -> int:
        """The error's code; 0: it was stored."""
        with grpc.insecure_channel(self.address) as channel:
            stub = records_pb2_grpc.RecordsServiceStub(channel)
            request = records_pb2.ProduceRecordsRequest(
                topic=topic, partition=partition, records=[records_pb2.Record(value=value)]
            )
            answer = stub.ProduceRecords(request, timeout=HANG_SECONDS, wait_for_ready=True)
            return int(answer.places[0].error.code)

    def read(self, topic: str, partition: int) -> list[bytes]:
        with grpc.insecure_channel(self.address) as channel:
            stub = records_pb2_grpc.RecordsServiceStub(channel)
            request = records_pb2.FetchRecordsRequest(topic=topic, partition=partition)
            answer = stub.FetchRecords(request, timeout=HANG_SECONDS, wait_for_ready=True)
            return [record.value for record in answer.records]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Killed at the end."""
    made = Server(tmp_path)
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)


def test_a_directory_that_is_missing_at_one_start_is_whole_at_the_next(server: Server) -> None:
    server.format()
    server.start()
    server.create("t", 3)
    for partition in range(3):
        assert server.produce("t", partition, b"first-%d" % partition) == 0
    server.end(signal.SIGKILL)
    (server.top / "disk1").rename(server.top / "away")
    server.start()
    codes = [server.produce("t", partition, b"second") for partition in range(3)]
    assert codes[0] == codes[2] == 0
    assert codes[1] in (ErrorCode.STORAGE_FAILED.value, ErrorCode.NOT_LEADER.value)
    assert not (server.top / "disk1").exists()
    assert "storage_stopped" in server.log()
    server.end(signal.SIGTERM)
    (server.top / "away").rename(server.top / "disk1")
    server.start()
    assert server.read("t", 1) == [b"first-1"]
    assert server.read("t", 0) == [b"first-0", b"second"]
    assert server.produce("t", 1, b"third") == 0
    assert "restored=2" in server.log(), "the checkpoints of the two that were there"


@pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")
def test_a_full_disk_refuses_its_own_partitions_only_and_goes_on_when_there_is_room(
    server: Server,
) -> None:
    with mounted(server.top / "disk1", "size=2m"):
        try:
            check_full_disk(server)
        finally:
            server.end(signal.SIGKILL)


def check_full_disk(server: Server) -> None:
    server.format()
    server.start()
    server.create("t", 3)
    filler = server.top / "disk1" / "filler"
    assert server.produce("t", 1, b"kept") == 0
    fill(filler)
    value = b"y" * 100_000
    wait_until(lambda: server.produce("t", 1, value) == ErrorCode.STORAGE_FULL.value)
    for partition in (0, 2):
        assert server.produce("t", partition, value) == 0
    filler.unlink()
    wait_until(lambda: server.produce("t", 1, b"again") == 0)
    assert server.read("t", 1)[0] == b"kept"
    assert server.read("t", 1)[-1] == b"again"
    server.end(signal.SIGKILL)
    server.start()
    assert server.read("t", 1)[-1] == b"again"


def fill(path: Path) -> None:
    """Until not one page is left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
