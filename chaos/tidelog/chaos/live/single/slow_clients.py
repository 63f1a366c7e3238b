"""Callers that hang, drip and vanish, against a node that others use: `--case slow-clients`.

Owns one real node, the table of kinds with what each may cost, and the verdict: memory bounded by
the listener's own limits, the healthy producer served meanwhile, everything of the bad callers gone
after the deadlines, what the healthy one was told still true. The node's limits are the defaults
but for both deadlines, which are short so that a run takes minutes.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.processes.ports import free_ports
from tidelog.chaos.live.processes.server import BOTH_ROLES, Place, ServerProcess
from tidelog.chaos.live.single.slow_clients_load import Load, Pace, prepare, read_all
from tidelog.client import AdminClient
from tidelog.wire.errors import ErrorCode, TidelogError

MIB: Final = 1024 * 1024
STORED_BYTES: Final = 64 * MIB
TOPIC: Final = "stored"
QUIET_TOPIC: Final = "beside"
DEADLINE_MS: Final = 5_000
"""Of answers and of messages, instead of the defaults."""
READY_SECONDS_MAX: Final = 30.0
FILL_SECONDS_MAX: Final = 30.0
BESIDE_SECONDS: Final = 4.0
QUIET_SECONDS: Final = 4.0
GONE_SECONDS_MAX: Final = 40.0
"""Whoever waited while others held the memory is late one deadline after them, and so on."""
SAMPLE_SECONDS: Final = 0.05
ALLOWANCE_MIB: Final = 384
"""One memory of a listener, 256 MiB, and half as much for what comes between two looks at it, what
is being freed, and what the allocator keeps."""
FREE_MIB: Final = 48
"""What an allocator may keep of it."""
_PAGE_BYTES: Final = 4_096


STAY_CONNECTED: Final = ("silent", "drip", "half-messages", "unread")
"""Their calls are refused once they are late, which frees everything, or their answers have left
for the system's buffers. A connection without calls costs little, and stays until it is idle for
too long or does not answer pings."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One sort of bad caller."""

    name: str
    connections: int
    calls: int
    is_killed: bool = False
    """Whether its process is killed at once, instead of being hung up on by the node."""


