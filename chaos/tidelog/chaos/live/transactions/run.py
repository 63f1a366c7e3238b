"""The two live cases of transactions: clients, faults in turn, a final read, the verdict.

Owns the order of a run and what is done to whom. Brokers are struck as in the other cases of a
cluster; in between a client is killed, or stopped until another one has taken over its id. Exit
code 0: sound, 1: an anomaly, 3: a run that proves nothing.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from tidelog.chaos.checkers.history.history import Anomaly
from tidelog.chaos.checkers.transactions import Pipeline, TransactionHistory
from tidelog.chaos.live.cluster.faults.processes import Full, Kill, OneWay, Pause, Reset
from tidelog.chaos.live.cluster.nodes import REPLICAS, TidelogCluster
from tidelog.chaos.live.cluster.rounds import Fault, wait_whole
from tidelog.chaos.live.cluster.verdict import ANOMALIES_PRINTED_MAX
from tidelog.chaos.live.processes.server import wait_until
from tidelog.chaos.live.shared.case import Orders
from tidelog.chaos.live.transactions.clients import Seat
from tidelog.chaos.live.transactions.stage import INITIAL, fold, read_output
from tidelog.chaos.live.transactions.verdict import (
    counts_of,
    history_of,
    judge_bank,
    judge_pipeline,
    without_one_record,
)
from tidelog.client import NewTopic
from tidelog.wire.errors import TidelogError

PARTITIONS: Final = 6
MOVERS: Final = 3
AUDITORS: Final = 2
WORKERS: Final = 2
STAGES: Final = 3
FEED_RATE: Final = 200.0
SECONDS: Final = 60.0
HEALTHY_SECONDS: Final = 3.0
STRUCK_SECONDS: Final = (2.0, 9.0)
"""Shorter and longer than a session, and than a half of a transaction's timeout."""
START_SECONDS_MAX: Final = 90.0
CATCH_UP_SECONDS_MAX: Final = 120.0
MODULES: Final = "tidelog.chaos.live.transactions"
DONE_MIN: Final = 20
"""Transactions, or records at a pipeline's end: with fewer a run proves nothing."""


class Run:
    """One case on one cluster."""

    def __init__(self, cluster: TidelogCluster, directory: Path, seed: int) -> None:
        self.cluster = cluster
        self.directory = directory
        self.directory.mkdir(parents=True)
        self.seed = seed
        self.seats: list[Seat] = []
        self.draw = Random(seed)
        self.struck: dict[str, int] = {}
        """By kind, how often a broker or a client was struck."""
        self._faults: Sequence[tuple[str, Fault]] = (
            ("kill -9 of a broker", Kill(cluster)),
            ("SIGSTOP of a broker", Pause(cluster)),
            ("a broker cut off one way", OneWay(cluster)),
            ("a broker cut off", Full(cluster)),
            ("connections reset", Reset(cluster)),
        )

    def seat(self, name: str, module: str, *options: str) -> Seat:
        """A place for a client; somebody has it from now on."""
        made = Seat(
            name,
            self.directory,
            lambda life, journal: [
                *(sys.executable, "-m", f"{MODULES}.{module}", "--name", life),
                *("--bootstrap", self.cluster.bootstrap, "--journal", str(journal), *options),
            ],
        )
        made.begin()
        self.seats.append(made)
        return made

    def go_on(self, seconds: float, victims: Sequence[Seat]) -> None:
        """Faults in turn until then; then all is whole."""
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            words, fault = self._faults[number % len(self._faults)]
            victim = self.draw.choice(list(fault.victims))
            said = fault.strike(victim, self.draw)
            client = self._strike_client(victims)
            time.sleep(self.draw.uniform(*STRUCK_SECONDS))
            fault.heal(victim)
            for seat in victims:
                seat.wake()
            wait_whole(self.cluster)
            self._note(words)
            print(f"  {time.strftime('%H:%M:%S')} broker {victim}: {said}; {client}", flush=True)
            time.sleep(HEALTHY_SECONDS)
            for seat in victims:
                seat.revive()
            number += 1

    def _strike_client(self, victims: Sequence[Seat]) -> str:
        seat, drawn = self.draw.choice(list(victims)), self.draw.random()
        if drawn < 0.4:
            seat.kill()
            self._note("kill -9 of a client")
            return f"kill -9 of {seat.name}"
        if drawn < 0.7:
            seat.put_to_sleep()
            self._note("a client becomes a zombie")
            return f"{seat.name} sleeps, another one takes its place"
        return "no client"

    def _note(self, words: str) -> None:
        self.struck[words] = self.struck.get(words, 0) + 1

    def journals(self) -> dict[str, Path]:
        """Of every life of every seat that has written one."""
        found = {name: file for seat in self.seats for name, file in seat.journals.items()}
        return {name: file for name, file in found.items() if file.exists()}

    def read_everything(self, topics: Sequence[str]) -> None:
        """The final read: all that there is for a reader of committed records."""
        options = [word for topic in topics for word in ("--topic", topic)]
        reader = self.seat(
            "drain", "auditor", *options, "--partitions", str(PARTITIONS), "--is-final"
        )
        wait_until(
            lambda: None if reader.present.has_ended else "it reads",
            CATCH_UP_SECONDS_MAX * 2,
            tried="read everything in the end",
        )

    def report(
        self,
        name: str,
        seconds: float,
        judge: Callable[[TransactionHistory], list[Anomaly]],
        blind: str,
        done: int,
    ) -> int:
        """Judge and print; the exit code."""
        history = history_of(self.journals())
        counts = counts_of(history)
        print(
            f"{name}: {seconds:.0f} s, " + ", ".join(f"{v} x {k}" for k, v in self.struck.items())
        )
        if counts.committed:
            print(
                f"  transactions: {counts.committed} committed, {counts.aborted} aborted, "
                f"{counts.unknown} of unknown outcome; a reader had nothing new for at most "
                f"{counts.longest_without_news_ms / 1e3:.1f} s"
            )
        else:
            # Workers write no journal: their outputs say what they committed.
            print(f"  {done} records came out at the end, as far as workers could tell")
        print(f"  {counts.reads} reads of {counts.records_read} records")
        anomalies = judge(history)
        for anomaly in anomalies[:ANOMALIES_PRINTED_MAX]:
            print(f"ANOMALY {anomaly}")
        if anomalies:
            print(f"{len(anomalies)} anomalies")
            return 1
        if done < DONE_MIN or not self.struck:
            print(f"INVALID: only {done} were done, or nothing was struck")
            return 3
        if not judge(without_one_record(history, blind)):
            print("INVALID: a record that was taken out of the final read went unnoticed")
            return 3
        print("nothing lost, doubled, torn or read before it counted")
        return 0


