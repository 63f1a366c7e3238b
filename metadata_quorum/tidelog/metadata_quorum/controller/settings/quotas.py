"""Quotas by client id.

Pure. A request is all or nothing; each quota replaces the whole one of its client id, and one
without limits removes it, so a request may be sent again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import QuotaRecord
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.wire.refusals import invalid

QUOTAS_MAX: Final = 1_000
"""In one request."""
CLIENT_ID_LENGTH_MAX: Final = 255


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client id on each broker; None: no limit."""

    client_id: str
    """Empty: all that have no quota of their own."""
    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    requests_per_second: int | None = None


def alter_quotas(image: Image, quotas: Sequence[Quota]) -> Decision[None]:
    """Set them all, or refuse them all."""
    tried = "set quotas"
    refuse_too_many(len(quotas), QUOTAS_MAX, tried=tried, what="client ids")
    refuse_duplicates([quota.client_id for quota in quotas], tried=tried, what="client id")
    records = []
    for quota in quotas:
        _validate(quota)
        record = QuotaRecord(
            client_id=quota.client_id,
            produce_bytes_per_second=quota.produce_bytes_per_second,
            fetch_bytes_per_second=quota.fetch_bytes_per_second,
            requests_per_second=quota.requests_per_second,
        )
        if quota_of(image, quota.client_id) != quota:
            records.append(record)
    return Decision(records=tuple(records), answer=None)


def quota_of(image: Image, client_id: str) -> Quota:
    """What is set for the client id itself."""
    known = image.quotas.get(client_id)
    if known is None:
        return Quota(client_id=client_id)
    return Quota(
        client_id=client_id,
        produce_bytes_per_second=known.produce_bytes_per_second,
        fetch_bytes_per_second=known.fetch_bytes_per_second,
        requests_per_second=known.requests_per_second,
    )


def effective_quota(image: Image, client_id: str) -> Quota:
    """What counts for the client: its own, else that of all without one."""
    return quota_of(image, client_id if client_id in image.quotas else "")


def _validate(quota: Quota) -> None:
    tried = f"set the quota of client id `{quota.client_id[:CLIENT_ID_LENGTH_MAX]}`"
    if len(quota.client_id) > CLIENT_ID_LENGTH_MAX:
        raise invalid(tried, f"the client id has more than {CLIENT_ID_LENGTH_MAX} characters")
    limits = {
        "produce_bytes_per_second": quota.produce_bytes_per_second,
        "fetch_bytes_per_second": quota.fetch_bytes_per_second,
        "requests_per_second": quota.requests_per_second,
    }
    for name, limit in limits.items():
        if limit is not None and not 1 <= limit < 1 << 63:
            raise invalid(
                tried, f"{name} is {limit}, not 1 or more", "Leave a limit out to have none."
            )