KINDS: Final = (
    Kind(name="unread", connections=1, calls=200),
    Kind(name="unread", connections=50, calls=8),
    Kind(name="no-window", connections=1, calls=200),
    Kind(name="no-window", connections=50, calls=8),
    Kind(name="unread-streams", connections=8, calls=50),
    Kind(name="half-messages", connections=10, calls=4),
    Kind(name="half-messages", connections=10, calls=4, is_killed=True),
    Kind(name="silent", connections=50, calls=20),
    Kind(name="drip", connections=50, calls=20),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind did."""

    kind: Kind
    before_mib: float
    peak_mib: float
    after_mib: float
    hung_up: int
    """Connections that the node says that it has hung up on."""
    left: int
    """Connections of the callers that the node still had in the end."""
    gone_s: float
    quiet: Pace
    beside: Pace


class Memory:
    """The resident memory of a process, and its peak since the last `take`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory")
        self._thread.start()

    def now_mib(self) -> float:
        """As of now."""
        text = Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * _PAGE_BYTES / MIB

    def take_peak_mib(self) -> float:
        """And begin anew."""
        found, self._peak = max(self._peak, self.now_mib()), 0.0
        return found

    def close(self) -> None:
        """Sample no more."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, self.now_mib())


def run_slow_clients(directory: Path) -> int:
    """Every kind in turn against one node; the exit code."""
    node = _started(directory)
    address = node.place.client_address
    try:
        topic_id = prepare(address, TOPIC, QUIET_TOPIC, STORED_BYTES)
        load, memory = Load(address, QUIET_TOPIC), Memory(node.pid)
        load.start()
        try:
            time.sleep(1.0)
            print(HEADER, flush=True)
            rows = [_against(node, kind, topic_id, load, memory) for kind in KINDS]
        finally:
            load.stop()
            memory.close()
        stored = read_all(address, QUIET_TOPIC)
        print(f"the healthy producer: {load.acknowledged} acknowledged, {stored} read back")
    finally:
        node.kill()
    found = faults(rows)
    if stored < load.acknowledged:
        found.append(f"{load.acknowledged} records were acknowledged, {stored} are there")
    for each in found:
        print(f"FOUND {each}")
    return 1 if found else 0


def _started(directory: Path) -> ServerProcess:
    client, cluster = free_ports(2)
    place = Place(
        node_id=1, client_address=f"127.0.0.1:{client}", cluster_address=f"127.0.0.1:{cluster}"
    )
    node = ServerProcess(directory / "node", place, roles=BOTH_ROLES)
    limits = f"[listeners.client.limits]\nanswer_ms_max = {DEADLINE_MS}\n"
    with node.settings_file.open("a", encoding="utf-8") as settings:
        settings.write(limits + f"message_ms_max = {DEADLINE_MS}\n")
    node.format("--standalone")
    node.start()
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            with AdminClient(bootstrap_servers=place.client_address) as admin:
                admin.describe_cluster()
            return node
        except TidelogError as error:
            if time.monotonic() > deadline or error.code is not ErrorCode.UNAVAILABLE:
                node.kill()
                raise


def _against(node: ServerProcess, kind: Kind, topic_id: bytes, load: Load, memory: Memory) -> Row:
    load.take()
    time.sleep(QUIET_SECONDS)
    quiet, before = load.take(), memory.now_mib()
    said = _hung_up(node)
    memory.take_peak_mib()
    load.take()
    # From the first byte on: what comes in fast is what others would feel.
    process = _callers(node, kind, topic_id)
    try:
        if not kind.is_killed:
            time.sleep(BESIDE_SECONDS)
        began = time.monotonic()
        if kind.is_killed:
            process.send_signal(signal.SIGKILL)
            process.wait(GONE_SECONDS_MAX)
        pid = 0 if kind.is_killed else process.pid
        left = _wait_gone(node, pid, Held(kind, memory, before))
        gone_s = time.monotonic() - began
        beside = load.take()
    finally:
        process.kill()
        process.wait(GONE_SECONDS_MAX)
    row = Row(
        kind=kind,
        before_mib=before,
        peak_mib=memory.take_peak_mib(),
        after_mib=memory.now_mib(),
        hung_up=_hung_up(node) - said,
        left=left,
        gone_s=gone_s,
        quiet=quiet,
        beside=beside,
    )
    print(line_of(row), flush=True)
    return row


def _callers(node: ServerProcess, kind: Kind, topic_id: bytes) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "tidelog.chaos.live.single.slow_clients_caller",
        kind.name,
        node.place.client_address,
        topic_id.hex(),
        str(kind.connections),
        str(kind.calls),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "its output is read"
    if process.stdout.readline().strip() != "ready":
        process.kill()
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried=f"start callers of kind {kind.name}", happened="they ended"
        )
    return process


def _wait_gone(node: ServerProcess, pid: int, held: "Held") -> int:
    """Until the node has let go of what the callers made it hold; how many connections are left."""
    port = int(node.place.client_address.rpartition(":")[2])
    deadline = time.monotonic() + GONE_SECONDS_MAX
    left = established(port, pid)
    while time.monotonic() < deadline and not held.is_over(left):
        time.sleep(0.1)
        left = established(port, pid)
    return left


class Held:
    """When what a kind of caller made the node hold is over."""

    def __init__(self, kind: Kind, memory: Memory, before_mib: float) -> None:
        self._kind = kind
        self._memory = memory
        self._before_mib = before_mib

    def is_over(self, left: int) -> bool:
        """Its memory is free, and its connections are closed if they have to be."""
        is_free = self._memory.now_mib() <= self._before_mib + FREE_MIB
        return is_free and (not left or self._kind.name in STAY_CONNECTED)


def established(port: int, pid: int) -> int:
    """Connections of a process to a port of this machine that are open on both ends."""
    if not pid:
        return 0
    mine = {
        target.name
        for each in Path(f"/proc/{pid}/fd").iterdir()
        if (target := _target(each)) is not None
    }
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    wanted = f"0100007F:{port:04X}"
    fields = (row.split() for row in rows)
    return sum(1 for each in fields if each[2] == wanted and each[3] == "01" and each[9] in mine)


def _target(link: Path) -> Path | None:
    try:
        name = str(link.readlink())
    except OSError:
        return None
    return Path(name.removeprefix("socket:[").removesuffix("]")) if "socket" in name else None


def _hung_up(node: ServerProcess) -> int:
    text = node.log_file.read_text(encoding="utf-8", errors="replace")
    return sum(
        int(line.rpartition("more=")[2]) if "more=" in line else 1
        for line in text.splitlines()
        if "caller_hung_up" in line
    )


HEADER: Final = (
    "callers              conn x calls  RSS before   peak  after MiB  hung up  left  gone s"
    "   quiet/s  p50   p99 ms  beside/s  p50   p99 ms   max ms  failed"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    kind, quiet, beside = row.kind, row.quiet, row.beside
    name = f"{kind.name} killed" if kind.is_killed else kind.name
    return (
        f"{name:20} {kind.connections:4} x {kind.calls:5} {row.before_mib:11.0f}"
        f" {row.peak_mib:6.0f}"
        f" {row.after_mib:10.0f} {row.hung_up:8} {row.left:5} {row.gone_s:7.1f}"
        f" {quiet.per_second:9.0f} {quiet.p50_ms:4.1f} {quiet.p99_ms:8.1f}"
        f" {beside.per_second:9.0f} {beside.p50_ms:4.1f} {beside.p99_ms:8.1f} {beside.max_ms:8.1f}"
        f" {beside.failed:7}"
    )


def faults(rows: Sequence[Row]) -> list[str]:
    """What must not be."""
    found = []
    for row in rows:
        name = f"{row.kind.name} {row.kind.connections} x {row.kind.calls}"
        grown = row.peak_mib - row.before_mib
        if grown > ALLOWANCE_MIB:
            found.append(f"{name}: memory grew by {grown:.0f} MiB, {ALLOWANCE_MIB} are allowed")
        if row.left and row.kind.name not in STAY_CONNECTED:
            found.append(f"{name}: {row.left} connections are still open")
        if row.beside.failed or not row.beside.per_second:
            found.append(f"{name}: the healthy producer was refused {row.beside.failed} times")
    return found
