"""Three real processes: they serve, one that dies comes back, a stop leaves none behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.server.commands.cluster_dev import ClusterDevOptions, run_cluster_dev
from tidelog.v1 import admin_pb2, admin_pb2_grpc, quorum_admin_pb2, quorum_admin_pb2_grpc
from tidelog.wire.errors import ErrorCode, TidelogError

ARGUMENTS = ("dev", "--brokers", "3", "--port", "0")


class Cluster:
    """The parent's process and what it said."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *ARGUMENTS, "--data-dir", str(data_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addresses: list[str] = []
        self.pids: dict[int, int] = {}
        while (line := self.line()) != "stop with Ctrl-C":
            if line.startswith("bootstrap: "):
                self.addresses = line.removeprefix("bootstrap: ").split(",")
            elif line.startswith("node "):
                pid = line.split("process ")[1].split(",")[0]
                self.pids[int(line.split()[1].rstrip(":"))] = int(pid)

    def line(self) -> str:
        """The next one on stdout."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return line.strip()

    def stop(self) -> int:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(HANG_SECONDS)

    def are_gone(self) -> bool:
        """Whether no node is left."""
        return not any(Path(f"/proc/{pid}").exists() for pid in self.pids.values())


@contextmanager
def cluster(data_dir: Path) -> Iterator[Cluster]:
    found = Cluster(data_dir)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.stop()
        found.process.communicate(timeout=HANG_SECONDS)


def create(address: str, name: str, replication_factor: int = 0) -> admin_pb2.CreateTopicResult:
    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        topic = admin_pb2.NewTopic(
            name=name, partition_count=3, replication_factor=replication_factor
        )
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        return stub.CreateTopics(request, timeout=HANG_SECONDS, wait_for_ready=True).results[0]


def ensure(address: str, name: str) -> None:
    """Create it; whether it took effect may be unknown, as the leader died meanwhile."""
    try:
        result = create(address, name)
    except grpc.RpcError as error:
        if "INDETERMINATE" not in str(error):
            raise
        result = create(address, name)
    if result.HasField("error"):
        assert result.error.code == ErrorCode.TOPIC_ALREADY_EXISTS.value


def leader(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        stub = quorum_admin_pb2_grpc.QuorumAdminServiceStub(channel)
        request = quorum_admin_pb2.DescribeQuorumRequest()
        return stub.DescribeQuorum(request, timeout=HANG_SECONDS, wait_for_ready=True).leader_id


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_three_nodes_serve_and_outlive_a_death_and_leave_nothing_behind(tmp_path: Path) -> None:
    with cluster(tmp_path / "data") as first:
        made = create(first.addresses[0], "one")
        assert (made.HasField("error"), made.replication_factor) == (False, 3)
        refused = create(first.addresses[0], "copied", replication_factor=4)
        assert refused.error.code == ErrorCode.INVALID_REPLICATION_FACTOR.value
        old = leader(first.addresses[1])
        os.kill(first.pids[old], signal.SIGKILL)
        alive = first.addresses[old % 3]
        ensure(alive, "two")
        assert "ended (signal 9), starting it again" in first.line()
        assert f"node {old}: serves again" in first.line()
        assert first.stop() == 0
        assert first.are_gone()
    with cluster(tmp_path / "data") as second:
        assert second.addresses == first.addresses
        again = create(second.addresses[2], "two")
        assert again.error.code == ErrorCode.TOPIC_ALREADY_EXISTS.value
        second.process.kill()
        second.process.wait(HANG_SECONDS)
        for pid in second.pids.values():
            _wait_gone(pid)


def _wait_gone(pid: int) -> None:
    """A node whose parent is gone ends by itself."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    ended, _, _ = select.select([descriptor], [], [], HANG_SECONDS)
    os.close(descriptor)
    assert ended, f"process {pid} lives on"


@pytest.mark.parametrize("brokers", [0, 1, 10])
def test_a_number_of_brokers_that_makes_no_cluster_is_refused(brokers: int) -> None:
    with pytest.raises(TidelogError) as caught:
        run_cluster_dev(ClusterDevOptions(brokers=brokers))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
