"""Asks coordinators what the leaders of this broker's partitions want to know before they append.

Owns the questions in flight of the whole node. One transaction that begins in several partitions at
once is one question: what arrives in one turn of the loop, of one identity, is asked together. A
coordinator that still finishes the transaction before is asked again, for a moment: that takes
milliseconds, and a producer that is told to come again takes many times that. It must never leave a
question without an answer for longer than its `timeout_ms`, nor answer yes for a coordinator that
has not said so.
"""

import asyncio
from typing import Final

import msgspec

from tidelog.broker.directory.core.messages import Verify
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.meter import Meter, count
from tidelog.broker.transactions.asking import TransactionAsking
from tidelog.broker.transactions.state.answers import Identity
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerEpoch, ProducerId

AGAIN_MS_MIN: Final = 2
"""How long after CONCURRENT_TRANSACTIONS a coordinator is asked again; doubles."""
AGAIN_MS_MAX: Final = 200
"""So long in all: then the producer is told."""
NS_PER_MS: Final = 1_000_000
CALLS_MAX: Final = 1_000
"""Questions to coordinators in flight at once, of one node."""

Asked = tuple[Verify, DirectoryOwner]


class _Transaction(msgspec.Struct, frozen=True):
    transactional_id: str
    identity: Identity


class Verifier:
    """Of one broker. `run` is its task."""

    def __init__(
        self, replicas: Replicas, asking: TransactionAsking, clock: Clock, meter: Meter
    ) -> None:
        self._replicas = replicas
        self._asking = asking
        self._clock = clock
        self._meter = meter
        self._collected: dict[_Transaction, list[Asked]] = {}
        """Asked since the last turn."""
        self._news = asyncio.Event()
        self.in_flight = 0
        """Questions that coordinators have not answered."""

    async def run(self) -> None:
        """Answer questions until cancelled; then nobody is asked, and leaders are told so."""
        self._replicas.answer_questions(self._collect)
        try:
            async with TaskScope() as scope:
                while True:
                    await self._news.wait()
                    self._news.clear()
                    collected, self._collected = self._collected, {}
                    for transaction, asked in collected.items():
                        self._begin(transaction, asked, scope)
        finally:
            self._replicas.answer_questions(None)

    def _collect(self, question: Verify, owner: DirectoryOwner) -> None:
        identity = Identity(
            ProducerId(question.producer_id), ProducerEpoch(question.producer_epoch)
        )
        transaction = _Transaction(question.transactional_id, identity)
        self._collected.setdefault(transaction, []).append((question, owner))
        self._news.set()

    def _begin(self, transaction: _Transaction, asked: list[Asked], scope: TaskScope) -> None:
        if self.in_flight >= CALLS_MAX:
            full = TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"verify the transaction of `{transaction.transactional_id}`",
                happened=f"{self.in_flight} questions to coordinators are in flight, which is the "
                "limit of a broker; nothing was stored",
                hint="Send the batch again after a moment.",
            )
            self._tell(asked, full)
            return
        self.in_flight += 1
        scope.start(self._ask(transaction, asked), name="verify a transaction")

    async def _ask(self, transaction: _Transaction, asked: list[Asked]) -> None:
        self._meter.verifications += 1
        try:
            refusal = await self._answer(transaction, asked)
        finally:
            self.in_flight -= 1
        self._tell(asked, refusal)

    async def _answer(self, transaction: _Transaction, asked: list[Asked]) -> TidelogError | None:
        keys = tuple(sorted({question.key for question, _ in asked}))
        timeout_ms = min(question.timeout_ms for question, _ in asked)
        begun_ns, pause_ms = self._clock.monotonic_ns(), AGAIN_MS_MIN
        left_ms = timeout_ms
        while True:
            try:
                await self._asking.add_partitions(
                    transaction.transactional_id,
                    transaction.identity,
                    keys,
                    timeout_ms=left_ms,
                )
            except TidelogError as error:
                took_ms = (self._clock.monotonic_ns() - begun_ns) // NS_PER_MS
                left_ms = timeout_ms - took_ms - pause_ms
                is_over = took_ms + pause_ms > AGAIN_MS_MAX or left_ms <= 0
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or is_over:
                    return error
            else:
                return None
            await self._clock.sleep(pause_ms)
            pause_ms *= 2

    def _tell(self, asked: list[Asked], error: TidelogError | None) -> None:
        if error is not None:
            count(self._meter.verification_refusals, error.code.name)
        for question, owner in asked:
            owner.verified(question, error)
