"""What one group coordinator admits, each bound with its reason. Pure."""

from typing import Final

from tidelog.wire.group_names import GROUP_NAME_BYTES_MAX

APPEND_BYTES_MAX: Final = 3 * 1024 * 1024
"""Keys and values of one append: with its envelope it is one batch of `__groups`."""

GROUPS_MAX: Final = 20_000
"""Groups of one core: bounds its memory and how long it loads."""

MEMBERS_PER_GROUP_MAX: Final = 2_000
"""Members of one group: the targets of all of them fit one append."""

PARTITIONS_PER_GROUP_MAX: Final = 100_000
"""Partitions that the subscriptions of one group cover, for the same reason."""

OFFSETS_PER_GROUP_MAX: Final = 100_000
"""Partitions for which one group has committed."""

OFFSETS_PER_REQUEST_MAX: Final = 10_000
"""Partitions of one commit, alteration, deletion or question."""

NAME_BYTES_MAX: Final = GROUP_NAME_BYTES_MAX
"""Of an instance id, a rack: as of a group."""

MEMBER_ID_BYTES_MAX: Final = 64

TRANSACTIONS_PER_GROUP_MAX: Final = 1_000
"""Transactions in progress that have sent offsets to one group."""

TRANSACTIONS_PER_PARTITION_MAX: Final = 10_000
"""The same, over all groups of one core."""

STAGED_PARTS_MAX: Final = 1_000
"""How often one transaction may send offsets to one group: each time leaves a tombstone."""

STAGED_OFFSETS_PER_PARTITION_MAX: Final = 200_000
"""Offsets of transactions in progress, over all groups of one core: bounds its memory."""

METADATA_BYTES_MAX: Final = 4_096
"""Of what an application stores beside an offset."""

TOPICS_PER_SUBSCRIPTION_MAX: Final = 10_000

SUBSCRIPTION_BYTES_MAX: Final = 256 * 1024
"""Of all topic names of one subscription."""

PATTERN_BYTES_MAX: Final = 1_000
"""Of a regular expression of topics."""

REBALANCE_TIMEOUT_MS_DEFAULT: Final = 300_000

REBALANCE_TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1000

RECONCILING_INTERVAL_MS_MIN: Final = 200
"""How soon a member beats again that waits for partitions which others are giving up."""

RECONCILING_INTERVAL_MS_PER_MEMBER: Final = 2
"""And for each member of its group so much later: a large group sends at most 500 a second."""

ASSIGNMENT_INTERVAL_MS: Final = 100
"""At least so long between two computations of a group's assignment: when a hundred members start
together, they are taken together. The first change after a calm is taken at once."""

EXPIRY_INTERVAL_MS: Final = 600_000
"""How often offsets are looked at for their age."""

EMPTY_GROUP_MS: Final = 3_600_000
"""How long a group without members and offsets is remembered: its epochs go on if it returns."""
