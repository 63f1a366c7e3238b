"""Asks coordinators what the leaders of this broker's partitions want to know before they append.

Owns the questions in flight of the whole node. One transaction that begins in several partitions at
once is one question: what arrives in one turn of the loop, of one identity, is asked together. It
must never leave a question without an answer for longer than its `timeout_ms`, nor answer yes for a
coordinator that has not said so.
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
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerEpoch, ProducerId

CALLS_MAX: Final = 1_000
"""Questions to coordinators in flight at once, of one node."""

Asked = tuple[Verify, DirectoryOwner]


class _Transaction(msgspec.Struct, frozen=True):
    transactional_id: str
    identity: Identity


class Verifier:
    """Of one broker. `run` is its task."""

    def __init__(self, replicas: Replicas, asking: TransactionAsking, meter: Meter) -> None:
        self._replicas = replicas
        self._asking = asking
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
        refusal = None
        try:
            await self._asking.add_partitions(
                transaction.transactional_id,
                transaction.identity,
                tuple(sorted({question.key for question, _ in asked})),
                timeout_ms=min(question.timeout_ms for question, _ in asked),
            )
        except TidelogError as error:
            refusal = error
        finally:
            self.in_flight -= 1
        self._tell(asked, refusal)

    def _tell(self, asked: list[Asked], error: TidelogError | None) -> None:
        if error is not None:
            count(self._meter.verification_refusals, error.code.name)
        for question, owner in asked:
            owner.verified(question, error)
