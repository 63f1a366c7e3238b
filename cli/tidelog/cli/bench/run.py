"""Runs a measurement: its topic, its clients as processes, what they come to together.

Owns everything that is started, and its end: the topic is deleted, processes are waited for. On
Ctrl-C there is no time for that: processes are ended, and a topic that stays is named.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.cli.bench.arguments import producer_options, shares, spelled
from tidelog.cli.bench.load import Done, Load
from tidelog.cli.bench.report import Report, percentiles
from tidelog.cli.frame.admin import CLIENT_ID, admin_client, bootstrap_servers
from tidelog.cli.frame.interrupt import on_interrupt
from tidelog.cli.show.errors import CommandError, print_stderr
from tidelog.cli.show.terminal import is_terminal

if TYPE_CHECKING:
    from tidelog.client import AdminClient

START_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 120.0
"""Beyond the time that a client was given: what it still waits for has bounds of its own."""
STOP_SECONDS_MAX: Final = 30.0
_BOOTSTRAP: Final = "bootstrap: "


class Bench:
    """One measurement."""

    def __init__(self, arguments: argparse.Namespace, command: str) -> None:
        self._arguments = arguments
        self._command = command
        self._processes: list[subprocess.Popen[bytes]] = []
        self.topic = ""

    @contextlib.contextmanager
    def place(self) -> Iterator["AdminClient"]:
        """The cluster, with a topic for the measurement that is gone afterwards."""
        on_interrupt(self._last_words)
        with contextlib.ExitStack() as stack:
            if self._arguments.dev:
                self._arguments.bootstrap = stack.enter_context(self._dev_node())
            admin = stack.enter_context(self._admin())
            stack.enter_context(self._topic(admin))
            stack.callback(self._end_processes)
            yield admin

    def _admin(self) -> "AdminClient":
        """With those of the options that every client has; all of them are checked before."""
        from tidelog.client.arguments.options import AdminOptions

        self._client_options()
        common = {field.name for field in msgspec.structs.fields(AdminOptions)}
        given = argparse.Namespace(**vars(self._arguments))
        given.option = [each for each in self._arguments.option if spelled(each[0]) in common]
        return admin_client(given)

    @contextlib.contextmanager
    def _topic(self, admin: "AdminClient") -> Iterator[None]:
        from tidelog.client import NewTopic

        arguments = self._arguments
        partitions = arguments.partitions or arguments.clients
        name = f"bench-{os.urandom(4).hex()}"
        wanted = NewTopic(name, partitions, arguments.replication_factor or 0)
        (created,) = admin.create_topics([wanted])
        self.topic, self._partitions = name, created.num_partitions
        try:
            yield
        finally:
            admin.delete_topics([created.topic_id])
            self.topic = ""

    @contextlib.contextmanager
    def _dev_node(self) -> Iterator[str]:
        """A node of its own; its address."""
        command = [sys.executable, "-m", "tidelog", "dev", "--port", "0"]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._processes.append(node)
        try:
            assert node.stdout is not None, "it is a pipe"
            line = node.stdout.readline().decode()
            if not line.startswith(_BOOTSTRAP):
                raise CommandError(
                    f"{self._command} --dev", "the node did not start", "see: tidelog dev"
                )
            yield line.removeprefix(_BOOTSTRAP).strip()
        finally:
            node.terminate()
            node.wait(STOP_SECONDS_MAX)
            self._processes.remove(node)

    def run(
        self, kind: str, *, records: int | None, seconds: float, rate: float | None
    ) -> list[Done]:
        """All clients, begun together."""
        arguments = self._arguments
        clients = [self._start() for _ in range(arguments.clients)]
        options = self._client_options()
        for place, (client, share) in enumerate(
            zip(clients, shares(records, arguments.clients), strict=True)
        ):
            load = Load(
                kind=kind,
                topic=self.topic,
                partitions=list(range(place, self._partitions, arguments.clients))
                or [place % self._partitions],
                producer=options["producer"],
                consumer=options["consumer"],
                records=share,
                seconds=seconds,
                record_bytes=arguments.size,
                rate_per_second=None if rate is None else rate / arguments.clients,
            )
            _tell(client, msgspec.json.encode(load) + b"\n")
        early = [self._ready(client) for client in clients]
        for client in clients:
            _tell(client, b"\n")
        done = [
            found if found is not None else self._done(client, seconds)
            for client, found in zip(clients, early, strict=True)
        ]
        for each in done:
            if each.failure is not None:
                what, why, hint = each.failure
                raise CommandError(what, why, hint)
        return done

    def _client_options(self) -> dict[str, dict[str, Any]]:
        from tidelog.cli.frame.client_options import convert
        from tidelog.client.arguments.options import ConsumerOptions, ProducerOptions

        common = {"bootstrap_servers": bootstrap_servers(self._arguments), "client_id": CLIENT_ID}
        typed = self._arguments.option
        if hasattr(self._arguments, "acks"):
            typed = producer_options(self._arguments)
        ours = {field.name for field in msgspec.structs.fields(ConsumerOptions)}
        theirs = {field.name for field in msgspec.structs.fields(ProducerOptions)}
        # A name of one of the two is meant for that one; a name of neither is a mistake.
        producing = [each for each in typed if spelled(each[0]) not in ours - theirs]
        reading = [each for each in typed if spelled(each[0]) in ours]
        return {
            "producer": {**common, **convert(producing, ProducerOptions, self._command)},
            "consumer": {**common, **convert(reading, ConsumerOptions, self._command)},
        }

    def _start(self) -> "subprocess.Popen[bytes]":
        client = subprocess.Popen(
            [sys.executable, "-m", "tidelog.cli.bench.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._processes.append(client)
        return client

    def _ready(self, client: "subprocess.Popen[bytes]") -> Done | None:
        """None: it waits for the word; otherwise it has failed already."""
        line = self._line(client, START_SECONDS_MAX)
        return None if line == b"ready\n" else msgspec.json.decode(line, type=Done)

    def _done(self, client: "subprocess.Popen[bytes]", seconds: float) -> Done:
        return msgspec.json.decode(self._line(client, seconds + END_SECONDS_MAX), type=Done)

    def _line(self, client: "subprocess.Popen[bytes]", seconds: float) -> bytes:
        import threading

        assert client.stdout is not None, "it is a pipe"
        watch = threading.Timer(seconds, client.kill)
        watch.start()
        try:
            line = client.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise CommandError(
                self._command,
                f"a client ended, or said nothing for {seconds:.0f} s",
                "look at what it wrote above, and whether the cluster answers: "
                "tidelog cluster describe",
            )
        return line

    def _end_processes(self) -> None:
        for process in self._processes:
            if process.stdin is None:  # the node, which has an owner
                continue
            process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait(STOP_SECONDS_MAX)
        self._processes = [each for each in self._processes if each.stdin is None]

    def _last_words(self) -> None:
        for process in self._processes:
            process.kill() if process.stdin is not None else process.terminate()
        if self.topic and not self._arguments.dev:
            undo = f"tidelog topic delete {self.topic} --execute"
            print_stderr(f"interrupted; the topic stays: {undo}")


def _tell(client: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert client.stdin is not None, "it is a pipe"
    with contextlib.suppress(BrokenPipeError):
        client.stdin.write(line)
        client.stdin.flush()


def together(what: str, record_bytes: int, done: Sequence[Done], sampled: str) -> Report:
    """All records, by the slowest clock; the samples of all."""
    samples = [each for client in done for each in client.samples_ms]
    return Report(
        what=what,
        clients=len(done),
        records=sum(each.records for each in done),
        seconds=max(each.seconds for each in done),
        record_bytes=record_bytes,
        samples=len(samples),
        percentiles_ms=percentiles(samples),
        sampled=sampled,
    )


def show(report: Report, *, json: bool) -> None:
    """On stdout."""
    from tidelog.cli.bench import report as bench_report

    if json:
        from tidelog.cli.frame.admin import print_json

        print_json(bench_report.as_json(report))
    else:
        print(bench_report.as_text(report))


def say(text: str) -> None:
    """To a person who waits."""
    if is_terminal(sys.stderr):
        print_stderr(text)
