"""The methods for operators that one broker may ask another: names, messages, and who answers here.

Owns the table. Between brokers a call travels as its method's name and its request's bytes, so that
nothing but this table knows what calls there are.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec
from google.protobuf.message import Message

from tidelog.broker.services.transactions.admin.calls import TransactionCalls
from tidelog.v1 import transaction_admin_pb2

AskedT = TypeVar("AskedT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)
SERVICE: Final = "/tidelog.v1.TransactionAdminService"


class TransactionMethod(msgspec.Struct, Generic[AskedT, AnswerT], frozen=True):
    """One of them."""

    name: str
    request: type[AskedT]
    response: type[AnswerT]
    serve: Callable[[TransactionCalls, AskedT], Awaitable[AnswerT]]
    """By the coordinators and leaders of the broker that is asked."""

    async def serve_bytes(self, calls: TransactionCalls, request: bytes) -> bytes:
        """For another broker."""
        answer = await self.serve(calls, self.request.FromString(request))
        return answer.SerializeToString()


LIST_TRANSACTIONS: Final = TransactionMethod(
    f"{SERVICE}/ListTransactions",
    transaction_admin_pb2.ListTransactionsRequest,
    transaction_admin_pb2.ListTransactionsResponse,
    TransactionCalls.list_transactions,
)
DESCRIBE_TRANSACTIONS: Final = TransactionMethod(
    f"{SERVICE}/DescribeTransactions",
    transaction_admin_pb2.DescribeTransactionsRequest,
    transaction_admin_pb2.DescribeTransactionsResponse,
    TransactionCalls.describe_transactions,
)
ABORT_TRANSACTION: Final = TransactionMethod(
    f"{SERVICE}/AbortTransaction",
    transaction_admin_pb2.AbortTransactionRequest,
    transaction_admin_pb2.AbortTransactionResponse,
    TransactionCalls.abort_transaction,
)
DESCRIBE_PRODUCERS: Final = TransactionMethod(
    f"{SERVICE}/DescribeProducers",
    transaction_admin_pb2.DescribeProducersRequest,
    transaction_admin_pb2.DescribeProducersResponse,
    TransactionCalls.describe_producers,
)
ABORT_HANGING: Final = TransactionMethod(
    f"{SERVICE}/AbortHangingTransaction",
    transaction_admin_pb2.AbortHangingTransactionRequest,
    transaction_admin_pb2.AbortHangingTransactionResponse,
    TransactionCalls.abort_hanging,
)

ServeBytes = Callable[[TransactionCalls, bytes], Awaitable[bytes]]
SERVED: Final[Mapping[str, ServeBytes]] = {
    LIST_TRANSACTIONS.name: LIST_TRANSACTIONS.serve_bytes,
    DESCRIBE_TRANSACTIONS.name: DESCRIBE_TRANSACTIONS.serve_bytes,
    ABORT_TRANSACTION.name: ABORT_TRANSACTION.serve_bytes,
    DESCRIBE_PRODUCERS.name: DESCRIBE_PRODUCERS.serve_bytes,
    ABORT_HANGING.name: ABORT_HANGING.serve_bytes,
}
"""For other brokers."""
