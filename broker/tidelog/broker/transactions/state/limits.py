"""What one transaction coordinator admits, each bound with its reason. Pure."""

from typing import Final

TRANSACTIONAL_IDS_MAX: Final = 20_000
"""Transactional ids of one core: bounds its memory and how long it loads."""

PARTITIONS_PER_TRANSACTION_MAX: Final = 2_000
"""Partitions of one transaction: its record is written again with every addition."""

PARTITIONS_PER_REQUEST_MAX: Final = PARTITIONS_PER_TRANSACTION_MAX

PREPARED_PER_PRINCIPAL_MAX: Final = 10
"""Prepared transactions of one principal in the cluster: each holds readers and retention back."""

PREPARED_PER_CLUSTER_MAX: Final = 100
"""Prepared transactions of all principals, for the same reason."""

PREPARED_NOTICE_MS: Final = 60_000
"""After so long a prepared transaction that nobody has decided is noted."""

TRANSACTIONAL_ID_BYTES_MAX: Final = 249

MARKER_BACKOFF_MS_MIN: Final = 50
"""How long the coordinator waits before it sends a marker again that was refused; doubles."""

MARKER_BACKOFF_MS_MAX: Final = 2_000

MARKER_ATTEMPTS_NOTED: Final = 10
"""With this attempt it is noted that an end does not come forward."""

PRODUCER_IDS_REQUESTED: Final = 100
"""Ids that a core asks for at a time. Those left over when it is thrown away are never used."""

PRODUCER_IDS_LOW: Final = 20
"""With fewer at hand it asks for more."""

PRODUCER_ID_WAIT_MS: Final = 1_000
"""How long an abort that needs a producer id is put off while there is none."""

EXPIRY_INTERVAL_MS: Final = 600_000
"""How often ids are looked at for their age."""
