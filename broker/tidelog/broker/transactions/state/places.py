"""What transactional ids are to those who look for coordinators. Pure.

Owns the kind: below level 2 of `transaction.version` nobody coordinates a transaction.
"""

from typing import Final

from tidelog.broker.coordination.places import CoordinatedKind
from tidelog.broker.transactions.state.refusals import check_id
from tidelog.metadata.features import TRANSACTION_VERSION, TRANSACTIONS_ON
from tidelog.metadata.internal_topics import TRANSACTIONS_TOPIC
from tidelog.wire.errors import ErrorCode

TRANSACTIONS: Final = CoordinatedKind(
    noun="transaction",
    plural="transactions",
    topic_name=TRANSACTIONS_TOPIC,
    feature=TRANSACTION_VERSION,
    level=TRANSACTIONS_ON,
    off_code=ErrorCode.NOT_IMPLEMENTED,
)


def validate_transactional_id(transactional_id: str, *, tried: str) -> None:
    """Raises INVALID_ARGUMENT unless it is 1 to 249 bytes of UTF-8."""
    check_id(tried, transactional_id)
