"""Several nodes on this machine, for a person at a terminal: `tidelog dev --brokers 3`.

Owns the processes: each node is one, broker and controller both, started again when it dies, and
stopped by its process id, in order, at Ctrl-C. It must never leave one behind: a node ends by
itself when this process is gone. The line `bootstrap: HOST:PORT,…` on stdout is for programs: it
comes when every node serves.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tidelog.ports import Clock, TaskScope
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.random import RealRandom
from tidelog.server.commands.cluster_files import (
    ClusterFile,
    ClusterNode,
    log_file,
    open_or_make,
    settings_file,
)
from tidelog.wire.errors import ErrorCode, TidelogError

BROKERS_MAX: Final = 9
STOP_MS: Final = 10_000
RESTART_MS: Final = 1_000
FAILURES_MAX: Final = 5
"""Ends in a row of a node that never served; then all are stopped."""


class ClusterDevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; None: not said."""

    brokers: int
    port: int | None = None
    """Of the first node's client listener; the others follow at distances."""
    data_dir: str | None = None
    partitions: int | None = None


def run_cluster_dev(options: ClusterDevOptions) -> int:
    """Run the nodes until SIGINT or SIGTERM; the exit code."""
    if not 1 < options.brokers <= BROKERS_MAX:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"start {options.brokers} brokers",
            happened=f"2 to {BROKERS_MAX} fit on one machine",
            hint="`tidelog dev` without --brokers starts one.",
        )
    is_temporary = options.data_dir is None
    directory = Path(
        tempfile.mkdtemp(prefix="tidelog-") if is_temporary else options.data_dir or ""
    )
    try:
        asyncio.run(_Cluster(options, directory.resolve(), is_temporary=is_temporary).run())
    finally:
        if is_temporary:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


class _Cluster:
    """The parent: one task a node."""

    def __init__(self, options: ClusterDevOptions, directory: Path, *, is_temporary: bool) -> None:
        self._options = options
        self._directory = directory
        self._is_temporary = is_temporary
        self._clock: Clock = RealClock()
        self._stop_requested = asyncio.Event()
        self._ready: dict[int, int] = {}
        """Node id → process id, of nodes that serve."""
        self._has_greeted = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_requested.set)
        print(f"starting {self._options.brokers} brokers ...", file=sys.stderr, flush=True)
        cluster = await open_or_make(
            self._directory,
            RealRandom(),
            count=self._options.brokers,
            port=self._options.port,
            partitions=self._options.partitions,
        )
        async with TaskScope() as scope:
            for node in cluster.nodes:
                scope.start(self._keep(cluster, node), name=f"node {node.node_id}")

    async def _keep(self, cluster: ClusterFile, node: ClusterNode) -> None:
        """One node, again and again, until the stop."""
        failures = 0
        while not self._stop_requested.is_set():
            process = await self._start(node)
            try:
                was_ready = await self._live(cluster, node, process)
            finally:
                await self._end(process)
            self._ready.pop(node.node_id, None)
            if self._stop_requested.is_set():
                return
            failures = 0 if was_ready else failures + 1
            if failures == FAILURES_MAX:
                raise TidelogError(
                    ErrorCode.UNAVAILABLE,
                    tried=f"start node {node.node_id}",
                    happened=f"it ended {FAILURES_MAX} times before it served",
                    hint=f"See {log_file(self._directory, node)}.",
                )
            print(
                f"node {node.node_id}: process {process.pid} ended "
                f"({_how(process.returncode)}), starting it again",
                flush=True,
            )
            await self._clock.sleep(RESTART_MS)

    async def _start(self, node: ClusterNode) -> asyncio.subprocess.Process:
        with log_file(self._directory, node).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidelog.server.commands.cluster_child",
                str(settings_file(self._directory, node)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C reaches this process only; it stops the nodes in order.
                start_new_session=True,
            )

    async def _live(
        self, cluster: ClusterFile, node: ClusterNode, process: asyncio.subprocess.Process
    ) -> bool:
        """Until the node ends or is to be stopped; whether it served."""
        async with TaskScope() as scope:
            scope.start(self._watch_stop(process), name="stop")
            assert process.stdout is not None, "the node's output is a pipe"
            while line := await process.stdout.readline():
                if line.startswith(b"bootstrap:"):
                    self._on_ready(cluster, node, process.pid)
            await process.wait()
            scope.cancel()
        return node.node_id in self._ready

    async def _watch_stop(self, process: asyncio.subprocess.Process) -> None:
        await self._stop_requested.wait()
        _terminate(process)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """In order if it can, by force if it must; nothing of it is left."""
        if process.returncode is not None:
            return
        _terminate(process)
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _on_ready(self, cluster: ClusterFile, node: ClusterNode, pid: int) -> None:
        self._ready[node.node_id] = pid
        if self._has_greeted:
            print(f"node {node.node_id}: serves again, process {pid}", flush=True)
        elif len(self._ready) == len(cluster.nodes):
            self._has_greeted = True
            self._greet(cluster)

    def _greet(self, cluster: ClusterFile) -> None:
        addresses = ",".join(node.client_address for node in cluster.nodes)
        print(f"bootstrap: {addresses}")
        kept = "temporary: deleted at the stop; --data-dir DIR keeps it"
        if not self._is_temporary:
            kept = "kept at the stop"
        print(f"data: {self._directory} ({kept})")
        for node in cluster.nodes:
            print(
                f"node {node.node_id}: {node.client_address}, cluster {node.cluster_address}, "
                f"process {self._ready[node.node_id]}, log {log_file(self._directory, node).name}"
            )
        print("next, in another terminal:")
        print(f"  tidelog quorum describe -b {cluster.nodes[0].client_address}")
        print(f"  tidelog topic create -b {addresses} hello -p {len(cluster.nodes)}")
        print("stop with Ctrl-C", flush=True)


def _terminate(process: asyncio.subprocess.Process) -> None:
    """By its process id; one that has ended meanwhile needs nothing."""
    if process.returncode is None:
        process.terminate()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit code {code}"
