"""Settings of transactions, as a coordinator reads them. Pure.

Owns nothing but the reading. Which settings there are is `settings.catalogue`'s.
"""

from collections.abc import Mapping

import msgspec

from tidelog.metadata.settings import catalogue


class TransactionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The settings as numbers."""

    timeout_ms_max: int
    id_expiration_ms: int


def read_transaction_settings(values: Mapping[str, str | None]) -> TransactionTimes:
    """What is set, else the defaults."""
    return TransactionTimes(
        timeout_ms_max=_number(values, catalogue.TRANSACTION_TIMEOUT_MS_MAX),
        id_expiration_ms=_number(values, catalogue.TRANSACTIONAL_ID_EXPIRATION_MS),
    )


def _number(values: Mapping[str, str | None], name: str) -> int:
    return int(values.get(name) or catalogue.CATALOGUE[name].default)
