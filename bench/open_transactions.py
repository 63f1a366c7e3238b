"""What a node pays for transactions that are open and rest: memory, and processor while it waits.

Owns the calls that open them, over one connection without a client around: a thousand clients
would weigh more than what is measured.
"""

import time
from collections.abc import Callable
from typing import Final

import grpc
from google.protobuf.message import Message

from bench.processes import cpu_seconds, resident_bytes
from bench.settings import PARTITIONS
from bench.systems import System
from bench.table import Table
from tidelog.v1 import (
    coordinator_pb2,
    records_pb2,
    transaction_admin_pb2,
    transactions_pb2,
)

TOPIC: Final = "open-transactions"
CALL_SECONDS: Final = 60.0
REST_SECONDS: Final = 10.0
TIMEOUT_MS: Final = 15 * 60 * 1000
TRIES_MAX: Final = 200
PAUSE_SECONDS: Final = 0.05
MIB: Final = 1024 * 1024
_SERVICE: Final = "/tidelog.v1."


class OpenTransactions:
    """Opens so many, waits, and shows what that took."""

    def __init__(self, system: System, wanted: int) -> None:
        self._system = system
        self._wanted = wanted

    def show(self) -> None:
        """One table."""
        (pid,) = self._system.pids
        self._system.create_topic(TOPIC, {}, PARTITIONS)
        before = resident_bytes(pid), _processor(pid)
        start = time.perf_counter()
        with grpc.insecure_channel(self._system.bootstrap) as channel:
            for number in range(self._wanted):
                self._open(channel, number)
            seconds = time.perf_counter() - start
            after = resident_bytes(pid), _processor(pid)
            listed = self._listed(channel)
        table = Table(
            f"{self._wanted:,} transactions that are open and rest, on one node",
            (
                *("opened", "open by ListTransactions", "opened/s", "MiB before", "MiB with them"),
                *("KiB each", "processor % before", "processor % with them"),
            ),
        )
        each = (after[0] - before[0]) / self._wanted / 1024
        table.add(
            *(str(self._wanted), str(listed), f"{self._wanted / seconds:.0f}"),
            *(f"{before[0] / MIB:.0f}", f"{after[0] / MIB:.0f}", f"{each:.1f}"),
            *(f"{before[1]:.1f}", f"{after[1]:.1f}"),
        )
        table.show()

    def _open(self, channel: grpc.Channel, number: int) -> None:
        """A record in a new transaction; the first calls wait for coordinators to be made."""
        name = f"open-{number}"
        if number == 0:
            find = coordinator_pb2.FindCoordinatorsRequest(
                kind=coordinator_pb2.COORDINATOR_KIND_TRANSACTION, keys=[name]
            )
            _called(channel, "CoordinatorService/FindCoordinators", find)
        init = transactions_pb2.InitTransactionalProducerRequest(
            transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
        )
        data = _called(channel, "TransactionService/InitTransactionalProducer", init)
        made = transactions_pb2.InitTransactionalProducerResponse.FromString(data)
        request = records_pb2.ProduceRecordsRequest(
            topic=TOPIC,
            partition=number % PARTITIONS,
            transactional_id=name,
            producer=records_pb2.ProducerIdentity(
                producer_id=made.identity.producer_id,
                producer_epoch=made.identity.producer_epoch,
            ),
        )
        request.records.add(value=b"x" * 100)
        answer = records_pb2.ProduceRecordsResponse.FromString(
            _called(channel, "RecordsService/ProduceRecords", request)
        )
        for place in answer.places:
            assert not place.HasField("error"), place.error.happened

    def _listed(self, channel: grpc.Channel) -> int:
        asked = transaction_admin_pb2.ListTransactionsRequest(
            states=[transaction_admin_pb2.TRANSACTION_STATE_ONGOING]
        )
        data = _called(channel, "TransactionAdminService/ListTransactions", asked)
        found = transaction_admin_pb2.ListTransactionsResponse.FromString(data)
        return len(found.transactions)


def _called(channel: grpc.Channel, method: str, request: Message) -> bytes:
    call: Callable[..., bytes] = channel.unary_unary(f"{_SERVICE}{method}")
    for _ in range(TRIES_MAX):
        try:
            return call(request.SerializeToString(), timeout=CALL_SECONDS)
        except grpc.RpcError:
            time.sleep(PAUSE_SECONDS)
    raise ValueError(f"{method} was refused {TRIES_MAX} times")


def _processor(pid: int) -> float:
    """Percent of one processor while nobody asks for anything."""
    before = cpu_seconds(pid)
    time.sleep(REST_SECONDS)
    return 100 * (cpu_seconds(pid) - before) / REST_SECONDS