def run_bank(orders: Orders) -> int:
    """Transfers, and auditors to whom every read adds up."""
    seconds = SECONDS if orders.seconds is None else orders.seconds
    with _cluster(orders) as cluster:
        run = Run(cluster, orders.directory / "clients", orders.seed)
        try:
            topic, count = cluster.topic, str(PARTITIONS)
            auditors = [
                run.seat(f"auditor{n}", "auditor", "--topic", topic, "--partitions", count)
                for n in range(AUDITORS)
            ]
            movers = [
                run.seat(
                    *(f"mover{number}", "mover", "--transactional-id", f"mover{number}"),
                    *("--topic", topic, "--partitions", count, "--seed", str(orders.seed)),
                )
                for number in range(MOVERS)
            ]
            _wait_done(movers, 1)
            run.go_on(seconds, movers)
            _end(movers)
            _end(auditors)
            run.read_everything([topic])
            done = sum(each.done for each in movers)
            return run.report("bank", seconds, judge_bank, f"{topic}-", done)
        finally:
            for seat in run.seats:
                seat.kill_all()


def run_pipeline(orders: Orders) -> int:
    """Three stages behind each other; what comes out is the fold of what went in, once."""
    seconds = SECONDS if orders.seconds is None else orders.seconds
    with _cluster(orders) as cluster:
        topics = [cluster.topic, *(f"stage{number + 1}" for number in range(STAGES))]
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(each, PARTITIONS, REPLICAS) for each in topics[1:]])
        run = Run(cluster, orders.directory / "clients", orders.seed)
        try:
            feeder = run.seat(
                *("feeder", "feeder", "--topic", topics[0], "--partitions", str(PARTITIONS)),
                *("--rate", str(min(orders.rate, FEED_RATE))),
            )
            workers = [
                run.seat(
                    *(f"worker{stage}{number}", "stage"),
                    *("--transactional-id", f"worker{stage}{number}"),
                    *("--source", topics[stage], "--target", topics[stage + 1]),
                    *("--group", f"stage{stage}"),
                )
                for stage in range(STAGES)
                for number in range(WORKERS)
            ]
            _wait_done(workers[-WORKERS:], 1)
            run.go_on(seconds, workers)
            _end([feeder])
            _wait_done(workers[-WORKERS:], feeder.done, is_at_least=False)
            _end(workers)
            run.read_everything(topics)
            done = sum(each.done for each in workers[-WORKERS:])
            stages = _stages(topics)
            return run.report(
                "pipeline",
                seconds,
                lambda history: judge_pipeline(history, stages),
                f"{topics[-1]}-",
                done,
            )
        finally:
            for seat in run.seats:
                seat.kill_all()


def _cluster(orders: Orders) -> TidelogCluster:
    return TidelogCluster(
        orders.directory / "cluster",
        partitions=PARTITIONS,
        settings=dict(orders.settings),
        planted=orders.planted,
    )


def _stages(topics: Sequence[str]) -> list[Pipeline]:
    return [
        Pipeline(
            inputs=tuple(f"{source}-{number}" for number in range(PARTITIONS)),
            outputs=tuple(f"{target}-{number}" for number in range(PARTITIONS)),
            read_output=read_output,
            initial=INITIAL,
            fold=fold,
        )
        for source, target in pairwise(topics)
    ]


def _wait_done(seats: Sequence[Seat], count: int, *, is_at_least: bool = True) -> None:
    """Until so many are done; without `is_at_least` the verdict says what is missing."""

    def are_done() -> str | None:
        for seat in seats:
            seat.revive()
        done = sum(each.done for each in seats)
        return None if done >= count else f"{done} of {count} are done"

    limit = START_SECONDS_MAX if is_at_least else CATCH_UP_SECONDS_MAX
    try:
        wait_until(are_done, limit, tried="see the clients at work", pause_seconds=0.2)
    except TidelogError as error:
        if is_at_least:
            raise
        print(f"  they did not catch up: {error.happened}")


def _end(seats: Sequence[Seat]) -> None:
    for seat in seats:
        seat.end()


CASES: Final[Mapping[str, tuple[str, Callable[[Orders], int]]]] = {
    "bank": ("transfers of money by transactions, while anything dies", run_bank),
    "pipeline": ("three stages that consume and produce in transactions", run_pipeline),
}
