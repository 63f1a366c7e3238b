"""Three etcd members on loopback, in directories of their own, ended by their pids.

Owns the binary and the lifecycle of the peer. It must never change etcd's defaults beyond names,
addresses and directories: the peer is measured as its users run it, with an fsync per commit round.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import grpc

from bench.peers.kafka.node import PeerMissingError, free_ports
from bench.processes import Child

HERE: Final = Path(__file__).resolve().parent
UNPACKED: Final = HERE.parents[2] / ".tools" / "etcd"
PACKAGE: Final = "etcd-server"
DOWNLOAD_SECONDS_MAX: Final = 120.0
READY_SECONDS_MAX: Final = 30.0
MEMBERS: Final = 3
RANGE: Final = "/etcdserverpb.KV/Range"
PUT: Final = "/etcdserverpb.KV/Put"


def prepare() -> None:
    """Makes sure that the binary is there: on PATH, or unpacked from the Debian package."""
    if _binary() is not None:
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PeerMissingError("etcd is left out: no `etcd` on PATH and no apt-get to fetch it")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "download", PACKAGE], "cannot be downloaded")
    package = next(iter(sorted(UNPACKED.glob(f"{PACKAGE}_*.deb"))), None)
    if package is None:
        raise PeerMissingError("etcd is left out: apt-get fetched no package")
    _run(["dpkg-deb", "-x", str(package), str(UNPACKED)], "cannot be unpacked")


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(
        command,
        cwd=UNPACKED,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise PeerMissingError(f"etcd is left out: {PACKAGE} {problem}: {' '.join(last)}")


def _binary() -> str | None:
    unpacked = UNPACKED / "usr" / "bin" / "etcd"
    return str(unpacked) if unpacked.exists() else shutil.which("etcd")


def version() -> str:
    """As the binary prints it."""
    binary = _binary()
    assert binary is not None, "prepare() comes first"
    done = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.splitlines()[0].rpartition(" ")[2]


class EtcdCluster:
    """Three members that have elected a leader when constructed."""

    def __init__(self) -> None:
        binary = _binary()
        assert binary is not None, "prepare() comes first"
        self._directory = tempfile.TemporaryDirectory(prefix="bench-etcd-")
        ports = free_ports(2 * MEMBERS)
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:MEMBERS]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[MEMBERS:]]
        everybody = ",".join(f"member{number}={url}" for number, url in enumerate(peers))
        self._children: list[Child] = []
        try:
            for number, (address, peer) in enumerate(zip(self.addresses, peers, strict=True)):
                client = f"http://{address}"
                self._children.append(
                    Child(
                        [
                            binary,
                            *("--name", f"member{number}"),
                            *("--data-dir", str(Path(self._directory.name) / str(number))),
                            *("--listen-client-urls", client, "--advertise-client-urls", client),
                            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                            *("--initial-cluster", everybody, "--initial-cluster-state", "new"),
                        ]
                    )
                )
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _wait_ready(self) -> None:
        """A write through each member: all of them know a leader."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        for address in self.addresses:
            while True:
                try:
                    with grpc.insecure_channel(address) as channel:
                        _put(channel)
                    break
                except grpc.RpcError:
                    if time.monotonic() > deadline:
                        raise PeerMissingError("etcd is left out: it elected nobody") from None
                    time.sleep(0.05)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children]

    def close(self) -> None:
        for child in self._children:
            child.stop()
        self._directory.cleanup()

    def __enter__(self) -> EtcdCluster:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _put(channel: grpc.Channel) -> None:
    put: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PUT)
    put(put_request(b"ready", b"yes"), timeout=2.0)


def put_request(key: bytes, value: bytes) -> bytes:
    """`etcdserverpb.PutRequest`: field 1 the key, field 2 the value, both of under 128 bytes."""
    assert len(key) < 128, "one length byte"
    assert len(value) < 128, "one length byte"
    return b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value


def range_request(key: bytes) -> bytes:
    """`etcdserverpb.RangeRequest` of one key: linearizable unless it says otherwise."""
    assert len(key) < 128, "one length byte"
    return b"\x0a" + bytes([len(key)]) + key
