"""What producers ask: handed to the coordinator of their transactional id, if it is on this broker.

Owns nothing but the way there. It must never answer for a coordinator that is elsewhere: who asks
the wrong broker is told NOT_COORDINATOR before anything is waited for.
"""

from typing import TypeVar

from tidelog.broker.transactions.coordinator.keeper import TransactionCoordinators
from tidelog.broker.transactions.state.answers import (
    DecideAnswer,
    EndAnswer,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    OneRequest,
    PrepareTransaction,
)
from tidelog.broker.transactions.state.refusals import check_id

AnswerT = TypeVar("AnswerT")


class TransactionsHandler:
    """The calls of TransactionService that go to the coordinator of a transactional id."""

    def __init__(self, coordinators: TransactionCoordinators) -> None:
        self._coordinators = coordinators

    async def init(self, request: InitTransactionalProducer) -> InitAnswer:
        """Take the id over."""
        return await self._ask(request, InitAnswer)

    async def end(self, request: EndTransaction) -> EndAnswer:
        """Decide the transaction in progress."""
        return await self._ask(request, EndAnswer)

    async def prepare(self, request: PrepareTransaction) -> PrepareAnswer:
        """Take the first half of a commit in two phases."""
        return await self._ask(request, PrepareAnswer)

    async def decide(self, request: DecidePrepared) -> DecideAnswer:
        """Take the second half."""
        return await self._ask(request, DecideAnswer)

    async def _ask(self, request: OneRequest, kind: type[AnswerT]) -> AnswerT:
        check_id("ask for the coordinator of a transaction", request.transactional_id)
        answer = await self._coordinators.of(request.transactional_id).ask(request)
        assert isinstance(answer, kind), f"{type(request).__name__} is answered by {kind.__name__}"
        return answer
