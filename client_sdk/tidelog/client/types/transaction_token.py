"""The token of a prepared transaction.

Owns its form as text, which other processes and later releases read.
"""

import re
from typing import Final, Self

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

TRANSACTIONAL_ID_BYTES_MAX: Final = 249
_FORM: Final = "tidelog-transaction/1/<producer id>/<epoch>/<transactional id>"
_TEXT: Final = re.compile(r"tidelog-transaction/1/([0-9]{1,19})/([0-9]{1,5})/(.+)", re.DOTALL)
PRODUCER_ID_MAX: Final = 2**63 - 1
PRODUCER_EPOCH_MAX: Final = 32_766


class TransactionToken(msgspec.Struct, frozen=True):
    """A prepared transaction: any process that has it may complete or abandon the transaction.

    `str(token)` can be stored, in a database say, and `TransactionToken.parse(text)` reads it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        place = f"{self.producer_id}/{self.producer_epoch}"
        return f"tidelog-transaction/1/{place}/{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The token that was stored as this text."""
        found = _TEXT.fullmatch(text) if type(text) is str else None
        if found is None or not _fits(found[3], int(found[1]), int(found[2])):
            raise _no_token(text)
        return cls(found[3], int(found[1]), int(found[2]))


def _fits(transactional_id: str, producer_id: int, producer_epoch: int) -> bool:
    try:
        size_bytes = len(transactional_id.encode())
    except UnicodeEncodeError:
        return False
    is_identity = producer_id <= PRODUCER_ID_MAX and producer_epoch <= PRODUCER_EPOCH_MAX
    return is_identity and size_bytes <= TRANSACTIONAL_ID_BYTES_MAX


def _no_token(value: object) -> TidelogError:
    shown = repr(value[:100]) if type(value) is str else f"a {type(value).__name__}"
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried="read the token of a prepared transaction",
        happened=f"{shown} is none",
        hint=f"its text is {_FORM}, as str(token) gives it",
    )
